"""What keeps GPUs of our DRA driver from being allocated: conditions, and other drivers."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TypeAlias

from msgspec.structs import replace

from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.held import HeldDevices, Holdings
from nodetopo.components.dra.neighbours import DevicesSeen
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.publisher import own
from nodetopo.kubeapi.slices import Slices
from nodetopo.model.dra import DRIVER, DeviceKey, PublishedDevice
from nodetopo.model.gpu_health import GpuHealth, HealthView
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.neighbours import NOBODY, served_by_dra, with_claims


class ConditionsKeeper:
    """Remembers when each condition of each GPU began; for one thread.

    Taints carry this time, and pods are evicted when their toleration has passed since then. So a
    new process reads it from the slices.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], str] = {}
        self._start = _now()

    def conditions(
        self,
        pool: Pool,
        slices: Slices | None,
        health: HealthView,
        *,
        held: Collection[str],
        foreign: Mapping[str, str],
        evicts: bool,
    ) -> Conditions:
        """Return the conditions of now.

        Args:
            slices: as the API server has them; ``None`` while they are unknown, as they can have
                older times.
            held: ids of GPUs that pods have without our driver.
            foreign: GPU id → driver that has it too.
        """
        verdicts: dict[str, GpuHealth] = dict(health)
        for gpu in pool.snapshot.gpus:
            if gpu.is_lost and verdicts.get(gpu.id, GpuHealth()).is_healthy:
                verdicts[gpu.id] = GpuHealth(is_healthy=False, reason="GpuLost", said="it is lost")
        found = Conditions(health=verdicts, held=frozenset(held), foreign=foreign, evicts=evicts)
        is_new = bool(found.tainted - self._since.keys())
        before = _published_since(pool, slices or {}) if is_new else {}
        now = self._start if slices is None else _now()
        since = {each: self._since.get(each) or before.get(each) or now for each in found.tainted}
        if slices is not None:
            self._since = since
        return replace(found, since=since)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _published_since(pool: Pool, slices: Slices) -> Mapping[tuple[str, str], str]:
    """Return the start of GPUs' conditions in the slices, from the devices of single GPUs."""
    found: dict[tuple[str, str], str] = {}
    for body in own(slices).values():
        for device in body.get("spec", {}).get("devices") or ():
            backing = pool.backing(str(device.get("name"))) if device.get("taints") else None
            if backing is None or len(backing.gpus) != 1:
                continue
            for taint in device["taints"]:
                if since := taint.get("timeAdded"):
                    each = backing.gpus[0], str(taint.get("key"))
                    found[each] = min(found.get(each, since), str(since))
    return found


Devices: TypeAlias = Mapping[DeviceKey, PublishedDevice]


class ForeignDevices:
    """Follows GPUs that other drivers publish, or whose claims pods have; one thread looks."""

    def __init__(self, held: HeldDevices) -> None:
        self._held = held
        self._devices = DevicesSeen()
        self._known: Devices = MappingProxyType({})  # both; replaced, not changed
        self._seen: tuple[object, ...] = ()
        self._found: Mapping[str, str] = MappingProxyType({})

    @property
    def found(self) -> Mapping[str, str]:
        """The result of the last look."""
        return self._found

    def look(self, slices: Slices, snapshot: Snapshot) -> Mapping[str, str]:
        """Return the other driver of each GPU of *snapshot* that has one, by the GPU's id.

        Call it after :meth:`HeldDevices.keep_up`. It returns the same object while nothing changes.
        """
        theirs = self._devices
        if slices is not theirs.slices and theirs.take(slices, lambda driver: driver != DRIVER):
            self._held.look()  # the pods' devices are newer than the slices now
        holdings = self._held.known or Holdings()
        if theirs.gone and self._held.is_answered:
            theirs.keep(holdings.claimed)
        self._known = {**theirs.gone, **theirs.present}
        seen = (slices, snapshot, holdings, tuple(theirs.gone))
        if seen != self._seen:
            self._seen = seen
            devices = theirs.present if self._held.is_answered else self._known
            drivers = dict(served_by_dra(devices.values(), (), snapshot).gpus)
            self._found = MappingProxyType({**self.claimed(holdings, snapshot), **drivers})
        return self._found

    def claimed(self, holdings: Holdings, snapshot: Snapshot) -> Mapping[str, str]:
        """Return the driver by whose claim a pod has a GPU, by the GPU's id; any thread.

        All GPUs, if a claim's GPUs are unknown.
        """
        found = with_claims(NOBODY, holdings.claimed, self._known.values(), snapshot)
        if found.suspect is not None:
            return {gpu.id: found.suspect for gpu in snapshot.gpus}
        return found.gpus
