"""The kubelet's allocatable resources (PodResources API), and the Node object."""

from collections.abc import Mapping

from msgspec import Struct, field

from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.limits import Amount, NumaIds
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedMemory

REPLICA = "::"
"""Between the id of a shared device and the number of the replica (k8s-device-plugin v0.19.0,
internal/rm/devices.go, AnnotatedID)."""


def unshared(device: str) -> str:
    """Return the id of the device that *device* is a replica of, or *device* itself."""
    return device.partition(REPLICA)[0]


class PlacedDevice(Struct, frozen=True, kw_only=True):
    """One device of a device plugin."""

    resource: str
    id: str
    numa_nodes: NumaIds  # ascending; empty where its plugin named none


class NodeOffer(Struct, frozen=True, kw_only=True):
    """All that can be allocated exclusively on this node, whether or not a pod has it."""

    devices: tuple[PlacedDevice, ...] = ()  # healthy ones, by resource and id
    # Without reserved CPUs; empty unless the CPU Manager is `static`.
    cpus: CpuSet = field(default_factory=CpuSet)
    # An entry for each NUMA node and kind; empty unless the Memory Manager is `Static`.
    memory: tuple[AssignedMemory, ...] = ()

    @property
    def resources(self) -> frozenset[str]:
        """The names of the resources, as pods request them."""
        cpu = {"cpu"} if len(self.cpus) else set()
        return frozenset(
            cpu | {one.resource for one in self.devices} | {one.kind for one in self.memory}
        )


class PodHolding(Struct, frozen=True, kw_only=True):
    """The exclusive resources of an active pod; all parts are empty for a pod that only shares."""

    namespace: str
    name: str
    devices: tuple[PlacedDevice, ...] = ()  # by resource and id; each once
    cpus: CpuSet = field(default_factory=CpuSet)
    # One entry per container and kind, as the Memory Manager pinned it.
    memory: tuple[AssignedMemory, ...] = ()
    claimed: tuple[ClaimedDevice, ...] = ()  # by ResourceClaims of its containers


class NodeStatus(Struct, frozen=True, kw_only=True):
    """The parts of the API server's Node object that audits need."""

    kubelet_version: str | None = None  # v1.36.3
    container_runtime: str | None = None  # containerd://2.1.4
    # capacity, allocatable: resource → amount; CPU in millicores, everything else in its base unit
    # (bytes, devices). Extended and huge page resources, CPU and memory
    capacity: Mapping[str, Amount] | None = None
    allocatable: Mapping[str, Amount] | None = None
    labels: Mapping[str, str] | None = None  # only those in `operator_labels.KEPT`
    # Label → field managers that wrote it, sorted; only `nvidia.com/` ones.
    label_writers: Mapping[str, tuple[str, ...]] | None = None
