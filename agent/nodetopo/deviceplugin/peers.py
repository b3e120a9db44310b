"""The users connected to our sockets, from the kernel: SO_PEERCRED (unix(7)).

gRPC for Python does not identify a servicer's peer on a unix socket, and cannot adopt an accepted
connection. The connections are descriptors of this process, each with the name of its listening
socket. They are checked when a call arrives; a foreign user's connection is shut down, and the call
is refused.
"""

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock

import structlog

ROOT = 0
"""The kubelet's user."""

_CREDENTIALS = struct.Struct("3i")
"""``struct ucred`` of sys/socket.h: process, user, group."""

_ALL_USERS = ("0", "0", "4294967295")
"""``/proc/self/uid_map`` where every user is mapped to itself (user_namespaces(7))."""

DESCRIPTORS = Path("/proc/self/fd")
UID_MAP = Path("/proc/self/uid_map")
OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")


def trusted_users(uid_map: Path = UID_MAP, overflow_uid: Path = OVERFLOW_UID) -> frozenset[int]:
    """Return the users that can call: root and our user.

    In a user namespace (``hostUsers: false``) the host's root has no uid. The kernel shows it, like
    every other outside user, as the overflow user.
    """
    users = {ROOT, os.geteuid()}
    with suppress(OSError, ValueError):
        if tuple(uid_map.read_text("ascii").split()) != _ALL_USERS:
            users.add(int(overflow_uid.read_text("ascii")))
    return frozenset(users)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the peer's process and user.

    The process is 0 if it is outside this PID namespace.

    Raises:
        OSError: *connection* is no unix socket.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(raw)
    return process, user


class Peers:
    """The peers of the socket bound at *path*, even if its file has moved.

    Args:
        users: allowed to call; ``None``: :func:`trusted_users`.
        descriptors: the kernel's directory of this process's descriptors. If it cannot be read, no
            user is refused, and only the mode of the socket file protects it.
    """

    def __init__(
        self,
        path: Path,
        users: frozenset[int] | None = None,
        *,
        descriptors: Path = DESCRIPTORS,
    ) -> None:
        self._name = _plain(os.fspath(path.absolute()))
        self._users = trusted_users() if users is None else users
        self._descriptors = descriptors
        self._lock = Lock()
        self._reported: set[int] = set()

    def are_trusted(self) -> bool:
        """Shut down every foreign peer's connection; return whether there was none."""
        strangers = set()
        for connection in self._connections():
            with connection:
                _, user = peer_of(connection)
                if user not in self._users:
                    strangers.add(user)
                    with suppress(OSError):  # it hung up first
                        connection.shutdown(socket.SHUT_RDWR)
        self._report(strangers)
        return not strangers

    def _report(self, strangers: set[int]) -> None:
        """Log each user once: who can connect could fill the log."""
        with self._lock:
            new = strangers - self._reported
            self._reported |= new
        for user in sorted(new):
            structlog.get_logger().warning(
                "peer refused", socket=self._name, user=user, trusted=sorted(self._users)
            )

    def _connections(self) -> Iterator[socket.socket]:
        """Yield the sockets of this process with our name, including the listening one.

        Each is a duplicate, because a descriptor number can be reused by another connection. The
        listening socket has our own user.
        """
        try:
            numbers = os.listdir(self._descriptors)  # noqa: PTH208 - a third of the time
        except OSError:
            return
        for number in map(int, numbers):
            with suppress(OSError):  # closed meanwhile
                if not stat.S_ISSOCK(os.fstat(number).st_mode):
                    continue
                connection = socket.fromfd(number, socket.AF_UNIX, socket.SOCK_STREAM)
                name = connection.getsockname()  # bytes: an abstract one
                if isinstance(name, str) and _plain(name) == self._name:
                    yield connection
                else:
                    connection.close()


def _plain(name: str) -> str:
    """Return *name* with one slash at its begin: gRPC binds ``unix:///a`` as ``///a``."""
    return "/" + name.lstrip("/")
