"""Made-up machines for the kubelet's managers, of every shape that alignment depends on."""

from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.numa import CpuSet, CpuTopology, HugePages, NumaNode, Socket

GIB = 1 << 30
_MIB = 1 << 20
_PAGE_KIB = {"hugepages-2Mi": 2048, "hugepages-1Gi": 1 << 20}
_NEAR, _FAR = (11, 12), (21, 32)
"""Distances within a socket and beyond, as firmware tells them."""


class Core(Struct, frozen=True):
    """One core and the cache that it shares."""

    node: int
    socket: int
    threads: tuple[int, ...]
    cache: int


class Machine(Struct, frozen=True):
    """One machine.

    Attributes:
        nodes: with memory in whole GiB.
    """

    nodes: tuple[NumaNode, ...]
    cores: tuple[Core, ...]

    @property
    def cpu(self) -> CpuTopology:
        """What our probes would read of the CPUs."""
        sockets = sorted({core.socket for core in self.cores})
        caches = sorted({core.cache for core in self.cores})
        return CpuTopology(
            online=CpuSet.of(cpu for core in self.cores for cpu in core.threads),
            sockets=tuple(Socket(id=one, cpus=self._where("socket", one)) for one in sockets),
            cores=tuple(CpuSet.of(core.threads) for core in self.cores),
            l3_groups=tuple(self._where("cache", one) for one in caches),
            l3_ids=tuple(caches),
        )

    def for_kubelet(self) -> dict[str, Any]:
        """Return what cadvisor would tell the kubelet (info/v1 MachineInfo)."""
        return {
            "num_cores": len(self.cpu.online),
            "num_physical_cores": len(self.cores),
            "num_sockets": len(self.cpu.sockets),
            "topology": [self._node(node) for node in self.nodes],
        }

    def _where(self, level: str, value: int) -> CpuSet:
        chosen = (core for core in self.cores if getattr(core, level) == value)
        return CpuSet.of(cpu for core in chosen for cpu in core.threads)

    def _node(self, node: NumaNode) -> dict[str, Any]:
        cores = [core for core in self.cores if core.node == node.id]
        pages = [{"page_size": it.size_kib, "num_pages": it.total} for it in node.hugepages]
        return {
            "node_id": node.id,
            "memory": (node.memory_mib or 0) * _MIB,
            "hugepages": pages,
            "distances": list(node.distances or ()),
            "cores": [self._core(number, core, len(cores)) for number, core in enumerate(cores)],
        }

    def _core(self, number: int, core: Core, cores: int) -> dict[str, Any]:
        sharing = len(self._where("cache", core.cache))
        caches = [{"id": core.cache, "level": 3, "type": "Unified"}]
        is_node_wide = sharing == cores * len(core.threads)
        return {
            "core_id": number,
            "socket_id": core.socket,
            "thread_ids": list(core.threads),
            "uncore_caches": [] if is_node_wide else caches,
        }


def random_machine(random: Random) -> Machine:
    """Return one machine of one to eight NUMA nodes, a few of them without CPUs."""
    sockets = random.choice((1, 2, 2, 2, 4))
    per_socket = random.choice((1, 1, 1, 2, 2, 4) if sockets < 4 else (1, 1, 2))
    ids = _ids(random, sockets * per_socket)
    cores = _cores(random, sockets, ids)
    memory_only = random.choice((0,) * 9 + (1,)) if len(ids) < 8 else 0
    everyone = [*ids, *(max(ids) + 1 + one for one in range(memory_only))]
    return Machine(_nodes(random, everyone, cores), cores)


def wide_machine(random: Random) -> Machine:
    """Return one machine of 9 to 64 NUMA nodes.

    Most have up to four nodes with CPUs beside nodes that are the memory of coherent GPUs, or of a
    part of one, and have none as long as they are not partitioned.
    """
    many_cpus = random.random() < 0.3
    with_cpus = random.randint(9, 10) if many_cpus else random.choice((1, 2, 2, 2, 3, 4))
    total = with_cpus if many_cpus else random.choice((9, 10, 11, 12, 18, 34, 64))
    ids = list(range(total))
    cores = _cores(random, random.choice((1, 2)) if with_cpus > 1 else 1, ids[:with_cpus])
    nodes = _nodes(random, ids, cores)
    of_gpus = (
        replace(
            node,
            memory_mib=random.choice((0, 0, node.memory_mib)),
            hugepages=tuple(replace(it, total=0) for it in node.hugepages),
        )
        for node in nodes[with_cpus:]
    )
    return Machine((*nodes[:with_cpus], *of_gpus), cores)


def _ids(random: Random, count: int) -> list[int]:
    if random.random() < 0.9:
        return list(range(count))
    return sorted(random.sample(range(count + 6), count))


def _cores(random: Random, sockets: int, ids: list[int]) -> tuple[Core, ...]:
    per_node, smt = random.choice((2, 3, 4, 4, 6, 8)), random.choice((1, 2, 2, 2))
    total = per_node * len(ids)
    shares = ("node", "node", "half", "half of all but one", "socket")
    is_interleaved, share = random.random() < 0.7, random.choice(shares)
    cores = []
    for number in range(total):
        place = number // per_node
        threads = (
            range(number, total * smt, total)
            if is_interleaved
            else range(number * smt, (number + 1) * smt)
        )
        socket = place * sockets // len(ids)
        half = number // max(per_node // 2, 1)
        cache = {
            "node": place,
            "half": half,
            "half of all but one": half if place + 1 < len(ids) else total,
            "socket": socket,
        }[share]
        cores.append(Core(ids[place], socket, tuple(threads), cache))
    if random.random() < 0.1:  # a thread is offline
        broken = random.randrange(1, total)
        one = cores[broken]
        cores[broken] = Core(one.node, one.socket, one.threads[:1], one.cache)
    return tuple(cores)


def _nodes(random: Random, ids: list[int], cores: tuple[Core, ...]) -> tuple[NumaNode, ...]:
    size = random.choice((8, 16, 32))
    sockets = {core.node: core.socket for core in cores}
    near, far = random.choice(_NEAR), random.choice(_FAR)
    pages = random.choice((0, 0, 2))
    nodes = []
    for number, one in enumerate(ids):
        row = (
            10 if one == other else near if sockets.get(one) == sockets.get(other) else far
            for other in ids
        )
        nodes.append(
            NumaNode(
                id=one,
                cpus=CpuSet.of(cpu for core in cores if core.node == one for cpu in core.threads),
                memory_mib=(size + random.choice((0, 0, 0, number))) << 10,
                distances=tuple(row),
                hugepages=tuple(
                    HugePages(size_kib=kib, total=pages * GIB // (kib << 10))
                    for kib in _PAGE_KIB.values()
                ),
            )
        )
    return tuple(nodes)
