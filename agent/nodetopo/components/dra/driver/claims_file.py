"""The file of prepared claims, shared by two of our processes during an upgrade.

It is on tmpfs: a boot ends every container, and the kubelet prepares claims again.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.host_files import HostFile
from nodetopo.errors import DecodeError, UnreadableError
from nodetopo.model.codec import load_json
from nodetopo.model.plain import from_plain, to_plain

SCHEMA = "nodetopo-claims/v1"

LOCK = "claims.lock"
"""Beside the file, which is replaced as a whole and cannot carry the lock itself."""

LOCK_S = 5.0
"""How long a change waits for the other process; a killed process loses its lock at once."""

POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """A device of a prepared claim.

    Attributes:
        uuids: of the GPUs or the MIG device behind it.
        gpus: ids of the GPUs behind it.
        cdi: the names by which the container runtime resolves it.
        is_part: whether it is a MIG device.
        is_admin: whether it is for administration, alongside other users of the device.
    """

    request: str
    pool: str
    device: str
    uuids: tuple[str, ...]
    gpus: tuple[str, ...]
    cdi: tuple[str, ...]
    is_part: bool = False
    is_admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """A claim that containers can use, with its devices in the allocation's order."""

    uid: str
    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """The content of the file."""

    schema: str
    pool: str
    claims: tuple[PreparedClaim, ...]


class ClaimsFile:
    """The prepared claims of one node in the file *path*; for one thread at a time."""

    def __init__(self, path: Path, pool: str) -> None:
        """Read nothing yet."""
        self._file = HostFile(path, mode=0o600)
        self._lock = path.with_name(LOCK)
        self._pool = pool
        self._seen: sockets.Identity | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from changing the file.

        Raises:
            UnreadableError: the lock cannot be had.
        """
        try:
            self._lock.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnreadableError(
                f"cannot open {self._lock}: {error.strerror}",
                "see whether the disk is full, or the directory is gone",
            ) from error
        try:
            deadline = time.monotonic() + LOCK_S
            while not _is_locked(descriptor):
                if time.monotonic() > deadline:
                    raise UnreadableError(
                        f"another process has held {self._lock} for {LOCK_S:.0f} s",
                        "end the process that hangs",
                    )
                time.sleep(POLL_S)
            yield
        finally:
            os.close(descriptor)  # which gives the lock back

    def news(self) -> dict[str, PreparedClaim] | None:
        """Return the claims by uid if the file has changed since it was last read or written.

        ``None`` if it has not, or if the file is missing or invalid: the claims in memory then stay
        in force.
        """
        now = sockets.identity(self._file.path)
        if now is None or now == self._seen:
            return None
        self._seen = now
        content = self._file.read().text
        if content is None:
            return None
        try:
            document = from_plain(_Document, load_json(content), [])
        except DecodeError as error:
            problem = str(error)
        else:
            if document.schema == SCHEMA and document.pool == self._pool:
                return {claim.uid: claim for claim in document.claims}
            problem = f"{document.schema} of the pool {document.pool}"
        # The kubelet repeats each claim at every container start.
        structlog.get_logger().error("prepared claims file invalid", problem=problem)
        return None

    def write(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Replace the content of the file.

        Raises:
            UnreadableError: the file cannot be written, and is unchanged.
        """
        document = _Document(schema=SCHEMA, pool=self._pool, claims=tuple(claims.values()))
        text = json.dumps(to_plain(document), indent=1) + "\n"
        if (problem := self._file.write(text)) is not None:
            raise UnreadableError(problem, "see whether the disk is full, or the directory is gone")
        self._seen = sockets.identity(self._file.path)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
