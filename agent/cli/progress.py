"""A word to the person who waits."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0
"""How long nothing is said; live discovery takes 0.2 s on a healthy node."""


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show *text* on standard error while the block takes longer than 2 s, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    line = _Line(text)
    timer = threading.Timer(PATIENCE_S, line.show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        line.clear()


class _Line:
    """A line that is shown at most once, never after it was cleared."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lock = threading.Lock()
        self._is_shown = False
        self._is_over = False

    def show(self) -> None:
        with self._lock:
            if not self._is_over:
                self._is_shown = True
                sys.stderr.write(f"{self._text} …")
                sys.stderr.flush()

    def clear(self) -> None:
        with self._lock:
            self._is_over = True
            if self._is_shown:
                sys.stderr.write("\r\x1b[K")  # EL: erase to the end of the line (ECMA-48 8.3.41)
                sys.stderr.flush()
