"""Unix sockets in the kubelet's device-plugin directory: names, identity, leftovers."""

import os
import re
import socket
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from secrets import token_hex
from time import time_ns

from nodetopo.errors import InputError
from nodetopo.model.kubelet_state import OUR_SOCKETS, socket_stems

KUBELET_SOCKET = "kubelet.sock"
"""Where the kubelet serves Registration, next to the plugins' own sockets."""

MAX_PATH_BYTES = 107
"""``sun_path`` is 108 bytes with its closing zero (linux/un.h)."""

HIDDEN = "."
"""Prefix of a socket that a kubelet must not see yet: it skips such files in plugins_registry
(1.36 pkg/kubelet/pluginmanager/pluginwatcher)."""

_LONGEST_SUFFIX = "-4194304-00000000.sock"
"""4194304 is the largest process id (PID_MAX_LIMIT, linux/threads.h)."""

SETTLED_NS = 100_000_000
"""Ten times the longest kernel tick (CONFIG_HZ=100)."""

Identity = tuple[int, int, int]
"""Device, inode, ctime in ns: a recreated file differs, even if the inode is reused."""


_serials = count()


def new_instance() -> str:
    """Return the part common to one plugin's socket names, unique to that plugin.

    The process id alone is not enough: in a container it is the same after each start.
    """
    return f"{os.getpid()}-{token_hex(3)[:5]}"


def endpoint_name(resource: str, directory: Path, instance: str) -> str:
    """Return a new socket file name for *resource*, of the plugin *instance*.

    It names the resource if the path in *directory* allows that length. No name is used twice: a
    kubelet that still holds the old connection refuses the name (1.37, pull request 135437).
    """
    return f"{_stem(resource, directory)}-{instance}{next(_serials) & 0xFFF:03x}.sock"


def check_path_lengths(resource: str, directories: Iterable[Path]) -> None:
    """Check that a socket for *resource* fits into each of *directories*."""
    for directory in directories:
        longest = _longest_path(_stem(resource, directory), directory)
        length = len(os.fsencode(longest))
        if length > MAX_PATH_BYTES:
            raise InputError(
                f"the socket path {longest} has {length} bytes; a unix socket may have "
                f"{MAX_PATH_BYTES}",
                "choose a shorter path for the directory",
            )


def identity(path: Path) -> Identity | None:
    """Return an identity that tells *path* from earlier files; ``None`` without a file."""
    try:
        status = path.stat()
    except OSError:
        return None  # missing, or its directory is: for a poller both are "not now"
    return status.st_dev, status.st_ino, status.st_ctime_ns


class Entries:
    """Notice cheaply that an entry of *directory* was created or removed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: tuple[int, ...] | None = None

    def may_have_changed(self) -> bool:
        """Return whether an entry might have been created or removed since the last call.

        The kernel stamps directories with its tick (1…10 ms), so a second change in the tick of the
        first leaves no trace; a stamp younger than :data:`SETTLED_NS` proves nothing.
        """
        try:
            status = self._directory.stat()
        except OSError:
            self._seen = None
            return True
        before, self._seen = self._seen, (status.st_dev, status.st_ino, status.st_mtime_ns)
        is_settled = time_ns() - status.st_mtime_ns > SETTLED_NS
        return self._seen != before or not is_settled


def is_deleted_directory(directory: Path) -> bool:
    """Return whether *directory* was deleted, and exists only because a mount, say, holds it."""
    try:
        return directory.stat().st_nlink == 0
    except OSError:
        return False


def is_listening(path: Path) -> bool:
    """Return whether a process accepts connections on the socket *path*."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except BlockingIOError:
            return True  # its queue is full
        except OSError:
            return False
        return True


def remove_leftovers(resource: str, directory: Path) -> tuple[str, ...]:
    """Remove our abandoned sockets for *resource*; return their names.

    The test is a connection, not the process id in the name, which is meaningless in another
    container.
    """
    removed = []
    for _, path in _ours(resource, directory):
        if not is_listening(path):
            with suppress(OSError):
                path.unlink()
                removed.append(path.name)
    return tuple(removed)


def instances(resource: str, directory: Path) -> Mapping[str, tuple[Path, ...]]:
    """Return the plugins of this program that have sockets for *resource*, dead ones included.

    Names of older releases have no part that all sockets of a plugin share; there each socket
    counts as a plugin.
    """
    found: dict[str, tuple[Path, ...]] = defaultdict(tuple)
    for instance, path in _ours(resource, directory):
        found[instance] += (path,)
    return found


def foreign(directory: Path) -> tuple[Path, ...]:
    """Return the other programs' sockets in *directory*, without the kubelet's, by name."""
    return tuple(
        path
        for path in all_in(directory)
        if path.name != KUBELET_SOCKET and not path.name.startswith((OUR_SOCKETS, HIDDEN))
    )


def remove_all_sockets(directory: Path) -> None:
    """Remove every socket in *directory*, like a starting kubelet."""
    for path in all_in(directory):
        path.unlink(missing_ok=True)


def _ours(resource: str, directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield each of our sockets for *resource* with the plugin that made it."""
    stem = re.escape(_stem(resource, directory))
    ours = re.compile(rf"\.?{stem}-([0-9]+-[0-9a-f]{{5}})[0-9a-f]{{3}}\.sock")
    for path in all_in(directory):
        if match := ours.fullmatch(path.name):
            yield match[1], path


def all_in(directory: Path) -> tuple[Path, ...]:
    """Return every socket in *directory*, by name; none where it cannot be read."""
    try:
        paths = sorted(directory.iterdir())
    except OSError:
        return ()
    existing = []
    for path in paths:
        with suppress(OSError):
            if stat.S_ISSOCK(path.lstat().st_mode):
                existing.append(path)
    return tuple(existing)


def _stem(resource: str, directory: Path) -> str:
    """Return how the names of sockets for *resource* in *directory* begin."""
    stem, shortened = socket_stems(resource)
    fits = len(os.fsencode(_longest_path(stem, directory))) <= MAX_PATH_BYTES
    return stem if fits else shortened


def _longest_path(stem: str, directory: Path) -> Path:
    return directory.absolute() / (HIDDEN + stem + _LONGEST_SUFFIX)
