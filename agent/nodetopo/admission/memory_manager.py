"""The Memory Manager's ``Static`` policy: which NUMA nodes it proposes, and what it pins where.

Semantics of kubernetes 1.36 pkg/kubelet/cm/memorymanager/policy_static.go. A NUMA node that
serves containers alone cannot join a group of several, and a node of a group serves only the group.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nodetopo.admission.errors import Missing, Refusal, check_nodes
from nodetopo.admission.hints import MAX_NODE, Hint, Hints, masks, narrowness, nodes_of, sums
from nodetopo.admission.state import ActivePods, choice
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_state import HeldMemory, MemoryState
from nodetopo.model.pod import Amounts
from nodetopo.model.snapshot import Snapshot

_STATIC, _NONE = "Static", "None"


@dataclass(slots=True, kw_only=True)
class MemoryNode:
    """One NUMA node.

    Attributes:
        allocatable, free: kind → bytes.
        assignments: the number of allocations of containers on it.
        cells: the nodes that it is allocated together with, itself included.
    """

    allocatable: Amounts
    free: dict[str, int]
    assignments: int = 0
    cells: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class MemoryManager:
    """The memory of one node and who has it.

    Attributes:
        nodes: by id.
        held: pod uid → container → what it holds.
        reusable: (nodes, kind) → bytes of init containers of the pod that is being admitted.
    """

    nodes: dict[int, MemoryNode]
    held: dict[str, dict[str, tuple[HeldMemory, ...]]] = field(default_factory=dict)
    reusable: dict[tuple[int, str], int] = field(default_factory=dict)

    def copy(self) -> "MemoryManager":
        """Return an independent copy to admit the next pod on."""
        return MemoryManager(
            nodes={id_: replace(node, free=dict(node.free)) for id_, node in self.nodes.items()},
            held={uid: dict(containers) for uid, containers in self.held.items()},
        )

    def release(self, uid: str) -> None:
        """Take back what the containers of one pod hold."""
        for blocks in self.held.pop(uid, {}).values():
            for block in blocks:
                size = block.size
                for id_ in block.numa_nodes:
                    if id_ not in self.nodes:
                        continue
                    node = self.nodes[id_]
                    node.assignments -= 1
                    if node.assignments == 0:
                        node.cells = (id_,)
                    free = node.free.get(block.kind, 0)
                    returned = min(size, node.allocatable.get(block.kind, 0) - free)
                    node.free[block.kind] = free + returned
                    size -= returned

    def hints(self, wanted: Amounts) -> Hints:
        """Return the NUMA nodes that *wanted* can come from; without any, no preference."""
        hints = self._hints(wanted)
        return dict.fromkeys(wanted, hints) if hints else {}

    def give(
        self, uid: str, container: str, wanted: Amounts, merged: Hint, *, is_init: bool
    ) -> tuple[HeldMemory, ...]:
        """Pin memory for a container on the nodes of *merged*, or on more where those are too few.

        Raises:
            Refusal: it is not available.
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
            self.reusable[mask, block.kind] = (
                max(reusable, block.size) if is_init else max(reusable - block.size, 0)
            )
        self.held.setdefault(uid, {})[container] = blocks
        return blocks

    def take(self, nodes: tuple[int, ...], kind: str, size: int) -> None:
        """Take *size* free bytes from *nodes*, in order, or as many as there are."""
        for node in (self.nodes[id_] for id_ in nodes):
            node.assignments += 1
            node.cells = nodes
            taken = min(size, node.free.get(kind, 0))
            node.free[kind] = node.free.get(kind, 0) - taken
            size -= taken

    def installed(self, kind: str) -> dict[int, int]:
        """Return the bytes of *kind* that containers can have of every set of nodes in all."""
        return sums({id_: node.allocatable.get(kind, 0) for id_, node in self.nodes.items()})

    def free(self, kind: str) -> dict[int, int]:
        """Return the bytes of *kind* that are free on every set of nodes."""
        return sums({id_: node.free.get(kind, 0) for id_, node in self.nodes.items()})

    def _hints(self, wanted: Amounts) -> tuple[Hint, ...]:
        if not wanted:
            return ()
        installed = {kind: self.installed(kind) for kind in wanted}
        free = {kind: self.free(kind) for kind in wanted}
        large = [
            mask
            for mask in masks(self.nodes)
            if all(installed[kind][mask] >= size for kind, size in wanted.items())
        ]
        narrowest = min((mask.bit_count() for mask in large), default=len(self.nodes))

        def fits(mask: int) -> bool:
            nodes = nodes_of(mask)
            if len(nodes) == 1 and len(self.nodes[nodes[0]].cells) > 1:
                return False
            return not self._breaks_groups(mask) and all(
                free[kind][mask] + self.reusable.get((mask, kind), 0) >= size
                for kind, size in wanted.items()
            )

        return tuple(
            Hint(mask, mask.bit_count() == narrowest)
            for mask in sorted(filter(fits, large), key=narrowness)
        )

    def _place(self, wanted: Amounts, merged: Hint) -> int:
        """Return the nodes to pin *wanted* on: *merged*'s, extended if needed."""
        mask, is_preferred = merged.mask, merged.preferred
        if mask is None:
            problem = "get the default NUMA affinity, no NUMA nodes with enough memory is available"
            mask, is_preferred = _best(self._hints(wanted), merged.preferred, problem, "default")
        if all(self.free(kind)[mask] >= size for kind, size in wanted.items()):
            return mask
        wider = [hint for hint in self._hints(wanted) if hint.mask and hint.mask & mask == mask]
        problem = "find NUMA nodes to extend the current topology hint"
        return _best(wider, is_preferred, problem, "extended")[0]

    def _breaks_groups(self, mask: int) -> bool:
        nodes = nodes_of(mask)
        return len(nodes) > 1 and any(
            self.nodes[node].assignments > 0 and tuple(sorted(self.nodes[node].cells)) != nodes
            for node in nodes
        )


