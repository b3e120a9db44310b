"""GPUs that another DRA driver publishes too, or whose claims pods have."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from agent.daemon.dra_held import HeldDevices, Holdings
from agent.dra.neighbours import NOBODY, served_by_dra, with_claims
from agent.kubeapi.slices import Slices
from agent.model.dra import DRIVER, DeviceKey, PublishedDevice
from agent.model.snapshot import Snapshot
from agent.probes.dra import devices_of

Devices: TypeAlias = Mapping[DeviceKey, PublishedDevice]


class ForeignDevices:
    """Follows the devices of other drivers; one thread calls :meth:`look`."""

    def __init__(self, held: HeldDevices) -> None:
        """Know of no device yet."""
        self._held = held
        self._slices: Slices | None = None
        self._present: Devices = MappingProxyType({})
        self._gone: Devices = MappingProxyType({})  # pods may have them by claim
        self._known: Devices = MappingProxyType({})  # both; replaced, not changed
        self._seen: tuple[object, ...] = ()
        self._found: Mapping[str, str] = MappingProxyType({})

    @property
    def found(self) -> Mapping[str, str]:
        """What the last look found."""
        return self._found

    def look(self, slices: Slices, snapshot: Snapshot) -> Mapping[str, str]:
        """Return the driver of each GPU of *snapshot* that is not ours alone, by the GPU's id.

        Call it after :meth:`HeldDevices.keep_up`. The same object where nothing has changed.
        """
        if slices is not self._slices:
            self._take(slices)
        holdings = self._held.known or Holdings()
        if self._gone and self._held.is_answered:
            claimed = {it.key for it in holdings.claimed}
            self._gone = {key: it for key, it in self._gone.items() if key in claimed}
        self._known = {**self._gone, **self._present}
        seen = (slices, snapshot, holdings, tuple(self._gone))
        if seen != self._seen:
            self._seen = seen
            devices = self._present if self._held.is_answered else self._known
            found = dict(served_by_dra(devices.values(), (), snapshot).gpus)
            self._found = MappingProxyType({**self.claimed(holdings, snapshot), **found})
        return self._found

    def claimed(self, holdings: Holdings, snapshot: Snapshot) -> Mapping[str, str]:
        """Return the driver by whose claim a pod has a GPU, by the GPU's id; any thread.

        All GPUs, where it is not known which of them a claim has.
        """
        found = with_claims(NOBODY, holdings.claimed, self._known.values(), snapshot)
        if found.suspect is not None:
            return {gpu.id: found.suspect for gpu in snapshot.gpus}
        return found.gpus

    def _take(self, slices: Slices) -> None:
        """Note which devices are published, and which no longer are; each slice counts alone."""
        theirs = [it for it in slices.values() if it.get("spec", {}).get("driver") != DRIVER]
        present = {it.key: it for each in theirs for it in devices_of([each])}
        before = {**self._gone, **self._present}
        gone = {key: it for key, it in before.items() if key not in present}
        if gone.keys() - self._gone.keys():
            self._held.look()  # what pods have is newer than the slices now
        self._slices, self._present, self._gone = slices, present, gone
