"""Pods as the kubelet would have placed them on bundled machines, arranged by hand."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodetopo.components.audit.alignment.measure import measured
from nodetopo.components.audit.alignment.record import Part, PodAlignment
from nodetopo.machines.bundled import machine
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import NvLink
from nodetopo.model.pod import AssignedDevices, AssignedMemory, Container, Pod
from nodetopo.model.snapshot import Snapshot

GPU = "nvidia.com/gpu"
HCA = "example.com/sriov_rdma"
GIB = 1 << 30

STATIC = KubeletSettings(
    source="/var/lib/kubelet/config.yaml",
    cpu_manager_policy="static",
    memory_manager_policy="Static",
    topology_manager_policy="best-effort",
    topology_manager_scope="container",
)
NONE = replace(
    STATIC,
    cpu_manager_policy="none",
    memory_manager_policy="None",
    topology_manager_policy="none",
)
AMOUNTS: Mapping[str, int] = {"cpu": 16_000, "memory": 64 * GIB, GPU: 1}


def worker(
    snapshot: Snapshot,
    gpus: Iterable[int] = (),
    *,
    hcas: Iterable[str] = (),
    cpus: str = "",
    memory: Mapping[int, int] | None = None,
) -> Container:
    """Return a container that holds GPUs by index, HCAs by name, own CPUs and memory by node."""
    ids = {gpu.index: gpu.id for gpu in snapshot.gpus}
    places = {hca.name: str(hca.pci) for hca in snapshot.hcas or ()}
    devices = {GPU: tuple(ids[one] for one in gpus), HCA: tuple(places[one] for one in hcas)}
    return Container(
        name="worker",
        requests=AMOUNTS,
        limits=AMOUNTS,
        devices=tuple(
            AssignedDevices(resource=resource, ids=names)
            for resource, names in devices.items()
            if names
        ),
        cpus=CpuSet.parse(cpus),
        memory=tuple(
            AssignedMemory(kind="memory", size_bytes=size, numa_nodes=(node,))
            for node, size in (memory or {}).items()
        ),
    )


def with_devices(container: Container, resource: str, *ids: str) -> Container:
    """Return *container* with these devices instead of its own."""
    return replace(container, devices=(AssignedDevices(resource=resource, ids=ids),))


def node(name: str = "dgx-h100", settings: KubeletSettings | None = STATIC) -> Snapshot:
    """Return a bundled machine with a kubelet of these *settings*, which tells nothing more."""
    return replace(
        machine(name),
        kubelet=settings,
        kubelet_on_disk=None,
        kubelet_state=None,
        node_status=None,
        offer=None,
        pods=None,
    )


def placed(snapshot: Snapshot, container: Container, **fields: object) -> Snapshot:
    """Return *snapshot* with one pod of one *container*."""
    pod = Pod(namespace="ml", name="job-0", qos_class="Guaranteed", containers=(container,))
    return replace(snapshot, pods=(replace(pod, **fields),))


def row(snapshot: Snapshot) -> PodAlignment:
    """Return the one row of *snapshot*."""
    (found,) = measured(snapshot)
    return found


def apart(snapshot: Snapshot) -> dict[Part, tuple[str, ...]]:
    """Return the codes of the causes of all that is apart in the one row."""
    return {one.part: tuple(cause.code for cause in one.causes) for one in row(snapshot).apart}


def joined_by_nvlink(snapshot: Snapshot, pairs: Iterable[tuple[int, int]]) -> Snapshot:
    """Return *snapshot* with one NVLink between each of *pairs*, by index, and no other."""
    address = {gpu.index: gpu.pci for gpu in snapshot.gpus}
    links = [
        NvLink(gpu=a, link=0, is_active=True, peer=address[b])
        for one, other in pairs
        for a, b in ((one, other), (other, one))
    ]
    return replace(snapshot, nvlinks=tuple(links), pairs=())
