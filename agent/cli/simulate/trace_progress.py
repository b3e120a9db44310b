"""How far a long simulation is, on standard error of a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from agent.cli.progress import PATIENCE_S

_EVERY_S = 0.2
"""Between two updates; a person reads no faster."""


class Counter(Protocol):
    """Takes the news; it may leave some out."""

    def __call__(self, text: str) -> None:
        """Say where the work stands now."""


@contextmanager
def counting() -> Iterator[Counter]:
    """Give a function that shows its text in place, once the block has taken more than 2 s."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    line = _Line(time.monotonic() + PATIENCE_S)
    try:
        yield line.show
    finally:
        line.clear()


class _Line:
    def __init__(self, not_before: float) -> None:
        self._next = not_before
        self._is_shown = False

    def show(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY_S
            self._is_shown = True
            self._write(f"\r\x1b[K{text} …")

    def clear(self) -> None:
        if self._is_shown:
            self._write("\r\x1b[K")  # EL: erase to the end of the line (ECMA-48 8.3.41)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
