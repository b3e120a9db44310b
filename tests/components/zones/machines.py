"""A machine of two sockets and what its kubelet offers."""

from nodetopo.model.node import NodeOffer, PlacedDevice, PodHolding
from nodetopo.model.numa import CpuSet, HugePages, NumaNode
from nodetopo.model.pod import AssignedMemory

GPU = "nvidia.com/gpu"
GIB = 1 << 30


def numa_node(number: int, cpus: str, *, memory_gib: int = 64) -> NumaNode:
    """Return one of two NUMA nodes, with 1,024 huge pages of 2 MiB."""
    return NumaNode(
        id=number,
        cpus=CpuSet.parse(cpus),
        memory_mib=memory_gib * 1024,
        distances=(10, 21) if number == 0 else (21, 10),
        hugepages=(HugePages(size_kib=2048, total=1024), HugePages(size_kib=1 << 20, total=0)),
    )


def gpu(number: int, *numa_nodes: int) -> PlacedDevice:
    """Return a GPU near *numa_nodes*."""
    return PlacedDevice(resource=GPU, id=f"GPU-{number}", numa_nodes=numa_nodes)


def memory(kind: str, gib: int, *numa_nodes: int) -> AssignedMemory:
    """Return a piece of memory."""
    return AssignedMemory(kind=kind, size_bytes=gib * GIB, numa_nodes=numa_nodes)


def pod(
    name: str,
    *,
    devices: tuple[PlacedDevice, ...] = (),
    cpus: str = "",
    pieces: tuple[AssignedMemory, ...] = (),
) -> PodHolding:
    """Return a pod of namespace ``ml``."""
    return PodHolding(
        namespace="ml", name=name, devices=devices, cpus=CpuSet.parse(cpus), memory=pieces
    )


NODES = (numa_node(0, "0-7"), numa_node(1, "8-15"))

OFFER = NodeOffer(
    devices=(gpu(0, 0), gpu(1, 0), gpu(2, 1), gpu(3, 1)),
    cpus=CpuSet.parse("1-15"),
    memory=(
        memory("hugepages-2Mi", 2, 0),
        memory("hugepages-2Mi", 2, 1),
        memory("memory", 61, 0),
        memory("memory", 62, 1),
    ),
)
"""CPU 0 is reserved, and some memory of both nodes."""
