"""Files that a command writes: whole or not at all."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nodetopo.cli.files import STDIO
from nodetopo.cli.output import say
from nodetopo.errors import InputError


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
    """Write *content* to the file *name*, readable only by its owner, or to standard output.

    The write is atomic.
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
    """Check that :func:`write_directory` can write the directory *name*."""
    target = Path(name)
    try:
        is_free = not os.path.lexists(name) or (target.is_dir() and not any(target.iterdir()))
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}", "name a new directory") from None
    if name == STDIO or not is_free:
        what = "is no directory" if not target.is_dir() else "is not empty"
        raise InputError(f"{name} {what}", "name a new directory")


def write_directory(name: str, files: Mapping[str, str]) -> None:
    """Write the directory *name* with *files*, by file name; it appears whole or not at all."""
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
    """Write *content* to a temporary file alongside *target*, then rename it.

    Args:
        target: the file.
        content: all of it.
        mode: its permissions; ``None`` for the default by the umask.

    Raises:
        OSError: the destination cannot be written.
    """
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
