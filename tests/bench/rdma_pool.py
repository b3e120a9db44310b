"""A pool of HCAs on a machine, and a container that asks for some after it was given GPUs."""

from collections.abc import Sequence
from functools import partial

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.components.rdma.joint import JointPlacement, Kind
from nodetopo.components.rdma.resources import offer_hcas
from nodetopo.model.kubernetes import GPU_RESOURCE
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.identity import remembered_hcas
from nodetopo.rdma.pairing import Pairing
from nodetopo.rdma.pools import Pool, SharingMode

GPUS = 4
"""GPUs that the container has."""


class RdmaPool:
    """A pool of *most* devices, whose HCAs are chosen near the container's GPUs."""

    def __init__(self, snapshot: Snapshot, most: int) -> None:
        known = remembered_hcas((), snapshot)
        pool = Pool(resource="rdma/hca", most=most, mode=SharingMode.CHOSEN)
        (self._resource,) = offer_hcas(snapshot, known, [pool]).resources
        self._gpus = [gpu.id for gpu in snapshot.gpus]
        self._joint = JointPlacement()
        places = {name: at for at, name in enumerate(self._gpus)}
        self._joint.take(Pairing(snapshot=snapshot), places, dict(self._resource.positions))
        self._joint.expect(self._gpus, partial(preferred, Allocator(snapshot)))
        self.ids = [device.id for device in self._resource.devices]

    def ask(self, available: Sequence[str], size: int) -> Sequence[str]:
        """Return the devices for a container that has just been given GPUs."""
        self._joint.gave(Kind.GPU, GPU_RESOURCE, self._gpus[:GPUS], self._gpus[:GPUS])
        return self._joint.hcas_for(self._resource, available, (), size)
