"""Text for people: safe, aligned, and coloured only on a terminal."""

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves (ECMA-48 5.4)
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC and the other strings
    r"|\x1b[ -/]*[0-~]?"  # all other sequences
)
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder text, or print nothing."""


def clean(text: str) -> str:
    """Return *text* as one line without escape sequences, controls and direction marks.

    Names come from firmware, files and pods: none of them may steer the terminal.
    """
    if text.isascii() and text.isprintable():
        return text
    plain = _ESCAPES.sub("", text)
    spaced = "".join(" " if char in "\t\n\r\v\f\u2028\u2029" else char for char in plain)
    return "".join(char for char in spaced if unicodedata.category(char) not in _INVISIBLE)


def width(text: str) -> int:
    """Return how many terminal columns *text* takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, columns: int) -> str:
    """Return *text* filled with spaces up to *columns*."""
    return text + " " * (columns - width(text))


def table(rows: Iterable[Sequence[str]], *, gap: int = 2, indent: int = 0) -> str:
    """Return cleaned *rows* with aligned columns and no trailing spaces; rows may be ragged."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    columns = max((len(row) for row in cleaned), default=0)
    widths = [
        max((width(row[column]) for row in cleaned if column < len(row)), default=0) + gap
        for column in range(columns)
    ]
    return "".join(" " * indent + "".join(map(pad, row, widths)).rstrip() + "\n" for row in cleaned)


@dataclass(frozen=True, slots=True)
class Style:
    """Colours, or none of them."""

    is_on: bool

    def paint(self, text: str, code: str) -> str:
        """Wrap *text* in the SGR *code* (ECMA-48 8.3.117), e.g. ``31`` for red."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_on and text else text


def style(*, no_color: bool) -> Style:
    """Return colours where standard output is a terminal and nobody asked for none.

    ``NO_COLOR`` counts when set to anything but nothing (no-color.org).
    """
    wanted = not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(wanted and sys.stdout.isatty())
