"""NUMA nodes without CPUs, said in few words: a GB200 tray has 32 of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.model.numa import CpuSet, NumaNode
from agent.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNodes:
    """Neighbouring NUMA nodes without CPUs.

    Attributes:
        nodes: their ids, ascending.
        gpu: row name of the GPU whose memory they are; ``None`` where no GPU claims them.
        memory_mib: together; ``None`` where one of them does not tell.
    """

    nodes: tuple[int, ...]
    gpu: str | None
    memory_mib: int | None

    def __str__(self) -> str:
        whose = "memory without CPUs" if self.gpu is None else f"{self.gpu}'s memory"
        size = f" · {self.memory_mib / 1024:.0f} GiB" if self.memory_mib else ""
        return f"NUMA {CpuSet.of(self.nodes)}: {whose}{size}"


def memory_nodes(snapshot: Snapshot) -> tuple[MemoryNodes, ...]:
    """Return the nodes that have neither CPUs nor devices, joined by the GPU they belong to.

    A GPU of a Grace machine names one node, the first of its own; seven more follow, for its
    MIG instances (a GH200 with one GPU shows nine nodes, one of them with CPUs). That the nodes
    up to the next GPU's are its own is inferred from this: no file says it.
    """
    taken = {gpu.numa_node for gpu in snapshot.gpus}
    taken |= {hca.numa_node for hca in snapshot.hcas or ()}
    bare = [
        node for node in snapshot.numa_nodes or () if not len(node.cpus) and node.id not in taken
    ]
    return tuple(_runs(bare, snapshot))


def _runs(bare: list[NumaNode], snapshot: Snapshot) -> Iterator[MemoryNodes]:
    owners = {gpu.memory_numa_node: gpu.name for gpu in snapshot.gpus}
    owners.pop(None, None)
    run: list[NumaNode] = []
    for node in bare:
        if run and (node.id in owners or node.id != run[-1].id + 1):
            yield _joined(run, owners)
            run = []
        run.append(node)
    if run:
        yield _joined(run, owners)


def _joined(run: list[NumaNode], owners: dict[int | None, str]) -> MemoryNodes:
    sizes = [node.memory_mib for node in run]
    known = [size for size in sizes if size is not None]
    return MemoryNodes(
        nodes=tuple(node.id for node in run),
        gpu=owners.get(run[0].id),
        memory_mib=sum(known) if len(known) == len(sizes) else None,
    )
