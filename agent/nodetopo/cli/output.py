"""One answer, several formats."""

import json
import os
import re
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from nodetopo.errors import UnreadableError
from nodetopo.formats.columns import width as width  # noqa: PLC0414 - its users are here
from nodetopo.formats.harmless import clean as clean  # noqa: PLC0414 - its users are here

# Text for people: safe, aligned, and coloured only on a terminal.


def pad(text: str, columns: int) -> str:
    """Return *text* filled with spaces up to *columns*."""
    return text + " " * (columns - width(text))


def table(rows: Iterable[Sequence[str]], *, gap: int = 2, indent: int = 0) -> str:
    """Return cleaned *rows* with aligned columns and no trailing spaces; rows can be ragged."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    columns = max((len(row) for row in cleaned), default=0)
    widths = [
        max((width(row[column]) for row in cleaned if column < len(row)), default=0) + gap
        for column in range(columns)
    ]
    return "".join(" " * indent + "".join(map(pad, row, widths)).rstrip() + "\n" for row in cleaned)


class Style(Struct, frozen=True):
    """Colours, or none of them."""

    is_on: bool

    def paint(self, text: str, code: str) -> str:
        """Wrap *text* in the SGR *code* (ECMA-48 8.3.117), e.g. ``31`` for red."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_on and text else text


def style(*, no_color: bool) -> Style:
    """Return colours if standard output is a terminal and they were not turned off.

    ``NO_COLOR`` counts if not empty (no-color.org).
    """
    wanted = not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(wanted and sys.stdout.isatty())


MOST_COLUMNS = 4
"""A line of a table with more columns is not wrapped: its cells would no longer be aligned."""

LEAST_WIDTH = 20
"""Columns of a terminal that is too narrow to wrap anything."""

_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
_SGR = re.compile(r"\x1b\[[0-9;]*m")


def fitted(text: str, columns: int) -> str:
    """Return *text* with lines of more than *columns* wrapped, below the text that they continue.

    Continuations of the last column hang below it, unless it is too far right; lines of wide tables
    are unchanged. A URL too long for that begins its line.
    """
    if columns < LEAST_WIDTH:
        return text
    return "".join(f"{_wrapped(line, columns)}\n" for line in text.splitlines())


def _wrapped(line: str, columns: int) -> str:
    shown = _SGR.sub("", line)
    gaps = [match.end() for match in _GAP.finditer(shown)]
    if width(shown) <= columns or len(gaps) >= MOST_COLUMNS:
        return line
    start = len(shown) - len(shown.lstrip())
    hang = max([at for at in (start, *gaps) if at <= columns // 2], default=0) + 2
    rows, row = [""], 0
    for word in re.findall(r"\s*\S+", line):
        taken = width(_SGR.sub("", word))
        if row + taken > columns and rows[-1].strip():
            word = word.lstrip()  # noqa: PLW2901 - the space before it is the line break
            taken = width(_SGR.sub("", word))
            # A URL that is broken over two lines, or that the next line continues, is no link.
            row = 0 if "://" in word and hang + taken > columns else hang
            rows.append(" " * row)
        rows[-1] += word
        row += taken
    return "\n".join(rows)


def _on_terminal(text: str) -> str:
    """Return *text* as wide as the terminal that it is for, unchanged for a file or a pipe."""
    columns = terminal_columns()
    return text if columns is None else fitted(text, columns)


def terminal_columns() -> int | None:
    """Return the columns of the terminal on standard output; ``None`` for a file or a pipe."""
    if not sys.stdout.isatty():
        return None
    with suppress(ValueError):
        if (stated := int(os.environ.get("COLUMNS") or 0)) > 0:
            return stated
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stdout.fileno()).columns
    return None


def folded(rows: Sequence[Sequence[str]], columns: int) -> str:
    """Return *rows* of equal length as a table that fits *columns*.

    A wider table is split into blocks of columns, with the first column repeated in each and an
    empty line between them. A single column that is too wide gets a block alone.
    """
    widths = [max(width(clean(cell)) for cell in column) + 2 for column in zip(*rows, strict=True)]
    blocks: list[list[int]] = [[]]
    for at, taken in enumerate(widths[1:], 1):
        if blocks[-1] and widths[0] + sum(widths[i] for i in blocks[-1]) + taken - 2 > columns:
            blocks.append([])
        blocks[-1].append(at)
    return "\n".join(
        table([[row[0], *(row[i] for i in block)] for row in rows]) for block in blocks
    )


# A word to the person who waits.

PATIENCE_S = 2.0
"""Silence before a progress message; live discovery takes 0.2 s on a healthy node."""


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


_STEERING = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\uf8ff\ufeff\ufff9-\uffff\U000e0000-\U0010ffff]"
)
"""Characters that JSON allows unescaped but that a terminal obeys or cannot show:
controls, marks of direction, halves of characters, private and unassigned ones."""


