"""The Memory Manager's ``Static`` policy: which NUMA nodes it proposes, and what it pins where.

Semantics of kubernetes 1.36 pkg/kubelet/cm/memorymanager/policy_static.go. A NUMA node that
serves containers alone cannot join a group of several, and a node of a group serves only the group.
"""

from collections.abc import Iterable
from functools import reduce
from operator import and_

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.admission.errors import Missing, Refusal, check_walk
from nodetopo.admission.hints import Choices, Hint, Hints
from nodetopo.admission.state import ActivePods, choice
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_state import HeldMemory, MemoryState
from nodetopo.model.pod import Amounts
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.node_sets import (
    MAX_NODE,
    NO_SET,
    Family,
    all_sets,
    mask_of,
    nodes_of,
    these_sets,
    with_amount,
)

_STATIC, _NONE = "Static", "None"


class MemoryNode(Struct, kw_only=True):
    """One NUMA node."""

    # allocatable, free: kind → bytes
    allocatable: Amounts
    free: dict[str, int]
    assignments: int = 0  # allocations of containers on it
    cells: tuple[int, ...]  # nodes allocated together with it, itself included


class MemoryManager(Struct, kw_only=True):
    """The memory of one node and who has it."""

    nodes: dict[int, MemoryNode]  # by id
    # Pod uid → container → what it holds.
    held: dict[str, dict[str, tuple[HeldMemory, ...]]] = field(default_factory=dict)
    # (nodes, kind) → bytes of init containers of the pod being admitted
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
        choices = self._choices(wanted)
        return dict.fromkeys(wanted, choices) if choices.fitting else {}

    def give(
        self, uid: str, container: str, wanted: Amounts, merged: Hint, *, is_init: bool
    ) -> tuple[HeldMemory, ...]:
        """Pin memory for a container on the nodes of *merged*, or on more if those are too few."""
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
        """Return the bytes of *kind* that containers can have of each node in all."""
        return {id_: node.allocatable.get(kind, 0) for id_, node in self.nodes.items()}

    def free(self, kind: str) -> dict[int, int]:
        """Return the bytes of *kind* that are free on each node."""
        return {id_: node.free.get(kind, 0) for id_, node in self.nodes.items()}

    def _choices(self, wanted: Amounts) -> Choices:
        if not wanted:
            return Choices(NO_SET, NO_SET)
        check_walk(len(self.nodes), "Memory Manager", "memoryManagerPolicy None avoids it")
        large = reduce(
            and_, (with_amount(self.installed(kind), size) for kind, size in wanted.items())
        ).nonempty
        narrowest = len(self.nodes) if large.narrowest is None else large.narrowest
        fitting = large & (self._unassigned(wanted) | these_sets(self._in_use(wanted)))
        return Choices(fitting, fitting.of_size(narrowest))

    def _unassigned(self, wanted: Amounts) -> Family:
        """Return the sets of several nodes, none of them in use, that have *wanted* free."""
        nodes = [id_ for id_, node in self.nodes.items() if not node.assignments]
        several = all_sets(mask_of(nodes)) - these_sets((0, *(1 << id_ for id_ in nodes)))
        return reduce(
            and_,
            (
                with_amount({id_: self.free(kind)[id_] for id_ in nodes}, size)
                for kind, size in wanted.items()
            ),
            several,
        )

    def _in_use(self, wanted: Amounts) -> list[int]:
        """Return all other sets that have *wanted* free: single nodes, groups and reused sets."""
        groups = (mask_of(node.cells) for node in self.nodes.values() if node.assignments)
        single, reused = (1 << id_ for id_ in self.nodes), (mask for mask, _ in self.reusable)
        return [
            mask
            for mask in {*groups, *single, *reused}
            if not mask & ~mask_of(self.nodes)
            and self._is_whole(mask)
            and not self._breaks_groups(mask)
            and all(
                self._free_on(mask, kind) + self.reusable.get((mask, kind), 0) >= size
                for kind, size in wanted.items()
            )
        ]

    def _is_whole(self, mask: int) -> bool:
        """Return whether *mask* is of several nodes, or of one that is in no group of several."""
        nodes = nodes_of(mask)
        return len(nodes) > 1 or all(len(self.nodes[id_].cells) < 2 for id_ in nodes)

    def _free_on(self, mask: int, kind: str) -> int:
        return sum(self.nodes[id_].free.get(kind, 0) for id_ in nodes_of(mask))

    def _place(self, wanted: Amounts, merged: Hint) -> int:
        """Return the nodes to pin *wanted* on: *merged*'s, extended if needed."""
        mask, is_preferred = merged.mask, merged.preferred
        if mask is None:
            problem = "get the default NUMA affinity, no NUMA nodes with enough memory is available"
            choices = self._choices(wanted)
            mask, is_preferred = _best(choices, 0, merged.preferred, problem, "default")
        if all(self._free_on(mask, kind) >= size for kind, size in wanted.items()):
            return mask
        problem = "find NUMA nodes to extend the current topology hint"
        return _best(self._choices(wanted), mask, is_preferred, problem, "extended")[0]

    def _breaks_groups(self, mask: int) -> bool:
        nodes = nodes_of(mask)
        return len(nodes) > 1 and any(
            self.nodes[node].assignments > 0 and tuple(sorted(self.nodes[node].cells)) != nodes
            for node in nodes
        )


def _best(
    choices: Choices, mask: int, must_be_preferred: bool, problem: str, which: str
) -> tuple[int, bool]:
    """Return the best set of *choices* that includes *mask*, and whether it is preferred."""
    for family, is_preferred in ((choices.preferred, True), (choices.fitting, False)):
        best = next(iter(family.including(mask)), None)
        if best is None:
            continue
        if must_be_preferred and not is_preferred:
            break
        return best, is_preferred
    else:
        raise Refusal.unexpected(f"[memorymanager] failed to {problem}")
    raise Refusal.unexpected(f"[memorymanager] failed to find the {which} preferred hint")


def memory_manager_of(
    snapshot: Snapshot, settings: KubeletSettings, active: ActivePods
) -> MemoryManager | None:
    """Return the Memory Manager of *snapshot*; ``None`` under policy ``None``.

    The state file is the kubelet's own record; without it, PodResources says what pods hold.
    """
    state = snapshot.kubelet_state.memory if snapshot.kubelet_state is not None else None
    stated = state.policy if state is not None else settings.memory_manager_policy
    if choice(stated, "memoryManagerPolicy", (_STATIC, _NONE)) == _NONE:
        return None
    if state is not None and state.blocks:
        manager = _from_state(state)
    else:
        manager = _from_podresources(snapshot, active)
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
