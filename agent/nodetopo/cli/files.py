"""Files that a person names, read with a cap."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nodetopo.errors import DecodeError, InputError
from nodetopo.model.codec import MAX_BYTES

if TYPE_CHECKING:  # only a refusal looks for signatures
    from nodetopo.formats.signatures import Reader

_PROCFS = "/proc"
"""Its files are generated while being read, some block for more, and ``kmsg`` loses read lines."""

_MAGIC = 16
"""Bytes from the start that tell the form of a file that is no text."""

STDIO = "-"
"""Stands for standard input or output, as everywhere."""


def read_text(name: str, *, most: int = MAX_BYTES) -> str:
    """Return the text of the file *name*, or of standard input for ``-``.

    Saved files and anonymous pipes only, up to *most* bytes, by default 16 MiB: a device, a named
    pipe or a file of the kernel's, such as ``/proc/kmsg``, could never end.

    Raises:
        InputError: missing, unreadable, too large, not a file, or not UTF-8.
    """
    return _text(name, _read(name, most))


def read_snapshot_text(name: str) -> str:
    """Return the text of the snapshot *name*, also where it is in an archive of ``support``."""
    content = _read(name, MAX_BYTES)
    if not content.startswith(b"\x1f\x8b"):  # gzip, which no text begins as
        return _text(name, content)
    from nodetopo.formats.support_archive import snapshot_text  # noqa: PLC0415 - only for archives

    try:
        return snapshot_text(content)
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", error.cure) from None


@contextmanager
def reading(
    name: str, text: str, reader: "Reader", cure: str = "check the file", *, is_named: bool = False
) -> Iterator[None]:
    """Name the file *name* in the errors of the block, in which *reader* reads *text*.

    If *text* is in the form of another tool or for another reader, the error tells that instead.

    Args:
        cure: where an error has none.
        is_named: whether the errors of the block name the file.

    Raises:
        InputError: the block raised one.
    """
    try:
        yield
    except InputError as error:
        refuse_other(name, text, reader)
        if is_named:
            raise
        raise InputError(f"{name}: {error.cause}", error.cure or cure) from None


def refuse_other(name: str, text: str, reader: "Reader | None") -> None:
    """Raise for a *text* that *reader* does not take and whose form is known."""
    from nodetopo.formats.signatures import other_form  # noqa: PLC0415 - only errors

    form = other_form(text, reader)
    if form is not None:
        raise InputError(f"{name}: this is {form.what}", form.cure) from None


def _read(name: str, most: int) -> bytes:
    try:
        content = sys.stdin.buffer.read(most + 1) if name == STDIO else _read_named(name, most)
    except IsADirectoryError:
        raise InputError(f"{name} is a directory", "name a file") from None
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}", "check the path") from None
    except ValueError as error:  # a NUL byte in the name
        raise InputError(f"cannot read {name!r}: {error}", "check the path") from None
    if len(content) > most:
        raise InputError(f"{name} is larger than {most >> 20} MiB", "name a smaller file")
    return content


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        refuse_other(name, content[:_MAGIC].decode("latin-1"), None)
        raise InputError(f"{name} is not UTF-8 text", "save it as UTF-8 or name another") from None


def _read_named(name: str, most: int) -> bytes:
    # Without O_NONBLOCK, opening a FIFO that has no writer would wait for ever.
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        is_pipe = stat.S_ISFIFO(status.st_mode) and not Path(name).resolve().exists()
        is_saved = stat.S_ISREG(status.st_mode) and status.st_dev != _device(_PROCFS)
        if not (is_pipe or is_saved):
            raise InputError(f"{name} is not a regular file", "name a file, or - for stdin")
        os.set_blocking(descriptor, is_pipe)
        return file.read(most + 1) or b""


def _device(path: str) -> int | None:
    """Return the device of the file system that *path* is on; ``None`` where it is not there."""
    try:
        return Path(path).stat().st_dev
    except OSError:
        return None
