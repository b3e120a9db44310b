"""How the GPUs are spread over the NUMA nodes that have CPUs."""

from collections import Counter

from agent.labels.label import LabelEntry, number
from agent.model.snapshot import Snapshot


def _cpu_nodes(snapshot: Snapshot) -> tuple[int, ...] | None:
    """Return the NUMA nodes that a CPU can be on; the memory of a Grace GPU is none of them."""
    nodes = snapshot.numa_nodes
    if nodes is None or not snapshot.gpus:
        return None
    return tuple(sorted(node.id for node in nodes if len(node.cpus)))


def _nodes_of_gpus(snapshot: Snapshot) -> Counter[int | None] | None:
    """Return how many GPUs each node has; ``None`` as a node is one that firmware did not name.

    On a machine with a single node there is nowhere else for a GPU to be.
    """
    nodes = _cpu_nodes(snapshot)
    if nodes is None:
        return None
    only = nodes[0] if len(nodes) == 1 else None
    return Counter(only if gpu.numa_node is None else gpu.numa_node for gpu in snapshot.gpus)


def _node_count(snapshot: Snapshot) -> int | None:
    nodes = _cpu_nodes(snapshot)
    return len(nodes) if nodes else None


def _gpu_node_count(snapshot: Snapshot) -> int | None:
    spread = _nodes_of_gpus(snapshot)
    return None if spread is None or spread[None] else len(spread)


def _spread(snapshot: Snapshot) -> str | None:
    nodes, spread = _cpu_nodes(snapshot), _nodes_of_gpus(snapshot)
    if not nodes or spread is None:
        return None
    if spread[None] and snapshot.pci_gpus is None:
        return None  # not read, which says nothing of the firmware
    placed = {node for node in spread if node is not None}
    counts = [str(spread[node]) for node in sorted(placed.union(nodes))]
    return "-".join([*counts, *([f"u{spread[None]}"] if spread[None] else [])])


_SOURCE = "sysfs `numa_node`, `/sys/devices/system/node`"

ENTRIES: tuple[LabelEntry, ...] = (
    LabelEntry(
        key="gpu.topology/numa-nodes",
        meaning="NUMA nodes with CPUs.",
        source="`/sys/devices/system/node`",
        cardinality="a handful",
        value=lambda snapshot: number(_node_count(snapshot)),
    ),
    LabelEntry(
        key="gpu.topology/gpu-numa-nodes",
        meaning="NUMA nodes that have GPUs; absent where firmware does not place a GPU.",
        source=_SOURCE,
        cardinality="a handful",
        value=lambda snapshot: number(_gpu_node_count(snapshot)),
    ),
    LabelEntry(
        key="gpu.topology/gpus-per-numa",
        meaning="GPUs on each NUMA node in order of the nodes' numbers, e.g. `4-4`; at the end "
        "`u1` where firmware does not place one GPU.",
        source=_SOURCE,
        cardinality="one per machine type",
        value=_spread,
    ),
)
