"""Files that a person names: read with a cap, written whole or not at all."""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from agent.cli.output import say
from agent.errors import DecodeError, InputError
from agent.model.codec import MAX_BYTES

_PROCFS = "/proc"
"""Files here are made while they are read, some wait for more, and ``kmsg`` loses what was read."""

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
    """Return the text of the snapshot *name*, also where it is in an archive of ``support``.

    Raises:
        InputError: as of :func:`read_text`, or the archive cannot be used.
    """
    content = _read(name, MAX_BYTES)
    if not content.startswith(b"\x1f\x8b"):  # gzip, which no text begins as
        return _text(name, content)
    from agent.formats.support_archive import snapshot_text  # noqa: PLC0415 - only for archives

    try:
        return snapshot_text(content)
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", error.cure) from None


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


def write_text(name: str, text: str) -> None:
    """Write *text* to the file *name*, or to standard output for ``-``.

    A file appears whole under its name or not at all.

    Raises:
        InputError: the place cannot be written.
    """
    if name == STDIO:
        say(text)
        return
    target = Path(name)
    try:
        if target.is_dir():
            raise InputError(f"{name} is a directory", "name a file")
        replace_file(target, text.encode())
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}", "check the path") from None


def write_private(name: str, content: bytes) -> None:
    """Write *content* to the file *name*, which only its owner may read, or to standard output.

    A file appears whole under its name or not at all.

    Raises:
        InputError: the place cannot be written, or is a terminal.
    """
    if name == STDIO:
        if sys.stdout.isatty():
            raise InputError("an archive is not for a terminal", "name a file with -o FILE")
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    target = Path(name)
    try:
        if target.is_dir():
            raise InputError(f"{name} is a directory", "name a file")
        replace_file(target, content, mode=0o600)
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}", "check the path") from None


def check_new_directory(name: str) -> None:
    """Check that :func:`write_directory` may write the directory *name*.

    Raises:
        InputError: something is there that would be lost, or that cannot be read.
    """
    target = Path(name)
    try:
        is_free = not os.path.lexists(name) or (target.is_dir() and not any(target.iterdir()))
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}", "name a new directory") from None
    if name == STDIO or not is_free:
        what = "is no directory" if not target.is_dir() else "is not empty"
        raise InputError(f"{name} {what}", "name a new directory")


def write_directory(name: str, files: Mapping[str, str]) -> None:
    """Write the directory *name* with *files*, by file name; it appears whole or not at all.

    Raises:
        InputError: something is there, or the place cannot be written.
    """
    import shutil  # noqa: PLC0415 - 5 ms that readers do without
    import tempfile  # noqa: PLC0415 - same

    check_new_directory(name)
    target = Path(name).absolute()
    written: str | None = None
    try:
        written = tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.")
        for file, text in files.items():
            replace_file(Path(written, file), text.encode())
        Path(written).chmod(0o777 & ~_umask())
        Path(written).rename(target)  # an empty directory there is replaced, a full one is not
    except BaseException as error:
        if written is not None:
            shutil.rmtree(written, ignore_errors=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot write {name}: {error.strerror}", "check the path") from None
        raise


def replace_file(target: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write *content* to *target*: beside it first, then under its name.

    Args:
        target: the file.
        content: all of it.
        mode: its permissions; ``None`` for those that the umask leaves.

    Raises:
        OSError: the place cannot be written.
    """
    import tempfile  # noqa: PLC0415 - 5 ms that readers do without

    if target.exists() and not target.is_file():  # a FIFO or /dev/stdout: nothing to replace
        target.write_bytes(content)
        return
    with tempfile.NamedTemporaryFile(
        dir=target.parent, prefix=f".{target.name}.", delete=False
    ) as file:
        written = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            # The temporary file is private, the result is not.
            written.chmod(0o666 & ~_umask() if mode is None else mode)
            written.replace(target)
        except BaseException:
            written.unlink(missing_ok=True)
            raise


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
