"""Prepared claims and the devices of their containers, kept over restarts.

The kubelet requests the same claim repeatedly: for each pod that shares it, after each of its own
restarts, and after a lost answer. So a prepared claim is answered from memory, and kept in a file
that is written before the answer: a daemon killed in between has at most written a claim that the
kubelet requests again. During an upgrade the kubelet can ask either of two processes, so the file
is read again before each change.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from pathlib import Path
from threading import Condition
from types import MappingProxyType
from typing import TypeAlias

from nodetopo.components.dra.driver.claims import AllocatedDevice, ClaimReference, ReadClaim
from nodetopo.components.dra.driver.claims_file import ClaimsFile, PreparedClaim, PreparedDevice
from nodetopo.components.dra.pool import BackingDevices
from nodetopo.errors import InputError
from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.notice import Notice

GIVE_UP_S = 20.0
"""How long the claims of one call wait for earlier ones to release GPUs. A pod deleted without
grace is gone, and its claim free, before the kubelet has ended its containers; an error instead of
the wait would cost the next pod a minute. The kubelet waits 45 s for an answer (1.36
pkg/kubelet/cm/dra/plugin).
"""

ANSWER_S = 5.0
"""Of the time that the caller waits: what is left for the answer."""

LOOK_S = 0.5
"""Interval at which a waiting claim checks whether another process has released one."""

Backing: TypeAlias = Callable[[str], BackingDevices | None]
"""Returns the hardware behind a device of our pool; ``None`` for an unknown device."""

CdiNames: TypeAlias = Callable[[Collection[str]], tuple[str, ...]]
"""Returns the CDI names for GPUs and MIG devices by UUID.

