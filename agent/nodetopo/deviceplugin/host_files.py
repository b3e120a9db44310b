"""Small text files on the host, which others read at any moment, and paths of the host's tree.

The host's files are below a mount of this process. A symbolic link there, such as ``/var/run ->
/run``, leads to the host's ``/run``, not to this container's.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from time import time

from msgspec import Struct

MAX_BYTES = 8 * 1024 * 1024
"""Most bytes read of a file; our files have some KiB for each GPU."""

_ABANDONED_S = 60.0
"""Age in seconds of a temporary file whose writer is gone; writing one takes milliseconds."""

_SUFFIX = ".tmp"
"""Readers of CDI directories take ``*.json`` and ``*.yaml`` only (CDI v1.1.0,
pkg/cdi/spec-dirs.go)."""

_MOST_LINKS = 40
"""On one path, as in the kernel (linux/namei.h, MAXSYMLINKS)."""


class FileContent(Struct, frozen=True, kw_only=True):
    """What a file holds, or why that is not known."""

    data: bytes | None = None  # up to a byte more than `MAX_BYTES`; None without a usable file
    problem: str | None = None  # why an existing file cannot be used, a clause

    @property
    def is_absent(self) -> bool:
        """Whether there is no file: a missing directory has none, and a closed one might."""
        return self.data is None and self.problem is None

    @property
    def text(self) -> str | None:
        """The content as text; ``None`` if there is none that can be read as text."""
        try:
            return None if self.data is None else self.data.decode("utf-8")
        except UnicodeDecodeError:
            return None


class HostFile:
    """One file at a fixed place, replaced as a whole and only when its text changes.

    No failure of the file system is raised: each ends as the answer of the call.
    """

    def __init__(self, path: Path, *, mode: int = 0o644, has_directory: bool = False) -> None:
        """Touch nothing yet.

        Args:
            has_directory: whether the directory is another program's, and never created here.
        """
        self.path = path  # where the file is
        self._mode = mode
        self._has_directory = has_directory

    def read(self) -> FileContent:
        """Return the content of the file.

        A link, or anything but a regular file, cannot be used; the call never blocks on those.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "not a regular file")  # noqa: TRY301
                return FileContent(data=file.read(MAX_BYTES + 1))
        except (FileNotFoundError, NotADirectoryError):
            return FileContent()
        except OSError as error:
            return FileContent(problem=f"cannot read {self.path}: {error.strerror}")

    def write(self, text: str, *, pause: Callable[[], None] = lambda: None) -> str | None:
        """Replace the file's content by *text*; return why that failed, ``None`` after a success.

        A missing directory is created. A reader finds the old text or the new one; after a failure
        it finds the old one. *pause* is called before the new one takes its place.
        """
        import tempfile  # noqa: PLC0415 - with shutil and lzma, for those who write

        if self.read().text == text:
            return None
        directory, prefix = self.path.parent, f".{self.path.name}."
        try:
            if not self._has_directory:
                directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            for left in directory.iterdir():  # by a writer that was killed
                is_ours = left.name.startswith(prefix) and left.name.endswith(_SUFFIX)
                if is_ours and time() - left.lstat().st_mtime > _ABANDONED_S:
                    left.unlink(missing_ok=True)
            descriptor, name = tempfile.mkstemp(_SUFFIX, prefix, directory)
            written = Path(name)
            try:
                with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
                    file.write(text)
                    file.flush()
                    os.fchmod(descriptor, self._mode)
                    os.fsync(descriptor)
                pause()
                written.replace(self.path)
            except BaseException:
                with suppress(OSError):
                    written.unlink(missing_ok=True)
                raise
        except OSError as error:
            return f"cannot write {self.path}: {error.strerror}"
        return None

    def keep_as(self, path: Path) -> str | None:
        """Give the content the name *path* too; return why that failed.

        The file keeps its own name, so that it is never missing. What has the name *path* now stays
        until the content can take its place.
        """
        new = path.with_name(f".{self.path.name}.kept{_SUFFIX}")
        try:
            new.unlink(missing_ok=True)
            try:
                new.hardlink_to(self.path)
            except OSError:  # FAT has no hard links, and fs.protected_hardlinks can forbid one
                new.touch(self._mode)
                new.write_bytes(self.path.read_bytes())
            new.replace(path)
        except OSError as error:
            return f"cannot keep {self.path} as {path}: {error.strerror}"
        finally:
            with suppress(OSError):  # a rename between two names of one file leaves both
                new.unlink(missing_ok=True)
        return None

    def remove(self) -> str | None:
        """Delete the file, if there is one; return why that failed, ``None`` after a success."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            return f"cannot delete {self.path}: {error.strerror}"
        return None


def is_directory(path: Path) -> bool:
    """Return whether *path* is a directory that can be seen.

    ``Path.is_dir`` raises for one in a closed directory.
    """
    return os.path.isdir(path)  # noqa: PTH112 - never raises OSError


def exists(path: Path) -> bool:
    """Return whether there is a *path* that can be seen.

    ``Path.exists`` raises for one in a closed directory.
    """
    return os.path.exists(path)  # noqa: PTH110 - never raises OSError


def resolved(root: Path, path: str) -> str | None:
    """Return *path* without links, resolved as by a process with the root *root*.

    ``None`` if it does not exist, or links form a cycle. Neither *path* nor a link leads out of
    *root*.
    """
    target = _followed(root, path)
    return target if target is not None and exists(below(root, target)) else None


def seen(root: Path, path: Path) -> Path:
    """Return where this process finds *path* of *root*, which need not exist.

    If links form a cycle it is the path as given.
    """
    return below(root, _followed(root, str(path)) or str(path))


def below(root: Path, path: str) -> Path:
    """Return the absolute *path* put under *root*, links and all."""
    return root / path.removeprefix("/")


def _followed(root: Path, path: str) -> str | None:
    """Return *path* of *root* without links, existing or not; ``None`` if links form a cycle."""
    ahead = list(PurePosixPath(path).parts[1:])
    done: list[str] = []
    base = "" if str(root) == "/" else str(root)
    links = 0
    while ahead:
        part = ahead.pop(0)
        if part == "..":
            done = done[:-1]
            continue
        try:
            # Not Path.readlink: this is done some thousand times a scan.
            target = os.readlink("/".join((base, *done, part)))  # noqa: PTH115
        except OSError:  # no link, or nothing at all
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        parts = PurePosixPath(target).parts
        if target.startswith("/"):
            done, parts = [], parts[1:]
        ahead = [*parts, *ahead]
    return "/" + "/".join(done)
