"""Claims that are prepared: what containers with them are given, kept over restarts.

The kubelet asks for the same claim again and again: for each pod that shares it, after each of its
own restarts, and after an answer that was lost. So a prepared claim is answered from memory, and
kept in a file that is written before the answer: a daemon that is killed in between has at most
written what the kubelet asks for again.

The file is on tmpfs: a boot ends every container, and the kubelet prepares claims anew.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from types import MappingProxyType
from typing import TypeAlias

import structlog

from agent.deviceplugin.host_files import HostFile
from agent.dra.pool import BackingDevices
from agent.draplugin.claims import AllocatedDevice, ClaimReference, ReadClaim
from agent.errors import DecodeError, InputError, UnreadableError
from agent.model.codec import load_json
from agent.model.plain import from_plain, to_plain

SCHEMA = "nodetopo-claims/v1"

GIVE_UP_S = 20.0
"""How long a claim waits for the one before it to give its GPUs up. A pod that is deleted without
grace is gone, and its claim free, before the kubelet has ended its containers; an error instead of
the wait would cost the next pod a minute. The kubelet waits 45 s for an answer (1.36
pkg/kubelet/cm/dra/plugin)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """A device of a prepared claim.

    Attributes:
        uuids: what it stands for, GPUs or a MIG device.
        gpus: ids of the GPUs behind it.
        cdi: the names by which the container runtime resolves it.
        is_part: whether it is a MIG device.
        is_admin: whether it is for administration, beside others who use it.
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
    """A claim that containers may use, with its devices in the allocation's order."""

    uid: str
    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """What the file holds."""

    schema: str
    pool: str
    claims: tuple[PreparedClaim, ...]


Backing: TypeAlias = Callable[[str], BackingDevices | None]
"""Returns what is behind a device of our pool; ``None`` where there is no such device."""

CdiNames: TypeAlias = Callable[[Collection[str]], tuple[str, ...]]
"""Returns the CDI names for GPUs and MIG devices by UUID.

Raises UnreadableError for one that no specification on the host defines.
"""


class PreparedClaims:
    """The prepared claims of one node; any thread may call it."""

    def __init__(
        self,
        path: Path | None,
        pool: str,
        read: ReadClaim,
        backing: Backing,
        cdi_names: CdiNames,
        *,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        """Take up the claims of *pool* in the file *path*; ``None`` keeps them in memory."""
        self._file = None if path is None else HostFile(path, mode=0o600)
        self._pool = pool
        self._read = read
        self._backing = backing
        self._cdi_names = cdi_names
        self._give_up_s = give_up_s
        self._lock = Condition()
        self._claims: Mapping[str, PreparedClaim] = MappingProxyType(self._loaded())
        self.on_change: Callable[[], None] = lambda: None

    @property
    def claims(self) -> tuple[PreparedClaim, ...]:
        """The claims that are prepared, in the order in which they came."""
        return tuple(self._claims.values())

    @property
    def used(self) -> frozenset[str]:
        """Ids of the GPUs that claims have, but for administration."""
        devices = (it for claim in self.claims for it in claim.devices if not it.is_admin)
        return frozenset(gpu for it in devices for gpu in it.gpus)

    def prepare(self, claim: ClaimReference) -> PreparedClaim:
        """Return *claim* with its devices, prepared now or before.

        Raises:
            AgentError: it cannot be read, or a device is missing, in use by another claim, or not
                known to the container runtime; then nothing has changed.
        """
        known = self._claims.get(claim.uid)
        if known is not None:
            return known
        devices = tuple(self._device(result) for result in self._read(claim))
        wanted = PreparedClaim(
            uid=claim.uid, namespace=claim.namespace, name=claim.name, devices=devices
        )
        with self._lock:
            self._lock.wait_for(lambda: self._conflict(wanted) is None, self._give_up_s)
            known = self._claims.get(claim.uid)
            if known is not None:  # by another call
                return known
            if conflict := self._conflict(wanted):
                raise InputError(conflict, "delete one of their pods")
            self._keep({**self._claims, claim.uid: wanted})
        self.on_change()
        return wanted

    def unprepare(self, uid: str) -> bool:
        """Give up a claim, once its pods have ended; return whether it was prepared.

        Raises:
            UnreadableError: the file cannot be written; then nothing has changed.
        """
        with self._lock:
            if uid not in self._claims:
                return False
            self._keep({key: it for key, it in self._claims.items() if key != uid})
            self._lock.notify_all()
        self.on_change()
        return True

    def _device(self, result: AllocatedDevice) -> PreparedDevice:
        backing = self._backing(result.device)
        if backing is None:
            raise InputError(
                f"this node has no device {result.device} any more",
                "delete the pod, so that the scheduler allocates another",
            )
        return PreparedDevice(
            request=result.request,
            pool=self._pool,
            device=result.device,
            uuids=backing.uuids,
            gpus=backing.gpus,
            cdi=self._cdi_names(backing.uuids),
            is_part=backing.is_part,
            is_admin=result.is_admin,
        )

    def _conflict(self, claim: PreparedClaim) -> str | None:
        """Return which other claim has a GPU of *claim*; ``None`` if none has.

        The scheduler never allocates one twice at a time; this is for one that is being given up,
        and for slices that somebody else changed.
        """
        for other in self._claims.values():
            for held in other.devices if other.uid != claim.uid else ():
                for device in claim.devices:
                    if shared := _shared(device, held):
                        return (
                            f"{device.device} of the claim {claim.namespace}/{claim.name} has "
                            f"{', '.join(sorted(shared))}, which the claim "
                            f"{other.namespace}/{other.name} has as {held.device}"
                        )
        return None

    def _keep(self, claims: dict[str, PreparedClaim]) -> None:
        document = _Document(schema=SCHEMA, pool=self._pool, claims=tuple(claims.values()))
        text = json.dumps(to_plain(document), indent=1) + "\n"
        if self._file is not None and (problem := self._file.write(text)) is not None:
            raise UnreadableError(problem, "see whether the disk is full, or the directory is gone")
        self._claims = MappingProxyType(claims)

    def _loaded(self) -> dict[str, PreparedClaim]:
        content = None if self._file is None else self._file.text()
        if content is None:
            return {}
        try:
            document = from_plain(_Document, load_json(content), [])
        except DecodeError as error:
            problem = str(error)
        else:
            if document.schema == SCHEMA and document.pool == self._pool:
                return {claim.uid: claim for claim in document.claims}
            problem = f"{document.schema} of the pool {document.pool}"
        # The kubelet asks again for each claim that it starts a container with.
        structlog.get_logger().error("prepared claims not understood", problem=problem)
        return {}


def _shared(device: PreparedDevice, held: PreparedDevice) -> frozenset[str]:
    """Return the GPUs that two claims must not have at once; MIG devices share theirs."""
    if device.is_admin or held.is_admin:
        return frozenset()
    gpus = frozenset(device.gpus) & frozenset(held.gpus)
    are_parts = device.is_part and held.is_part
    return frozenset() if are_parts and set(device.uuids).isdisjoint(held.uuids) else gpus
