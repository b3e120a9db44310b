"""How a setting's value is read, from text or from YAML, and refused."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]*):([0-9]{1,5})")
_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How a setting is read and explained; ``choices`` is empty where any value goes."""

    read: Callable[[Any], Any]
    help: str
    metavar: str
    choices: tuple[str, ...] = ()


def text(value: object) -> str:
    """Read a text that can be printed in one line."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("not a printable text")
    return value


def path(value: object) -> Path:
    """Read a path; whether it exists is for its user to find out."""
    return Path(text(value))


def switch(value: object) -> bool:
    """Read YAML's booleans and their spellings as text."""
    word = str(value).lower()
    if word not in _YES + _NO:
        raise ValueError("neither true nor false")
    return word in _YES


def scan_interval(value: object) -> float:
    """Read a duration of 1 s or more, in seconds; a bare number is seconds."""
    match = None if isinstance(value, bool) else _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("not a duration such as 60, 90s or 5m")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds < 1:
        raise ValueError("shorter than 1 s")
    return seconds


def resource(value: object) -> str:
    """Read an extended resource's name, or a CDI kind: both are ``domain/name``."""
    if _RESOURCE.fullmatch(text(value)) is None:
        raise ValueError("not of the form domain/name")
    return text(value)


def address(value: object) -> str | None:
    """Read ``host:port``; ``none`` gives ``None``."""
    if value in ("none", "off", False):
        return None
    match = _ADDRESS.fullmatch(text(value))
    if match is None or int(match[2]) > 65535:
        raise ValueError("not of the form host:port")
    return text(value)


def one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    """Return a reader of one of *choices*."""

    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"not one of {', '.join(choices)}{did_you_mean(value, choices)}")
        return str(value)

    return read


def several_of(choices: tuple[str, ...]) -> Callable[[object], tuple[str, ...]]:
    """Return a reader of different *choices*, as a list or separated by commas; one at least."""

    def read(value: object) -> tuple[str, ...]:
        parts = value if isinstance(value, list | tuple) else str(value).split(",")
        names = tuple(one_of(choices)(str(part).strip()) for part in parts)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"not a list of different values out of {', '.join(choices)}")
        return names

    return read


def did_you_mean(found: object, names: tuple[str, ...]) -> str:
    """Return ``; did you mean 'x'?``, or nothing where no name is near."""
    close = get_close_matches(str(found), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
