"""Answers of servers: read within limits, and their parts as the types that they must have.

A proxy in between can answer with anything, and a loop that fails on that must fail with an error
that is retried (ApiUnavailable), not with one that ends the program.
"""

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nodetopo.errors import ApiUnavailable

_CURE = "is there a proxy in between? It is tried again later"

_PIECE = 1 << 16


class EndlessError(ValueError):
    """A body beyond the limit for its size or time; the rest of it was not read."""


def body_of(
    answer: Any, max_bytes: int, within_s: float, least_rate: float = math.inf
) -> bytearray:
    """Return the body of an HTTP answer, which was not read yet; the caller closes it.

    Args:
        answer: of ``http.client``, or of urllib3 without ``preload_content``.
        within_s: seconds for the whole body; a timeout of the socket starts again with each byte.
        least_rate: bytes/s; what came at this rate does not count towards *within_s*.

    Raises:
        EndlessError: it has more than *max_bytes*, or takes longer.
        OSError, HTTPException, HTTPError: as *answer* does.
    """
    from http.client import HTTPResponse  # noqa: PLC0415 - loaded by whoever has an answer

    body, began = bytearray(), time.monotonic()
    # Not `read`: that waits for all of it. A compressed body, which nobody asks for, stays so.
    options = {} if isinstance(answer, HTTPResponse) else {"decode_content": False}
    while piece := answer.read1(min(_PIECE, max_bytes + 1 - len(body)), **options):
        body += piece
        if len(body) > max_bytes:
            raise EndlessError(f"the answer has more than {max_bytes >> 20} MiB")
        if time.monotonic() - began > (most_s := within_s + len(body) / least_rate):
            raise EndlessError(f"no whole answer in {most_s:.3g} s")
    return body


def part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object *name* of *whole*, empty if there is none."""
    value = whole.get(name) or {}
    if not isinstance(value, dict):
        raise _broken(name, "no object")
    return value


def moment(value: object) -> datetime | None:
    """Return a time of the API server, which writes ``2026-11-21T12:00:00Z``; ``None`` for none."""
    try:
        return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def parts(whole: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the objects in the list *name* of *whole*, empty if there is no such list."""
    value = whole.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _broken(name, "no list of objects")
    return tuple(value)


def texts(whole: Mapping[str, Any], name: str) -> Mapping[str, str]:
    """Return the object *name* of *whole*, such as its labels, whose values are all texts."""
    values = part(whole, name)
    for key, value in values.items():
        if not isinstance(value, str):
            raise _broken(f"{name}.{key}", "no text")
    return values


def _broken(name: str, problem: str) -> ApiUnavailable:
    return ApiUnavailable(f"the answer of the API server is broken: {name} is {problem}", _CURE)
