"""The Memory Manager's ``Static`` policy: which NUMA nodes it proposes, and what it pins where.

Semantics of kubernetes 1.36 pkg/kubelet/cm/memorymanager/policy_static.go. A NUMA node that
serves containers alone cannot join a group of several, and one of a group serves that group only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.admission.errors import Missing, Refusal, check_nodes
from agent.admission.hints import MAX_NODE, Hint, Hints, masks, narrowness, nodes_of, sums
from agent.admission.state import Holders, held_memory, word
from agent.model.kubelet import KubeletSettings
from agent.model.kubelet_state import HeldMemory, MemoryState
from agent.model.snapshot import Snapshot

Amounts = Mapping[str, int]
"""Kind of memory → bytes."""


@dataclass(slots=True, kw_only=True)
class MemoryNode:
    """One NUMA node.

    Attributes:
        allocatable, free: kind → bytes.
        assignments: how many pieces containers hold of it.
        cells: the nodes that it is given out together with, itself included.
    """

    allocatable: Mapping[str, int]
    free: dict[str, int]
    assignments: int = 0
    cells: tuple[int, ...]

    def copy(self) -> "MemoryNode":
        """Return a copy that can be changed on its own."""
        return replace(self, free=dict(self.free))


@dataclass(slots=True, kw_only=True)
class Memory:
    """The memory of one node and who has it.

    Attributes:
        nodes: by id.
        held: pod uid → container → what it holds.
        reusable: (nodes, kind) → bytes of init containers of the pod that is being admitted.
    """

    nodes: dict[int, MemoryNode]
    held: dict[str, dict[str, tuple[HeldMemory, ...]]] = field(default_factory=dict)
    reusable: dict[tuple[int, str], int] = field(default_factory=dict)

    def copy(self) -> "Memory":
        """Return a copy that can be changed on its own."""
        return Memory(
            nodes={id_: node.copy() for id_, node in self.nodes.items()},
            held={uid: dict(containers) for uid, containers in self.held.items()},
            reusable=dict(self.reusable),
        )

    def release(self, uid: str) -> None:
        """Take back what the containers of one pod hold."""
        for blocks in self.held.pop(uid, {}).values():
            for block in blocks:
                self._release(block)

    def hints(self, wanted: Amounts) -> Hints:
        """Return the NUMA nodes that *wanted* can come from; without any, no preference."""
        hints = self._hints(wanted)
        return dict.fromkeys(wanted, hints) if hints else {}

    def give(
        self, uid: str, container: str, wanted: Amounts, merged: Hint, *, is_init: bool
    ) -> tuple[HeldMemory, ...]:
        """Pin memory for a container on the nodes of *merged*, or on more if those do not do.

        Raises:
            Refusal: it cannot be had.
        """
        mask = self._place(wanted, merged)
        if self._breaks_groups(mask):
            raise Refusal.unexpected("[memorymanager] preferred hint violates NUMA node allocation")
        blocks = tuple(
            HeldMemory(kind=kind, size=size, numa_nodes=nodes_of(mask))
            for kind, size in sorted(wanted.items())
        )
        for block in blocks:
            reusable = self.reusable.get((mask, block.kind), 0)
            self.take(nodes_of(mask), block.kind, max(block.size - reusable, 0))
        for block in blocks:
            self._note_reusable(mask, block, is_init=is_init)
        self.held.setdefault(uid, {})[container] = blocks
        return blocks

    def take(self, nodes: tuple[int, ...], kind: str, size: int) -> None:
        """Take what is free of *size* bytes, from the first of *nodes* first."""
        for node in (self.nodes[one] for one in nodes):
            node.assignments += 1
            node.cells = nodes
            taken = min(size, node.free.get(kind, 0))
            node.free[kind] = node.free.get(kind, 0) - taken
            size -= taken

    def installed(self, kind: str) -> dict[int, int]:
        """Return how many bytes of *kind* containers can have of every set of nodes in all."""
        return sums({id_: node.allocatable.get(kind, 0) for id_, node in self.nodes.items()})

    def free(self, kind: str) -> dict[int, int]:
        """Return how many of them nobody has."""
        return sums({id_: node.free.get(kind, 0) for id_, node in self.nodes.items()})

    def _hints(self, wanted: Amounts) -> tuple[Hint, ...]:
        if not wanted:
            return ()
        installed = {kind: self.installed(kind) for kind in wanted}
        free = {kind: self.free(kind) for kind in wanted}
        fitting = [
            mask
            for mask in masks(self.nodes)
            if all(installed[kind][mask] >= size for kind, size in wanted.items())
        ]
        narrowest = min((mask.bit_count() for mask in fitting), default=len(self.nodes))
        found = (
            mask
            for mask in fitting
            if self._can_group(mask)
            and all(
                free[kind][mask] + self.reusable.get((mask, kind), 0) >= size
                for kind, size in wanted.items()
            )
        )
        ordered = sorted(found, key=narrowness)
        return tuple(Hint(mask, mask.bit_count() == narrowest) for mask in ordered)

    def _place(self, wanted: Amounts, merged: Hint) -> int:
        hint = merged
        if hint.mask is None:
            problem = "get the default NUMA affinity, no NUMA nodes with enough memory is available"
            hint = self._default(self._hints(wanted), merged, problem, "default")
        assert hint.mask is not None
        if all(self.free(kind)[hint.mask] >= size for kind, size in wanted.items()):
            return hint.mask
        wider = [
            one for one in self._hints(wanted) if one.mask and one.mask & hint.mask == hint.mask
        ]
        problem = "find NUMA nodes to extend the current topology hint"
        extended = self._default(wider, hint, problem, "extended")
        assert extended.mask is not None
        return extended.mask

    def _default(self, hints: Iterable[Hint], like: Hint, problem: str, which: str) -> Hint:
        """Return the best of *hints*, which must be preferred where *like* is."""
        best = min(
            hints, key=lambda hint: (not hint.preferred, narrowness(hint.mask or 0)), default=None
        )
        if best is None:
            raise Refusal.unexpected(f"[memorymanager] failed to {problem}")
        if like.preferred and not best.preferred:
            raise Refusal.unexpected(f"[memorymanager] failed to find the {which} preferred hint")
        return best

    def _can_group(self, mask: int) -> bool:
        nodes = nodes_of(mask)
        if len(nodes) == 1:
            return len(self.nodes[nodes[0]].cells) == 1
        return not self._breaks_groups(mask)

    def _breaks_groups(self, mask: int) -> bool:
        nodes = nodes_of(mask)
        return len(nodes) > 1 and any(
            self.nodes[node].assignments > 0 and tuple(sorted(self.nodes[node].cells)) != nodes
            for node in nodes
        )

    def _release(self, block: HeldMemory) -> None:
        size = block.size
        for id_ in block.numa_nodes:
            node = self.nodes.get(id_)
            if node is None:
                continue
            node.assignments -= 1
            if node.assignments == 0:
                node.cells = (id_,)
            reserved = node.allocatable.get(block.kind, 0) - node.free.get(block.kind, 0)
            given = min(size, reserved)
            node.free[block.kind] = node.free.get(block.kind, 0) + given
            size -= given

    def _note_reusable(self, mask: int, block: HeldMemory, *, is_init: bool) -> None:
        key = (mask, block.kind)
        before = self.reusable.get(key, 0)
        left = max(before, block.size) if is_init else max(before - block.size, 0)
        self.reusable[key] = left


# The Memory Manager of a node, put together from its snapshot.

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
