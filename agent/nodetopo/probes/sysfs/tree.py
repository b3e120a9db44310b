"""A root directory read through a cache: each path once a scan, or once for many scans.

All probes read `/sys`, `/proc` and the host's files through a :class:`Tree`. It counts the reads
and keeps their results, and so has three answers: the cost of a scan, the paths to reread, and the
content of an archive of this node.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from errno import EINVAL, ENOTSUP, ESTALE
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeAlias, TypeVar

from msgspec import Struct

MAX_BYTES = 4 * 1024 * 1024
"""Most that is read of one file; `/proc/cpuinfo` of 512 CPUs is under 1 MiB."""


_CHUNK_BYTES = 64 * 1024
"""Of one read. Files under `/proc/sys` refuse a read of KMALLOC_MAX_SIZE, 4 MiB on x86, with
ENOMEM (kernel fs/proc/proc_sysctl.c, proc_sys_call_handler)."""


LINK, FOLDER, FILE, FIFO = "link", "folder", "file", "fifo"

KINDS: Mapping[int, str] = MappingProxyType(
    {stat.S_IFLNK: LINK, stat.S_IFDIR: FOLDER, stat.S_IFREG: FILE, stat.S_IFIFO: FIFO}
)
"""Names of :attr:`Act.STATUS` for files other than device nodes; anything else is ``other``."""


class Act(Enum):
    """The fact read about a path; the values describe the results."""

    CONTENT = "bytes"
    NAMES = "the sorted names in a directory"
    REAL = "the real path, relative to the root"
    LINK = "the text of a symbolic link"
    FOLDER = "whether it is a directory itself, not a link to one"
    STATUS = "what is there itself: a device node with its numbers, a link, a folder, a file"
    MODIFIED = "when it was last written to, in nanoseconds of the epoch"


class Refusal(Struct, frozen=True):
    """A read that failed: the system's error number, or 0 for a place outside the root."""

    errno: int


Key: TypeAlias = tuple[Act, str]
Outcome: TypeAlias = bytes | tuple[str, ...] | str | bool | int | Refusal

T = TypeVar("T")


class Tree:
    """The files below *root*; paths are relative to it, ``.`` is the root itself.

    Args:
        changing: paths whose content can differ at the next scan; all other content is kept until
            :meth:`forget`. ``None``: no path is read twice.
    """

    def __init__(self, root: Path, changing: re.Pattern[str] | None = None) -> None:
        self.root = root
        self.reads = 0
        self._changing = changing
        self._known: dict[Key, Outcome] = {}
        self._fresh: set[Key] = set()
        self._watches: list[dict[Key, Outcome]] = []

    @classmethod
    def of(cls, root: "Root") -> "Tree":
        """Return *root* if it is a tree already, else a new tree of that directory."""
        return root if isinstance(root, Tree) else Tree(root)

    @property
    def known(self) -> Mapping[Key, Outcome]:
        """Everything read and not forgotten since."""
        return self._known

    def content(self, path: str) -> bytes:
        """Return the bytes of a regular file.

        Raises:
            OSError: it cannot be read; ENOTSUP where it is neither file nor directory, ESTALE
                where the host has another one by now than a container that mounts it.
        """
        return self._answer(Act.CONTENT, path, bytes)

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a directory.

        Raises:
            OSError: it cannot be listed.
        """
        return self._answer(Act.NAMES, path, tuple)

    def real(self, path: str) -> str:
        """Return where *path* really is, relative to the root.

        Raises:
            OSError: it is not there.
            ValueError: it leads out of the tree, or in a circle.
        """
        return self._answer(Act.REAL, path, str)

    def link(self, path: str) -> str:
        """Return the text of a symbolic link.

        Raises:
            OSError: it is no link, or hidden from us.
        """
        return self._answer(Act.LINK, path, str)

    def is_folder(self, path: str) -> bool:
        """Return whether *path* is a directory, and not a link to one.

        Raises:
            OSError: it is not there.
        """
        return self._answer(Act.FOLDER, path, bool)

    def status(self, path: str) -> str:
        """Return what *path* is itself: ``c 195:0``, ``b 8:0``, or one of the words of KINDS.

        Raises:
            OSError: it is not there.
        """
        return self._answer(Act.STATUS, path, str)

    def modified(self, path: str) -> int:
        """Return when the file that *path* leads to was last written to, in ns of the epoch.

        Raises:
            OSError: it is not there.
        """
        return self._answer(Act.MODIFIED, path, int)

    def renew(self) -> Self:
        """Begin another scan: changing paths are reread on demand."""
        self._fresh.clear()
        self.reads = 0
        return self

    def forget(self, below: str = "") -> None:
        """Drop earlier scans' results for paths that begin with *below*."""
        for key in [key for key in self._known if key[1].startswith(below)]:
            if key not in self._fresh:
                del self._known[key]

    @contextmanager
    def watched(self) -> Iterator[Mapping[Key, Outcome]]:
        """Collect the reads of this tree inside the block, with their outcomes."""
        watch: dict[Key, Outcome] = {}
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)

    def differs(self, watch: Mapping[Key, Outcome]) -> bool:
        """Return whether any watched read has another outcome in this scan."""
        return any(self.outcome(key) != outcome for key, outcome in watch.items())

    def outcome(self, key: Key) -> Outcome:
        """Return the outcome of *key* in this scan, from the disk if need be."""
        is_kept = key in self._known and (key in self._fresh or not self.may_change(key))
        if not is_kept:
            self.reads += 1
            self._known[key] = _read(self.root, *key)
            self._fresh.add(key)
        return self._known[key]

    def may_change(self, key: Key) -> bool:
        """Return whether *key* is read again in each scan."""
        return self._changing is not None and self._changing.fullmatch(key[1]) is not None

    def _answer(self, act: Act, path: str, kind: type[T]) -> T:
        key = (act, path)
        outcome = self.outcome(key)
        for watch in self._watches:
            watch[key] = outcome
        if isinstance(outcome, kind):
            return outcome
        assert isinstance(outcome, Refusal)
        if outcome.errno:
            raise OSError(outcome.errno, os.strerror(outcome.errno))
        raise ValueError("leads out of the tree, or in a circle")


