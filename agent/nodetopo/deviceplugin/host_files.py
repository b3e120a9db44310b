"""Small text files on the host, which others read at any moment, and paths of the host's tree.

The host's files are below a mount of this process. A symbolic link there, such as ``/var/run ->
/run``, leads to the host's ``/run``, not to this container's.
"""

import errno
import os
import stat
import tempfile
from pathlib import Path, PurePosixPath
from time import time

MAX_BYTES = 8 * 1024 * 1024
"""Most bytes read of a file; our files have some KiB for each GPU."""

_ABANDONED_S = 60.0
"""Age in seconds of a temporary file whose writer is gone; writing one takes milliseconds."""

_SUFFIX = ".tmp"
"""Readers of CDI directories take ``*.json`` and ``*.yaml`` only (CDI v1.1.0,
pkg/cdi/spec-dirs.go)."""

_MOST_LINKS = 40
"""On one path, as in the kernel (linux/namei.h, MAXSYMLINKS)."""


class HostFile:
    """One file at a fixed place, replaced as a whole and only when its text changes."""

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        """Touch nothing yet; *mode* are the permissions of the file."""
        self._path = path
        self._mode = mode

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    def content(self) -> bytes:
        """Return the content of the file, up to a byte more than :data:`MAX_BYTES`.

        Raises:
            OSError: it is missing, a link or not a regular file; the call never blocks on those.
        """
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(self._path))
            return file.read(MAX_BYTES + 1)

    def text(self) -> str | None:
        """Return the text of the file; ``None`` if there is none that can be read as text."""
        try:
            return self.content().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def write(self, text: str) -> str | None:
        """Replace the file's content by *text*; return why that failed, ``None`` after a success.

        The directory is created if it is missing. A reader finds the old text or the new one;
        after a failure it finds the old one.
        """
        if self.text() == text:
            return None
        directory, prefix = self._path.parent, f".{self._path.name}."
        try:
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
                written.replace(self._path)
            except BaseException:
                written.unlink(missing_ok=True)
                raise
        except OSError as error:
            return f"cannot write {self._path}: {error.strerror}"
        return None

    def remove(self) -> str | None:
        """Delete the file, if there is one; return why that failed, ``None`` after a success."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            return f"cannot delete {self._path}: {error.strerror}"
        return None


def resolved(root: Path, path: str) -> str | None:
    """Return *path* without links, resolved as by a process with the root *root*.

    ``None`` if it does not exist, or links form a cycle. Neither *path* nor a link leads out of
    *root*.
    """
    target = _followed(root, path)
    try:
        return target if target is not None and below(root, target).exists() else None
    except OSError:
        return None  # no permission


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