def _best(
    hints: Iterable[Hint], must_be_preferred: bool, problem: str, which: str
) -> tuple[int, bool]:
    """Return the set of the best of *hints*, and whether it is preferred.

    Raises:
        Refusal: there is none, or none that is preferred where it must be.
    """
    ordered = sorted((not it.preferred, narrowness(it.mask), it.mask) for it in hints if it.mask)
    if not ordered:
        raise Refusal.unexpected(f"[memorymanager] failed to {problem}")
    is_not_preferred, _, mask = ordered[0]
    if must_be_preferred and is_not_preferred:
        raise Refusal.unexpected(f"[memorymanager] failed to find the {which} preferred hint")
    return mask, not is_not_preferred


def memory_manager_of(
    snapshot: Snapshot, settings: KubeletSettings, active: ActivePods
) -> MemoryManager | None:
    """Return the Memory Manager of *snapshot*; ``None`` under policy ``None``.

    The state file is the kubelet's own record; without it, PodResources says what pods hold.

    Raises:
        Missing: an input is not known, or the kubelet does not start like this.
    """
    state = snapshot.kubelet_state.memory if snapshot.kubelet_state is not None else None
    stated = state.policy if state is not None else settings.memory_manager_policy
    if choice(stated, "memoryManagerPolicy", (_STATIC, _NONE)) == _NONE:
        return None
    if state is not None and state.blocks:
        manager = _from_state(state)
    else:
        manager = _from_podresources(snapshot, active)
    check_nodes(len(manager.nodes))
    known = {node.id for node in snapshot.numa_nodes or ()}
    if not known <= manager.nodes.keys() or not all(0 <= id_ <= MAX_NODE for id_ in manager.nodes):
        raise Missing("the memory of each NUMA node: the kubelet's state is of others")
    for uid in [uid for uid in manager.held if not active.counts(uid)]:
        manager.release(uid)
    return manager


def _from_state(state: MemoryState) -> MemoryManager:
    nodes: dict[int, MemoryNode] = {}
    for block in state.blocks:
        cells = tuple(sorted(block.cells or (block.numa_node,)))
        node = nodes.setdefault(block.numa_node, MemoryNode(allocatable={}, free={}, cells=cells))
        node.allocatable = {**node.allocatable, block.kind: block.allocatable}
        node.free[block.kind] = block.free
    held = {uid: dict(containers) for uid, containers in (state.entries or {}).items()}
    for piece in _all_blocks(held.values()):
        for id_ in piece.numa_nodes:
            if id_ in nodes:
                nodes[id_].assignments += 1
    return MemoryManager(nodes=nodes, held=held)


def _from_podresources(snapshot: Snapshot, active: ActivePods) -> MemoryManager:
    if snapshot.offer is None or not snapshot.offer.memory or snapshot.numa_nodes is None:
        raise Missing("the memory of NUMA nodes, by the kubelet's state file or PodResources")
    held = active.memory()
    if held is None:
        raise Missing("the memory that pods have, by the kubelet's state file or PodResources")
    ids = [node.id for node in snapshot.numa_nodes]
    nodes = {id_: MemoryNode(allocatable={}, free={}, cells=(id_,)) for id_ in ids}
    for offered in snapshot.offer.memory:
        for id_ in offered.numa_nodes[:1]:
            node = nodes.setdefault(id_, MemoryNode(allocatable={}, free={}, cells=(id_,)))
            node.allocatable = {**node.allocatable, offered.kind: offered.size_bytes}
            node.free[offered.kind] = offered.size_bytes
    manager = MemoryManager(nodes=nodes, held=held)
    for block in _all_blocks(held.values()):
        known = tuple(id_ for id_ in block.numa_nodes if id_ in nodes)
        manager.take(known, block.kind, block.size)
    return manager


def _all_blocks(held: Iterable[dict[str, tuple[HeldMemory, ...]]]) -> Iterable[HeldMemory]:
    return (block for containers in held for blocks in containers.values() for block in blocks)
