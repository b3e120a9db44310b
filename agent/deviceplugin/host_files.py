"""A small text file on the host that others read at any moment: whole or not at all."""

import errno
import os
import stat
import tempfile
from pathlib import Path, PurePosixPath
from time import time

# Paths of another root: what a symbolic link in the host's tree means to the host.
#
# The host's files lie below a mount of this process. ``/var/run -> /run`` leads to the host's
# ``/run`` there, not to this container's.

_MOST_LINKS = 40
"""On one path, as the kernel has it (linux/namei.h, MAXSYMLINKS)."""


def resolved(root: Path, path: str) -> str | None:
    """Return *path* without links, as a process whose root is *root* would follow them.

    ``None`` where it does not exist, or links go in circles. Neither *path* nor a link leads out
    of *root*: above it is nothing.
    """
    found = _followed(root, path)
    return found if found is not None and _exists(below(root, found)) else None


def seen(root: Path, path: Path) -> Path:
    """Return where this process finds *path* of *root*, which need not exist.

    Where links go in circles it is the path as it was given.
    """
    found = _followed(root, str(path))
    return below(root, str(path) if found is None else found)


def below(root: Path, path: str) -> Path:
    """Return the absolute *path* put under *root*, links and all."""
    return root / path.removeprefix("/")


def _followed(root: Path, path: str) -> str | None:
    ahead = list(PurePosixPath(path).parts[1:])
    done: list[str] = []
    links = 0
    while ahead:
        part = ahead.pop(0)
        if part == "..":
            done = done[:-1]
            continue
        target = link_target(root.joinpath(*done, part))
        if target is None:
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


def link_target(path: Path) -> str | None:
    """Return what the link *path* says; ``None`` if it is none."""
    try:
        return str(path.readlink())
    except OSError:
        return None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # not for us to look at


MAX_BYTES = 8 * 1024 * 1024
"""Most that is read of a file; ours hold some KiB for each GPU."""


_ABANDONED_S = 60.0
"""Age in seconds of a temporary file whose writer is gone; writing one takes milliseconds."""


_ENDING = ".tmp"
"""Readers of CDI directories take ``*.json`` and ``*.yaml`` only (CDI v1.1.0,
pkg/cdi/spec-dirs.go)."""


class HostFile:
    """One file at a fixed place, replaced as a whole and only when its text changes."""

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        """Touch nothing yet; *mode* is who may do what with the file."""
        self._path = path
        self._mode = mode

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    def content(self) -> bytes:
        """Return what the file holds, up to a byte more than :data:`MAX_BYTES`.

        Raises:
            OSError: there is none, or what is there is a link or no plain file; it is not waited
                for then.
        """
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(self._path))
            return file.read(MAX_BYTES + 1)

    def text(self) -> str | None:
        """Return what the file holds; ``None`` where there is none that can be read as text."""
        try:
            return self.content().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def write(self, text: str) -> str | None:
        """Make *text* what the file holds; return why that failed, ``None`` if it did not.

        The directory is made if it is missing. A reader finds the old text or the new one; after
        a failure there is the old one.
        """
        if self.text() == text:
            return None
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._clear()
            self._replace(text)
        except OSError as error:
            return f"cannot write {self._path}: {error.strerror}"
        return None

    def remove(self) -> str | None:
        """Delete the file, if there is one; return why that failed, ``None`` if it did not."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            return f"cannot delete {self._path}: {error.strerror}"
        return None

    def _replace(self, text: str) -> None:
        number, name = tempfile.mkstemp(_ENDING, self._beginning, self._path.parent)
        written = Path(name)
        try:
            with open(number, "w", encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
                file.write(text)
                file.flush()
                os.fchmod(number, self._mode)
                os.fsync(number)
            written.replace(self._path)
        except BaseException:
            written.unlink(missing_ok=True)
            raise

    def _clear(self) -> None:
        """Delete temporary files of this file's that a writer left when it was killed."""
        for left in self._path.parent.iterdir():
            is_ours = left.name.startswith(self._beginning) and left.name.endswith(_ENDING)
            if is_ours and time() - left.lstat().st_mtime > _ABANDONED_S:
                left.unlink(missing_ok=True)

    @property
    def _beginning(self) -> str:
        return f".{self._path.name}."
