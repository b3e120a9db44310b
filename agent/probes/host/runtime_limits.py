"""Limits that a container runtime's configuration gives its containers."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

UNLIMITED = -1
_WORD = re.compile(r"([a-z]{1,16})=(-?[0-9]{1,20})(?::(-?[0-9]{1,20}))?")
_INFINITY = 1 << 63
"""From here on a limit of an OCI specification is RLIM_INFINITY, all bits set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What :class:`agent.model.host.RuntimeConfig` has of them.

    Attributes:
        memlock_bytes: soft limit; −1 is unlimited, ``None`` is not stated.
        open_files: hard limit.
    """

    memlock_bytes: int | None = None
    open_files: int | None = None


def limits_of_spec(spec: Any) -> Limits:
    """Return the ``process.rlimits`` of an OCI runtime specification (runtime-spec config.md)."""
    process = spec.get("process") if isinstance(spec, dict) else None
    rlimits = process.get("rlimits") if isinstance(process, dict) else None
    found = {
        one["type"]: one
        for one in (rlimits if isinstance(rlimits, list) else ())
        if isinstance(one, dict) and isinstance(one.get("type"), str)
    }
    return Limits(
        memlock_bytes=_known(found.get("RLIMIT_MEMLOCK", {}).get("soft")),
        open_files=_known(found.get("RLIMIT_NOFILE", {}).get("hard")),
    )


def limits_of_words(words: Iterable[Any]) -> Limits:
    """Return those of words like ``memlock=-1:-1``, soft before hard (``default_ulimits``).

    A word with one number means both (docker/go-units ulimit.go, which CRI-O reads them with).
    """
    found = {match[1]: match for match in map(_WORD.fullmatch, map(str, words)) if match}
    memlock, files = found.get("memlock"), found.get("nofile")
    return Limits(
        memlock_bytes=None if memlock is None else _known(int(memlock[2])),
        open_files=None if files is None else _known(int(files[3] or files[2])),
    )


def _known(limit: Any) -> int | None:
    if not isinstance(limit, int):
        return None
    return limit if 0 <= limit < _INFINITY else UNLIMITED
