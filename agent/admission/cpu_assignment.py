"""Where each CPU lies: what the CPU Manager knows of the machine.

Source: kubernetes 1.36 pkg/kubelet/cm/cpumanager/topology, filled as cadvisor 0.56 fills it
(utils/sysinfo): a last-level cache counts only where it is not one whole NUMA node's; without
one, the socket stands for it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from agent.admission.hints import sums
from agent.model.numa import CpuTopology, NumaNode


@dataclass(frozen=True, slots=True)
class Place:
    """Where one CPU lies; a core is named by its lowest CPU."""

    numa: int
    socket: int
    core: int
    cache: int


@dataclass(frozen=True, kw_only=True)
class CpuLayout:
    """All CPUs of the machine.

    Attributes:
        sockets: how many there are, with or without CPUs.
    """

    places: Mapping[int, Place]
    sockets: int
    _totals: dict[str, Mapping[int, frozenset[int]]] = field(default_factory=dict, repr=False)

    def members(self, level: str) -> Mapping[int, frozenset[int]]:
        """Return the CPUs of each part of one *level*: numa, socket, core or cache."""
        if level not in self._totals:
            self._totals[level] = grouped(self, level, self.places)
        return self._totals[level]

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that have CPUs, ascending."""
        return tuple(sorted(self.members("numa")))

    @cached_property
    def cpus(self) -> frozenset[int]:
        """All CPUs."""
        return frozenset(self.places)

    @cached_property
    def installed(self) -> Mapping[int, int]:
        """How many CPUs every set of NUMA nodes has."""
        return sums({node: len(self.members("numa")[node]) for node in self.nodes})

    @property
    def per_core(self) -> int:
        """CPUs of a core, on average, rounded down."""
        return len(self.places) // max(len(self.members("core")), 1)

    @property
    def per_socket(self) -> int:
        """CPUs of a socket, likewise."""
        return len(self.places) // max(self.sockets, 1)

    @property
    def per_cache(self) -> int:
        """CPUs of a cache, likewise."""
        return len(self.places) // max(len(self.members("cache")), 1)

    def by_node(self, cpus: Iterable[int]) -> Counter[int]:
        """Count *cpus* by NUMA node."""
        return Counter(self.places[cpu].numa for cpu in cpus if cpu in self.places)

    def sockets_of(self, nodes: Iterable[int]) -> frozenset[int]:
        """Return the sockets that have CPUs on any of *nodes*."""
        wanted = frozenset(nodes)
        return frozenset(place.socket for place in self.places.values() if place.numa in wanted)


def grouped(layout: CpuLayout, level: str, cpus: Iterable[int]) -> Mapping[int, frozenset[int]]:
    """Return *cpus* by the part of *level* that they lie in."""
    found: dict[int, set[int]] = {}
    for cpu in cpus:
        found.setdefault(getattr(layout.places[cpu], level), set()).add(cpu)
    return {part: frozenset(members) for part, members in found.items()}


def cpu_layout(nodes: Iterable[NumaNode], cpu: CpuTopology) -> CpuLayout:
    """Put the layout together from what the kernel shows."""
    sockets = {one: socket.id for socket in cpu.sockets for one in socket.cpus}
    cores = {one: min(core) for core in cpu.cores for one in core}
    caches = {one: min(group) for group in cpu.l3_groups for one in group}
    sizes = Counter(caches.values())
    places: dict[int, Place] = {}
    for node in nodes:
        members = [one for one in node.cpus if one in cpu.online]
        threads = Counter(cores.get(one, one) for one in members)
        for one in members:
            core, socket = cores.get(one, one), sockets.get(one, 0)
            whole = len(threads) * threads[core]
            is_split = one in caches and sizes[caches[one]] != whole
            places[one] = Place(node.id, socket, core, caches[one] if is_split else socket)
    return CpuLayout(places=places, sockets=len(cpu.sockets) or 1)


# Which CPUs the CPU Manager takes out of those that are free, packed onto as few parts as it can.
#
# Semantics of kubernetes 1.36 pkg/kubelet/cm/cpumanager/cpu_assignment.go
# (takeByTopologyNUMAPacked): whole NUMA nodes and sockets, whole caches on request, whole cores,
# then single CPUs; among equals the part with the fewest free CPUs, then the lowest number.


class NotEnoughCpusError(Exception):
    """The CPUs cannot be taken; carries the kubelet's own words."""


def take_packed(
    layout: CpuLayout,
    free: frozenset[int],
    wanted: int,
    *,
    by_cache: bool = False,
    spread_cores: bool = False,
) -> frozenset[int]:
    """Return *wanted* of the *free* CPUs.

    Args:
        layout: of the machine.
        free: what may be taken.
        wanted: how many.
        by_cache: option ``prefer-align-cpus-by-uncorecache``.
        spread_cores: option ``distribute-cpus-across-cores``.

    Raises:
        NotEnoughCpusError: there are not as many.
    """
    if wanted < 1:
        return frozenset()
    pile = Pile(layout, free, wanted)
    pile.take_nodes_and_sockets()
    if by_cache:
        pile.take_caches()
    if not spread_cores:
        pile.take_cores()
    pile.take_single(spread_cores=spread_cores)
    return pile.taken