class Answer(Struct, frozen=True, kw_only=True):
    """A command's answer: for programs, and as text, long and short."""

    plain: Any  # made of JSON's own types
    # table, short: text that ends with a line break, or empty.
    table: str
    short: str
    # Draws the answer; only for commands that offer the format.
    svg: Callable[[], str] | None = None


def emit(answer: Answer, args: Namespace) -> None:
    """Print *answer* in the format that ``-o`` names."""
    match args.output:
        case "json":
            say(json_text(answer.plain))
        case "yaml":
            is_safe = _STEERING.search(json.dumps(answer.plain, ensure_ascii=False)) is None
            say(yaml_text(answer.plain, allow_unicode=is_safe))
        case "short":
            say(_on_terminal(answer.short))
        case "svg" if answer.svg is not None:
            say(answer.svg())
        case _:
            say(_on_terminal(answer.table))


def say(text: str) -> None:
    """Write *text* to standard output and flush it.

    Raises:
        UnreadableError: the write failed, e.g. because the disk is full.
        BrokenPipeError: the reader is gone.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        cause = f"cannot write the output: {error.strerror}"
        raise UnreadableError(cause, "free the space, then repeat") from None


def yaml_text(plain: Any, **options: Any) -> str:
    """Return *plain* as a YAML document, by the *options* of ``yaml.safe_dump``."""
    import yaml  # noqa: PLC0415 - 2 MiB and 20 ms that only this format needs

    text: str = yaml.safe_dump(plain, sort_keys=False, width=100, **options)
    return text


def json_text(plain: Any) -> str:
    """Return *plain* as an indented JSON document, safe to show on a terminal."""
    return escaped(json.dumps(plain, indent=2, ensure_ascii=False)) + "\n"


def escaped(document: str) -> str:
    """Return the JSON *document* with terminal control characters escaped; it means the same."""
    return _STEERING.sub(lambda found: json.dumps(found[0])[1:-1], document)


LONGEST_WORD = 200
"""Characters of one word in a line of :func:`note`; names of files and settings have fewer."""

LONGEST_LINE = 1000
"""Characters of a line of :func:`note`, its kind left out."""

_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def note(kind: str, text: str) -> None:
    """Print the line ``kind: text`` to standard error, with long values cut.

    A failed write to standard error does not change the exit status.
    """
    line = " ".join(clean(_cut(text, 10 * LONGEST_LINE)).split())
    line = _LONG_WORD.sub(lambda word: _cut(word[0], LONGEST_WORD), line)
    with suppress(OSError):
        sys.stderr.write(f"{kind}: {_cut(line, LONGEST_LINE)}\n")
        sys.stderr.flush()


def _cut(text: str, most: int) -> str:
    """Return *text* with at most *most* characters: its start and its end, which has the cure."""
    end = most // 3
    return text if len(text) <= most else f"{text[: most - end - 1]}…{text[-end:]}"


def warn(args: Namespace, text: str) -> None:
    """Print a warning and remember that there was one, for ``--strict``."""
    args.warnings.append(text)
    note("warning", text)


MOST_KINDS = 20
"""Kinds of warnings that are printed, one of each."""

_COUNT = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[0-9]+")
"""A PCI address, or any number."""


def warn_each_kind(args: Namespace, texts: Iterable[str]) -> None:
    """Print the first warning of each kind among *texts*, with how many more there are of it.

    Texts that differ only in numbers, such as a position or an address, are of one kind.
    """
    kinds: dict[str, list[str]] = {}
    for text in texts:
        kinds.setdefault(_COUNT.sub("0", text), []).append(text)
    groups = list(kinds.values())
    for first, *others in groups[:MOST_KINDS]:
        warn(args, f"{first} (and {len(others)} more like this)" if others else first)
    if rest := groups[MOST_KINDS:]:
        warn(args, f"and {sum(map(len, rest))} more warnings, of {len(rest)} other kinds")
