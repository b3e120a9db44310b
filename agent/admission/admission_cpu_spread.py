"""Which CPUs the CPU Manager takes where it is to spread them evenly over NUMA nodes.

Option ``distribute-cpus-across-numa``; semantics of kubernetes 1.36
pkg/kubelet/cm/cpumanager/cpu_assignment.go (takeByTopologyNUMADistributed), as it does it and
not as it means to: the combinations of four, six and more nodes that it remembers share memory
with those that it tries after them, so that the last node of the best one may become another.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.admission.admission_cpu_take import NotEnoughCpusError, Pile, take_packed
from agent.admission.cpu_assignment import CpuLayout, grouped

_STEPS = 1000
"""Of a CPU, to which the balance is rounded before it is compared."""


@dataclass(slots=True)
class _Slice:
    """The first *length* items of a list that others may write to."""

    items: list[int]
    length: int

    def read(self) -> list[int]:
        return self.items[: self.length]


@dataclass(slots=True)
class _Best:
    balance: float = math.inf
    combination: _Slice | None = None
    remainder: _Slice | None = None


def take_spread(layout: CpuLayout, free: frozenset[int], wanted: int, group: int) -> frozenset[int]:
    """Return *wanted* of the *free* CPUs, by *group* of CPUs, packed where no spread is even.

    Raises:
        NotEnoughCpusError: there are not as many, or the kubelet loses count of them.
    """
    if wanted % group:
        return take_packed(layout, free, wanted)
    if wanted < 1:
        return frozenset()
    pile = Pile(layout, free, wanted)
    for best in _candidates(pile, group):
        if best.combination is not None:
            _take(pile, best, group)
            return pile.taken
    return take_packed(layout, free, wanted)


def _candidates(pile: Pile, group: int) -> Iterator[_Best]:
    """Yield the best combination of each number of nodes, fewest first."""
    layout, nodes = pile.layout, pile.numa_nodes()
    free = {node: len(cpus) for node, cpus in grouped(layout, "numa", pile.free).items()}
    groups = (len(layout.places) - 1) // group + 1
    per_node = (groups - 1) // len(layout.nodes) + 1
    needed = (pile.wanted - 1) // group + 1
    for count in range((needed - 1) // per_node + 1, min(needed, len(free)) + 1):
        yield _best(nodes, count, free, pile.wanted, group)


def _best(
    nodes: Sequence[int], count: int, free: Mapping[int, int], wanted: int, group: int
) -> _Best:
    best = _Best()
    for combination in _combinations(nodes, count):
        if best.balance == 0:
            break
        found = _balanced(combination, free, wanted, group)
        if found is not None and found.balance < best.balance:
            best = found
    return best


def _balanced(
    combination: _Slice, free: Mapping[int, int], wanted: int, group: int
) -> _Best | None:
    """Return how even the nodes would be left; ``None`` where *combination* cannot serve."""
    nodes = combination.read()
    share = wanted // len(nodes) // group * group
    groups = sum(free[node] // group for node in nodes)
    if groups * group < wanted or any(free[node] < share for node in nodes):
        return None
    left = {node: amount - (share if node in nodes else 0) for node, amount in free.items()}
    remainder = wanted - share * len(nodes)
    best = _Best(combination=combination)
    if remainder == 0:
        best.balance = _deviation(list(left.values()))
    takers = [node for node in nodes if left[node] >= group]
    for size in range(len(takers), 0, -1) if remainder else ():
        for subset in _combinations(takers, size):
            balance = _left_by(subset.read(), left, remainder, group)
            if balance is not None and balance < best.balance:
                best.balance, best.remainder = balance, subset
    return best if best.balance < math.inf else None


def _left_by(
    subset: Sequence[int], left: Mapping[int, int], remainder: int, group: int
) -> float | None:
    if sum(left[node] for node in subset) < remainder:
        return None
    after = dict(left)
    while remainder > 0:
        before = remainder
        for node in subset:
            if remainder and after[node] >= group:
                after[node] -= group
                remainder -= group
        if remainder == before:
            raise NotEnoughCpusError("the kubelet would try to spread the CPUs for ever")
    return _deviation(list(after.values()))


def _take(pile: Pile, best: _Best, group: int) -> None:
    nodes = best.combination.read() if best.combination else []
    share = pile.wanted // len(nodes) // group * group
    remainder = pile.wanted - share * len(nodes)
    for node in nodes:
        _take_from(pile, node, share)
    takers = best.remainder.read() if best.remainder else []
    while remainder > 0:
        before = remainder
        for node in takers:
            if remainder and len(_on(pile, node)) >= group:
                _take_from(pile, node, group)
                remainder -= group
        if remainder == before:
            raise NotEnoughCpusError("the kubelet would try to spread the CPUs for ever")
    if pile.wanted:
        less = "not enough" if pile.wanted > 0 else "too many"
        words = f"accounting error, {less} CPUs allocated, remaining: {pile.wanted}"
        raise NotEnoughCpusError(words)


def _on(pile: Pile, node: int) -> frozenset[int]:
    return grouped(pile.layout, "numa", pile.free).get(node, frozenset())


def _take_from(pile: Pile, node: int, wanted: int) -> None:
    free = _on(pile, node)
    if wanted <= len(free):  # else the kubelet takes none, and finds out in the end
        pile.take(take_packed(pile.layout, free, wanted))


def _deviation(amounts: Sequence[int]) -> float:
    mean = _rounded(sum(amounts) / len(amounts))
    return _rounded(math.sqrt(sum((one - mean) ** 2 for one in amounts) / len(amounts)))


def _rounded(value: float) -> float:
    return math.floor(value * _STEPS + 0.5) / _STEPS


def _combinations(items: Sequence[int], count: int) -> Iterator[_Slice]:
    """Yield all choices of *count* of *items*, lists shared as Go's ``append`` shares them."""

    def choices(chosen: _Slice, start: int) -> Iterator[_Slice]:
        if chosen.length == count:
            yield chosen
            return
        for position in range(start, len(items) - (count - chosen.length) + 1):
            yield from choices(_appended(chosen, items[position]), position + 1)

    if count >= 1:
        yield from choices(_Slice([], 0), 0)


def _appended(to: _Slice, item: int) -> _Slice:
    """Append as Go does: in place while there is room, else into a copy of twice the room."""
    items = to.items
    if to.length == len(items):
        items = [*items, *[0] * max(len(items), 1)]
    items[to.length] = item
    return _Slice(items, to.length + 1)
