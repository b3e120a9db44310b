"""GPUs that another DRA driver publishes too, or whose claims pods have."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from nodetopo.components.dra.held import HeldDevices, Holdings
from nodetopo.components.dra.neighbours import DevicesSeen
from nodetopo.kubeapi.slices import Slices
from nodetopo.model.dra import DRIVER, DeviceKey, PublishedDevice
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.neighbours import NOBODY, served_by_dra, with_claims

Devices: TypeAlias = Mapping[DeviceKey, PublishedDevice]


class ForeignDevices:
    """Follows the devices of other drivers; one thread calls :meth:`look`."""

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