Raises UnreadableError if no specification on the host defines one.
"""

Users: TypeAlias = Callable[[], Collection[ClaimedDevice] | None]
"""Returns the devices of our claims that pods have; ``None`` if that is unknown."""

Refusal: TypeAlias = Callable[[Sequence[BackingDevices]], str | None]
"""Returns why a claim must not get devices now: another program gave one of their GPUs to a pod."""


class PreparedClaims:
    """The prepared claims of one node; any thread can call it."""

    def __init__(
        self,
        path: Path | None,
        pool: str,
        read: ReadClaim,
        backing: Backing,
        cdi_names: CdiNames,
        *,
        refusal: Refusal = lambda _: None,
        users: Users = lambda: None,
        await_node: Callable[[float], object] = lambda _: None,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        """Take up the claims of *pool* in the file *path*; ``None`` keeps them in memory.

        *users* is asked where claims of the file are unknown. *await_node* waits for the first scan
        of the node, at most the seconds that it is given.
        """
        self._file = None if path is None else ClaimsFile(path, pool)
        self._pool = pool
        self._read = read
        self._backing = backing
        self._cdi_names = cdi_names
        self._refusal = refusal
        self._users = users
        self._await_node = await_node
        self._give_up_s = give_up_s
        self._lock = Condition()
        self._claims: Mapping[str, PreparedClaim] = MappingProxyType({})
        self.on_change: Callable[[], None] = lambda: None  # called by any thread after a change
        self.is_off = False  # the node has stopped publishing; no claim is prepared
        self.refresh()

    @property
    def claims(self) -> tuple[PreparedClaim, ...]:
        """The claims that are prepared, in the order in which they came."""
        return tuple(self._claims.values())

    @property
    def used(self) -> frozenset[str]:
        """Ids of the GPUs of claims, except for administration."""
        return frozenset(gpu for gpus in self.used_devices.values() for gpu in gpus)

    @property
    def used_devices(self) -> Mapping[str, tuple[str, ...]]:
        """Ids of the GPUs of each claimed device, except for administration, by its name."""
        devices = (
            device for claim in self.claims for device in claim.devices if not device.is_admin
        )
        return {device.device: device.gpus for device in devices}

    @property
    def is_complete(self) -> bool:
        """Whether all prepared claims are known: no file of them was lost."""
        return self._file is None or self._file.is_complete

    def notices(self) -> tuple[Notice, ...]:
        return () if self._file is None else self._file.notices()

    def refresh(self) -> None:
        """Take claims that another process has prepared or released since."""
        with self._lock:
            self._take_news()

    def deadline(self, left_s: float = inf) -> float:
        """Return until when the claims of one call can wait, by the monotonic clock.

        *left_s* is how long the caller waits for its answer.
        """
        return time.monotonic() + max(0.0, min(self._give_up_s, left_s - ANSWER_S))

    def prepare(self, claim: ClaimReference, until: float | None = None) -> PreparedClaim:
        """Return *claim* with its devices, prepared now or before.

        *until* is the :meth:`deadline` of the call; ``None`` for a call with one claim.

        Raises:
            AgentError: it cannot be read, or a device is missing, in use elsewhere, or unknown to
                the container runtime; then nothing has changed.
        """
        self.refresh()
        known = self._claims.get(claim.uid)
        if known is not None:
            return known
        if self.is_off:
            raise InputError(
                f"dra is off on this node, and the claim {claim} is not prepared",
                "delete its pod, or turn dra on",
            )
        until = self.deadline() if until is None else until
        results = self._read(claim)
        self._await_node(max(0.0, until - time.monotonic()))
        devices = self._devices(results)
        if not self.is_complete and (reason := self._unknown_claim(claim, devices)) is not None:
            raise InputError(reason, "it is tried again until that pod has ended")
        wanted = PreparedClaim(
            uid=claim.uid, namespace=claim.namespace, name=claim.name, devices=devices
        )
        prepared = self._added(wanted, until)
        if prepared is wanted:
            self.on_change()
        return prepared

    def unprepare(self, uid: str) -> bool:
        """Release a claim, once its pods have ended; return whether it was prepared.

        Raises:
            UnreadableError: the file cannot be written; then nothing has changed.
        """
        with self._lock:
            with self._exclusive():
                self._take_news()
                if uid not in self._claims:
                    return False
                self._keep({key: it for key, it in self._claims.items() if key != uid})
            self._lock.notify_all()
        self.on_change()
        return True

    def _added(self, wanted: PreparedClaim, until: float) -> PreparedClaim:
        """Keep *wanted* once no other claim has a GPU of it; return the kept claim."""
        with self._lock:
            while True:
                with self._exclusive():
                    self._take_news()
                    known = self._claims.get(wanted.uid)
                    if known is not None:  # prepared by another call
                        return known
                    conflict = self._conflict(wanted)
                    if conflict is None:
                        self._keep({**self._claims, wanted.uid: wanted})
                        return wanted
                if (left := until - time.monotonic()) <= 0:
                    raise InputError(conflict, "delete one of their pods")
                self._lock.wait(min(left, LOOK_S))

    def _devices(self, results: Sequence[AllocatedDevice]) -> tuple[PreparedDevice, ...]:
        """Return the devices of the *results* of an allocation on this node."""
        found, to_use = [], []
        for result in results:
            backing = self._backing(result.device)
            if backing is None:
                raise InputError(
                    f"this node has no device {result.device} any more",
                    "delete the pod, so that the scheduler allocates another",
                )
            if backing.needs_admin and not result.is_admin:
                raise InputError(
                    f"{result.device} is for administration only, beside those who use its GPU",
                    "ask for it with adminAccess, or for a device of another class",
                )
            found.append((result, backing))
            if not result.is_admin:
                to_use.append(backing)
        if to_use and (reason := self._refusal(to_use)) is not None:
            raise InputError(reason, "it is tried again until that pod has ended")
        return tuple(
            PreparedDevice(
                request=result.request,
                pool=self._pool,
                device=result.device,
                uuids=backing.uuids,
                gpus=backing.gpus,
                cdi=self._cdi_names(backing.uuids),
                is_part=backing.is_part,
                is_admin=result.is_admin,
            )
            for result, backing in found
        )

    def _unknown_claim(
        self, claim: ClaimReference, devices: Sequence[PreparedDevice]
    ) -> str | None:
        """Return why a claim that is not known might have a GPU of *devices*; ``None`` if none has.

        A device that this node no longer has can be any GPU's.
        """
        users = self._users()
        if users is None:
            return "the claims of running pods are not known, and the kubelet does not tell them"
        for user in users:
            backing = self._backing(user.name)
            held = None if backing is None else _held_by(user, backing)
            is_own = (user.namespace, user.claim) == (claim.namespace, claim.name)
            for device in () if is_own else devices:
                if not device.is_admin and (held is None or _shared(device, held)):
                    whose = f"{user.namespace}/{user.claim}"
                    return f"a pod may have {device.device} as {user.name} by the claim {whose}"
        return None

    def _conflict(self, claim: PreparedClaim) -> str | None:
        """Return the other claim that has a GPU of *claim*; ``None`` without one.

        The scheduler never allocates a GPU twice at a time; this covers a claim being released, and
        slices changed by others.
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

    def _exclusive(self) -> AbstractContextManager[None]:
        return nullcontext() if self._file is None else self._file.locked()

    def _take_news(self) -> None:
        news = None if self._file is None else self._file.news()
        if news is not None:
            self._claims = MappingProxyType(news)

    def _keep(self, claims: dict[str, PreparedClaim]) -> None:
        if self._file is not None:
            self._file.write(claims)
        self._claims = MappingProxyType(claims)


def _held_by(user: ClaimedDevice, backing: BackingDevices) -> PreparedDevice:
    return PreparedDevice(
        request="",
        pool=user.pool,
        device=user.name,
        uuids=backing.uuids,
        gpus=backing.gpus,
        cdi=(),
        is_part=backing.is_part,
        is_admin=backing.needs_admin,
    )


def _shared(device: PreparedDevice, held: PreparedDevice) -> frozenset[str]:
    """Return the GPUs that two claims must not have at once; MIG devices share theirs."""
    if device.is_admin or held.is_admin:
        return frozenset()
    gpus = frozenset(device.gpus) & frozenset(held.gpus)
    are_parts = device.is_part and held.is_part
    return frozenset() if are_parts and set(device.uuids).isdisjoint(held.uuids) else gpus
