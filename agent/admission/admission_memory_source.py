"""The Memory Manager of a node, put together from its snapshot."""

from collections.abc import Iterable

from agent.admission.admission_options import word
from agent.admission.errors import Missing, check_nodes
from agent.admission.hints import MAX_NODE
from agent.admission.memory_manager import Memory, MemoryNode
from agent.admission.state import Holders, held_memory
from agent.model.kubelet import KubeletSettings
from agent.model.kubelet_state import HeldMemory, MemoryState
from agent.model.snapshot import Snapshot

_STATIC, _NONE = "Static", "None"


def memory_of(snapshot: Snapshot, settings: KubeletSettings, found: Holders) -> Memory | None:
    """Return the memory and who has it; ``None`` under policy ``None``.

    The state file is the kubelet's own word; without it, PodResources tells.

    Raises:
        Missing: something needed is not known, or the kubelet does not start like this.
    """
    state = snapshot.kubelet_state.memory if snapshot.kubelet_state is not None else None
    stated = state.policy if state is not None else settings.memory_manager_policy
    if word(stated, "memoryManagerPolicy", (_STATIC, _NONE)) == _NONE:
        return None
    memory = _by_state(state) if state is not None and state.blocks else _by_offer(snapshot, found)
    check_nodes(len(memory.nodes))
    known = {node.id for node in snapshot.numa_nodes or ()}
    if not known <= memory.nodes.keys() or not all(0 <= it <= MAX_NODE for it in memory.nodes):
        raise Missing("the memory of each NUMA node: the kubelet's state is of others")
    for uid in [uid for uid in memory.held if not found.counts(uid)]:
        memory.release(uid)
    return memory


def _by_state(state: MemoryState) -> Memory:
    nodes: dict[int, MemoryNode] = {}
    for block in state.blocks:
        cells = block.cells or (block.numa_node,)
        node = nodes.setdefault(
            block.numa_node, MemoryNode(allocatable={}, free={}, cells=tuple(sorted(cells)))
        )
        node.allocatable = {**node.allocatable, block.kind: block.allocatable}
        node.free[block.kind] = block.free
    held = {uid: dict(containers) for uid, containers in (state.entries or {}).items()}
    for piece in _blocks(held.values()):
        for id_ in piece.numa_nodes:
            if id_ in nodes:
                nodes[id_].assignments += 1
    return Memory(nodes=nodes, held=held)


def _by_offer(snapshot: Snapshot, found: Holders) -> Memory:
    if snapshot.offer is None or not snapshot.offer.memory or snapshot.numa_nodes is None:
        raise Missing("the memory of NUMA nodes, by the kubelet's state file or PodResources")
    held = held_memory(found)
    if held is None:
        raise Missing("the memory that pods have, by the kubelet's state file or PodResources")
    nodes = {
        node.id: MemoryNode(allocatable={}, free={}, cells=(node.id,))
        for node in snapshot.numa_nodes
    }
    for offered in snapshot.offer.memory:
        for id_ in offered.numa_nodes[:1]:
            node = nodes.setdefault(id_, MemoryNode(allocatable={}, free={}, cells=(id_,)))
            node.allocatable = {**node.allocatable, offered.kind: offered.size_bytes}
            node.free[offered.kind] = offered.size_bytes
    memory = Memory(nodes=nodes, held=held)
    for block in _blocks(held.values()):
        memory.take(tuple(id_ for id_ in block.numa_nodes if id_ in nodes), block.kind, block.size)
    return memory


def _blocks(held: Iterable[dict[str, tuple[HeldMemory, ...]]]) -> Iterable[HeldMemory]:
    return (block for containers in held for blocks in containers.values() for block in blocks)
