"""A pool of HCAs on a machine, and a container that asks for some after it was given GPUs."""

from collections.abc import Sequence
from functools import partial

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.components.rdma.joint import JointPlacement
from nodetopo.components.rdma.resources import offer_hcas
from nodetopo.kernel.requester import Requesters
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
        self._requesters = Requesters()
        self._joint = JointPlacement(self._requesters)
        places = {name: at for at, name in enumerate(self._gpus)}
        self._joint.take(Pairing(snapshot=snapshot), places, dict(self._resource.positions))
        choice = partial(preferred, Allocator(snapshot))
        self._joint.expect(self._gpus, choice)
        self._joint.offer([self._resource])
        whole = dict(zip(self._gpus, self._gpus, strict=True))
        self._joint.following(GPU_RESOURCE, lambda: whole, choice)
        self.ids = [device.id for device in self._resource.devices]

    def ask(self, available: Sequence[str], size: int) -> Sequence[str]:
        """Return the devices for a container that has just been given GPUs."""
        self._requesters.gave(GPU_RESOURCE, self._gpus[:GPUS])
        self._requesters.look(self._resource.name, (), size, available)
        return self._joint.hcas_for(self._resource, available, (), size)
