"""Bounded waiting: every wait of the lab has a limit, and says what it saw when it ran out."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 180.0
"""For what takes seconds on two idle cores. Nobody waits so long but for what never comes, so it
is meant for a machine that is busy with much else."""

_POLL_S = 0.1
_HEADING = "--- the end of"
_NOISE = "eviction_manager.go"
"""The kubelet says every ten seconds that the simulated runtime has no image file system."""


class LabFailure(AssertionError):  # noqa: N818 - a verdict on what is tested, like its base
    """Something that the lab waited for did not happen; the text carries the evidence."""


def wait_for(
    what: str,
    look: Callable[[], T | None],
    *,
    timeout_s: float = PATIENCE_S,
    evidence: Callable[[], str] = str,
) -> T:
    """Return the first answer of *look* that is neither ``None`` nor false.

    Raises:
        LabFailure: *timeout_s* passed; the message says *what* and adds *evidence*.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > deadline:
            text = f"not within {timeout_s:.0f} s: {what}; the last look gave {answer!r}"
            raise LabFailure(f"{text}\n{evidence()}".rstrip())
        time.sleep(_POLL_S)


def tail(log: Path, lines: int = 25) -> str:
    """Return the last *lines* of a log under a heading, for a failure message."""
    try:
        text = log.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return f"{_HEADING} {log}: never written"
    telling = [line for line in text.splitlines() if _NOISE not in line]
    return "\n".join((f"{_HEADING} {log}", *telling[-lines:]))


def has_tail(text: str) -> bool:
    """Tell whether *text* holds a log's end already."""
    return _HEADING in text
