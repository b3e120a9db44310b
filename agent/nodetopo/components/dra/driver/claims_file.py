"""The file of prepared claims, shared by two of our processes during an upgrade.

It is on tmpfs: a boot ends every container, and the kubelet prepares claims again.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.state_file import StateFile
from nodetopo.errors import UnreadableError
from nodetopo.model.notice import Notice
from nodetopo.model.state_document import opened, sealed

SCHEMA = "nodetopo-claims/v1"

LOCK = "claims.lock"
"""Beside the file, which is replaced as a whole and cannot carry the lock itself."""

LOCK_S = 5.0
"""How long a change waits for the other process; a killed process loses its lock at once."""

POLL_S = 0.01


class PreparedDevice(Struct, frozen=True, kw_only=True):
    """A device of a prepared claim."""

    request: str
    pool: str
    device: str
    uuids: tuple[str, ...]  # of the GPUs or the MIG device behind it
    gpus: tuple[str, ...]  # ids of the GPUs behind it
    cdi: tuple[str, ...]  # names by which the container runtime resolves it
    is_part: bool = False  # a MIG device
    is_admin: bool = False  # for administration, alongside other users of the device


class PreparedClaim(Struct, frozen=True, kw_only=True):
    """A claim that containers can use, with its devices in the allocation's order."""

    uid: str
    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...]


class SavedClaims(Struct, frozen=True, kw_only=True):
    """The content of the file."""

    claims: tuple[PreparedClaim, ...]
    is_complete: bool = True  # no earlier claim can be missing, because a file was lost


def claims_document(path: Path, pool: str) -> StateFile[SavedClaims]:
    """Return the file *path* of the claims of *pool*."""
    about = {"pool": pool}
    return StateFile(
        path,
        what="prepared claims",
        loss="no claim gets a GPU that a pod may have by another one",
        encode=lambda content: sealed(SCHEMA, content, about),
        decode=lambda text: opened(SavedClaims, text, SCHEMA, about),
        mode=0o600,
    )


class ClaimsFile:
    """The prepared claims of one node in the file *path*; for one thread at a time."""

    def __init__(self, path: Path, pool: str) -> None:
        self.is_complete = True  # all prepared claims are known
        self._file = claims_document(path, pool)
        self._lock = path.with_name(LOCK)
        self._seen: sockets.Identity | None = None
        self._is_known = False
        self._is_newer = False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from changing the file."""
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

        ``None`` if it has not, or if its content is absent or unknown: the claims in memory then
        stay in force.
        """
        now = sockets.identity(self._file.path)
        if now is not None and now == self._seen:
            return None
        # The kubelet repeats each claim at every container start.
        saved = self._file.load(is_known=self._is_known)
        self._seen = None if saved.is_unread else now
        self._is_newer = saved.is_newer
        if saved.content is not None:
            self._is_known, self.is_complete = True, saved.content.is_complete
            return {claim.uid: claim for claim in saved.content.claims}
        if saved.is_newer or (saved.problem is not None and not self._is_known):
            self.is_complete = False
        self._is_known = self._is_known or saved.is_absent
        return None

    def notices(self) -> tuple[Notice, ...]:
        """Return the notice about the file since the last call, and forget it."""
        return self._file.notices()

    def write(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Replace the content of the file, unless a newer release wrote it.

        A file that could not be read is read first, by :meth:`news`.
        """
        content = SavedClaims(claims=tuple(claims.values()), is_complete=self.is_complete)
        problem = None if self._is_newer else self._file.write(content)
        if problem is not None:
            raise UnreadableError(
                problem, "see whether the disk fails or is full, or the directory is gone"
            )
        self._is_known = True
        self._seen = sockets.identity(self._file.path)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a file system without locks
        raise UnreadableError(
            f"cannot lock {LOCK}: {error.strerror}", "keep the health file on a local file system"
        ) from error
    return True