Root: TypeAlias = Path | Tree
"""A directory to read: by its path, or as a tree that other probes read too."""


class Memo:
    """Caches the results of functions of *trees*, with all their reads.

    A function is called again when one of its reads has a new outcome, so its result is always up
    to date with the trees.
    """

    def __init__(self, *trees: Tree) -> None:
        self._trees = trees
        self._kept: dict[str, _Result] = {}

    def part(self, name: str, inputs: object, read: Callable[[], T]) -> T:
        """Return ``read()``, from memory where neither *inputs* nor its reads differ."""
        kept = self._kept.get(name)
        if kept is not None and kept.inputs == inputs:
            pairs = zip(self._trees, kept.watches, strict=True)
            if not any(tree.differs(watch) for tree, watch in pairs):
                known: T = kept.value
                return known
        with ExitStack() as stack:
            watches = tuple(stack.enter_context(tree.watched()) for tree in self._trees)
            result = read()
        self._kept[name] = _Result(inputs, result, watches)
        return result


class _Result(Struct, frozen=True):
    """A result computed from files, and the files that it depends on."""

    inputs: object
    value: Any
    watches: tuple[Mapping[Key, Outcome], ...]


def _read(root: Path, act: Act, path: str) -> Outcome:
    place = root / path
    try:
        match act:
            case Act.CONTENT:
                return _content(place)
            case Act.NAMES:
                return tuple(sorted(entry.name for entry in place.iterdir()))
            case Act.REAL:
                return place.resolve(strict=True).relative_to(root.resolve()).as_posix()
            case Act.LINK:
                return str(place.readlink())
            case Act.FOLDER:
                return stat.S_ISDIR(place.lstat().st_mode)
            case Act.STATUS:
                return _status(place.lstat())
            case Act.MODIFIED:
                return place.stat().st_mtime_ns
    except OSError as error:
        return Refusal(error.errno or 0)
    except (ValueError, RuntimeError):
        # RuntimeError: how Python 3.11 and 3.12 report a loop of links.
        return Refusal(0 if act is Act.REAL else EINVAL)


def _status(status: os.stat_result) -> str:
    for letter, is_kind in (("c", stat.S_ISCHR), ("b", stat.S_ISBLK)):
        if is_kind(status.st_mode):
            return f"{letter} {os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return KINDS.get(stat.S_IFMT(status.st_mode), "other")


def _content(place: Path) -> bytes:
    # Without O_NONBLOCK, opening a FIFO that has no writer would wait for ever.
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a directory fails
            raise OSError(ENOTSUP, os.strerror(ENOTSUP))
        # A mounted file that was replaced: the path's target no longer has a name.
        if status.st_nlink == 0 and os.path.samestat(status, place.stat()):
            raise OSError(ESTALE, os.strerror(ESTALE))
        content = bytearray()
        while len(content) < MAX_BYTES:
            chunk = os.read(descriptor, min(MAX_BYTES - len(content), _CHUNK_BYTES))
            if not chunk:
                break
            content += chunk
        return bytes(content)
    finally:
        os.close(descriptor)
