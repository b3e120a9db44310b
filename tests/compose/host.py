"""CPUs and NUMA nodes of a host: sockets × nodes × cores × threads, and nodes without CPUs."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodetopo.model.numa import CpuSet, CpuTopology, HugePages, NumaNode, Socket
from tests.compose.machine import Processor

LOCAL = 10
"""ACPI's distance of a node to itself."""


class Host(Struct, frozen=True, kw_only=True):
    """What a machine has of CPUs and memory."""

    processor: Processor
    nodes: tuple[NumaNode, ...]
    cpu: CpuTopology

    def cpus(self, node: int | None) -> CpuSet:
        """Return the CPUs near a function of *node*: all where firmware names none (−1)."""
        by_id = {known.id: known.cpus for known in self.nodes}
        return self.cpu.online if node is None else by_id[node]


def host(
    processor: Processor,
    *,
    sockets: int,
    nodes_per_socket: int = 1,
    memory_mib: int,
    distances: tuple[int, int] = (12, 21),
    ids: Sequence[int] | None = None,
    governor: str | None = "performance",
    is_virtual: bool = False,
) -> Host:
    """Return a host whose nodes share its cores and memory evenly, in the order of the cores.

    Args:
        processor: in every socket.
        sockets: how many.
        nodes_per_socket: more than 1 with AMD's NPS2 and NPS4, and Intel's SNC.
        memory_mib: of each node.
        distances: to another node of the same socket, and of another socket.
        ids: of the nodes, ascending; from 0 if not given, sparse on POWER9.
        governor: of cpufreq; ``None`` in a virtual machine, which has no cpufreq.
        is_virtual: whether this is a guest.
    """
    per_node = processor.cores // nodes_per_socket
    count = sockets * nodes_per_socket
    named = tuple(range(count)) if ids is None else tuple(ids)
    cores = tuple(_threads(processor, sockets, core) for core in range(sockets * processor.cores))
    nodes = tuple(
        NumaNode(
            id=named[at],
            cpus=_union(cores[at * per_node : (at + 1) * per_node]),
            memory_mib=memory_mib,
            distances=tuple(
                _distance(at, other, nodes_per_socket, distances) for other in range(count)
            ),
            hugepages=_hugepages(processor),
        )
        for at in range(count)
    )
    return Host(
        processor=processor,
        nodes=nodes,
        cpu=_cpu(
            processor, cores, _groups(cores, processor.cores), governor, is_virtual=is_virtual
        ),
    )


def with_memory_nodes(
    base: Host,
    *,
    memory_mib: dict[int, int],
    distance_to: dict[tuple[int, int], int],
    default: int,
) -> Host:
    """Return *base* with nodes that have no CPUs, such as GPU memory on Grace and POWER9.

    Args:
        base: the host with its CPU nodes.
        memory_mib: by node id; 0 for a node that is there and empty.
        distance_to: by (lower id, higher id), where it is not *default*.
        default: distance between two different nodes of which one has no CPUs.
    """
    near = {
        (node.id, other.id): distance
        for node in base.nodes
        for other, distance in zip(base.nodes, node.distances or (), strict=True)
    }
    ids = sorted([*(node.id for node in base.nodes), *memory_mib])

    def distance(a: int, b: int) -> int:
        if a == b:
            return LOCAL
        return near.get((a, b)) or distance_to.get((min(a, b), max(a, b)), default)

    known = {node.id: node for node in base.nodes}
    nodes = tuple(
        NumaNode(
            id=node,
            cpus=known[node].cpus if node in known else CpuSet(),
            memory_mib=known[node].memory_mib if node in known else memory_mib[node],
            distances=tuple(distance(node, other) for other in ids),
            hugepages=_hugepages(base.processor),
        )
        for node in ids
    )
    return Host(processor=base.processor, nodes=nodes, cpu=base.cpu)


def _cpu(
    processor: Processor,
    cores: tuple[CpuSet, ...],
    sockets: tuple[CpuSet, ...],
    governor: str | None,
    *,
    is_virtual: bool,
) -> CpuTopology:
    is_x86 = processor.machine == "x86_64"
    return CpuTopology(
        online=_union(cores),
        vendor=processor.vendor,
        model=processor.model,
        family=processor.family,
        model_number=processor.model_number,
        sockets=tuple(Socket(id=at, cpus=cpus) for at, cpus in enumerate(sockets)),
        cores=tuple(sorted(cores, key=min)),
        l3_groups=tuple(sorted(_groups(cores, processor.cores_per_l3), key=min)),
        offline=CpuSet(),
        isolated=CpuSet(),
        smt=processor.threads > 1,
        governors=() if governor is None else (governor,),
        is_virtual=is_virtual if is_x86 else None,
    )


def _threads(processor: Processor, sockets: int, core: int) -> CpuSet:
    threads = range(processor.threads)
    if processor.are_threads_adjacent:
        return CpuSet.of(core * processor.threads + thread for thread in threads)
    return CpuSet.of(core + thread * sockets * processor.cores for thread in threads)


def _distance(a: int, b: int, nodes_per_socket: int, distances: tuple[int, int]) -> int:
    if a == b:
        return LOCAL
    return distances[0 if a // nodes_per_socket == b // nodes_per_socket else 1]


def _hugepages(processor: Processor) -> tuple[HugePages, ...]:
    return tuple(HugePages(size_kib=size, total=0, free=0) for size in processor.hugepages_kib)


def _groups(cores: Sequence[CpuSet], size: int) -> tuple[CpuSet, ...]:
    return tuple(_union(cores[at : at + size]) for at in range(0, len(cores), size))


def _union(sets: Iterable[CpuSet]) -> CpuSet:
    return CpuSet.of(cpu for cpus in sets for cpu in cpus)