class Pile:
    """Free CPUs while some are taken.

    Attributes:
        wanted: how many are still to be taken. It is the kubelet's own count, which falls too
            far where a part is listed twice, in a cache that spans NUMA nodes for one.
    """

    def __init__(self, layout: CpuLayout, free: frozenset[int], wanted: int) -> None:
        """Start with nothing taken.

        Raises:
            NotEnoughCpusError: fewer are free than wanted.
        """
        self.layout, self.wanted = layout, wanted
        self.taken: frozenset[int] = frozenset()
        self.free = free & layout.cpus
        if wanted > len(self.free):
            words = f"not enough cpus available to satisfy request: requested={wanted}"
            raise NotEnoughCpusError(f"{words}, available={len(free)}")
        is_node_first = layout.sockets >= len(layout.nodes)
        self._way = ("numa", "socket") if is_node_first else ("socket", "numa")

    def take(self, cpus: frozenset[int]) -> None:
        """Take *cpus*, which count even where they were taken before."""
        self.taken |= cpus
        self.free -= cpus
        self.wanted -= len(cpus)

    def numa_nodes(self) -> list[int]:
        """Return the NUMA nodes with free CPUs in the order in which they are tried."""
        return self._ordered(*self._way[: self._way.index("numa") + 1])

    def take_nodes_and_sockets(self) -> None:
        """Take whole ones, the larger of both first."""
        self._take_whole(self._way[0], *self._way[:1])
        self._take_whole(self._way[1], *self._way)

    def take_caches(self) -> None:
        """Take whole caches, then what fits the first cache that has as much left."""
        for cache in self._caches():
            if self.wanted >= self.layout.per_cache:
                self._take_listed("cache", self._caches())
            if self.wanted < 1:
                return
            self._take_part(cache)
            if self.wanted < 1:
                return

    def take_cores(self) -> None:
        """Take whole cores."""
        self._take_whole("core", *self._way, "core")

    def take_single(self, *, spread_cores: bool) -> None:
        """Take CPU by CPU until there are enough."""
        if spread_cores:
            level, parts = "socket", self._ordered(*self._way[: self._way.index("socket") + 1])
        else:
            level, parts = "core", self._ordered(*self._way, "core")
        members = grouped(self.layout, level, self.free)
        for cpu in [cpu for part in parts for cpu in sorted(members[part])]:
            if self.wanted < 1:
                return
            self.take(frozenset({cpu}))

    def _take_whole(self, level: str, *way: str) -> None:
        self._take_listed(level, self._ordered(*way))

    def _take_listed(self, level: str, parts: list[int]) -> None:
        free = grouped(self.layout, level, self.free)
        for part in [part for part in parts if len(free[part]) == self._size(level, part)]:
            members = self.layout.members(level)[part]
            if self.wanted >= len(members):
                self.take(members)

    def _size(self, level: str, part: int) -> int:
        """Return how many free CPUs make a part a whole one; of cores and sockets, the average."""
        averages = {"core": self.layout.per_core, "socket": self.layout.per_socket}
        return averages.get(level, len(self.layout.members(level)[part]))

    def _take_part(self, cache: int) -> None:
        members = grouped(self.layout, "cache", self.free).get(cache, frozenset())
        cores = grouped(self.layout, "core", self.free)
        per_core = self.layout.per_core
        needed = -(-self.wanted // per_core)
        chosen = sorted({self.layout.places[cpu].core for cpu in members})[:needed]
        cpus = sorted(cpu for core in chosen for cpu in cores[core])
        if self.wanted % 2 and per_core > 1 and len(cpus) > self.wanted:
            cpus.pop()
        if len(cpus) == self.wanted:
            self.take(frozenset(cpus))

    def _caches(self) -> list[int]:
        return self._ordered(*self._way[: self._way.index("numa") + 1], "cache")

    def _ordered(self, *way: str) -> list[int]:
        """Return the parts of the last level with free CPUs, by those of the levels before."""
        parts = self._sorted(way[0], grouped(self.layout, way[0], self.free))
        for outer, inner in pairwise(way):
            members = grouped(self.layout, outer, self.free)
            parts = [
                one
                for part in parts
                for one in self._sorted(inner, grouped(self.layout, inner, members[part]))
            ]
        return parts

    def _sorted(self, level: str, parts: Iterable[int]) -> list[int]:
        free = grouped(self.layout, level, self.free)
        return sorted(parts, key=lambda part: (len(free[part]), part))


# Which CPUs the CPU Manager takes where it is to spread them evenly over NUMA nodes.
#
# Option ``distribute-cpus-across-numa``; semantics of kubernetes 1.36
# pkg/kubelet/cm/cpumanager/cpu_assignment.go (takeByTopologyNUMADistributed), as it does it and
# not as it means to: the combinations of four, six and more nodes that it remembers share memory
# with those that it tries after them, so that the last node of the best one may become another.

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
