"""Which CPUs the CPU Manager takes, packed onto few parts of the machine or spread over it.

Semantics of kubernetes 1.36 and 1.37 pkg/kubelet/cm/cpumanager/cpu_assignment.go
(takeByTopologyNUMAPacked and takeByTopologyNUMADistributed) on the layout of
pkg/kubelet/cm/cpumanager/topology.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from msgspec import Struct, field

from nodetopo.model.numa import CpuTopology, NumaNode

_STEPS = 1000
"""Of a CPU, to which the balance is rounded before it is compared."""


class NotEnoughCpusError(Exception):
    """The CPUs cannot be taken; carries the kubelet's own words."""


class CpuPlace(Struct, frozen=True):
    """Where one CPU lies; a core is named by its lowest CPU."""

    numa: int
    socket: int
    core: int
    cache: int


class CpuLayout(Struct, frozen=True, kw_only=True, dict=True):
    """All CPUs of the machine."""

    places: Mapping[int, CpuPlace]
    sockets: int  # their number, with or without CPUs
    has_cache_ids: bool = True  # caches are told apart as the kubelet does
    _members: dict[str, Mapping[int, frozenset[int]]] = field(default_factory=dict)

    def members(self, level: str) -> Mapping[int, frozenset[int]]:
        """Return the CPUs of each part of one *level*: numa, socket, core or cache."""
        if level not in self._members:
            self._members[level] = self.grouped(level, self.places)
        return self._members[level]

    def grouped(self, level: str, cpus: Iterable[int]) -> Mapping[int, frozenset[int]]:
        """Return *cpus* by the part of *level* that they lie in."""
        groups: dict[int, set[int]] = {}
        for cpu in cpus:
            groups.setdefault(getattr(self.places[cpu], level), set()).add(cpu)
        return {part: frozenset(members) for part, members in groups.items()}

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that have CPUs, ascending."""
        return tuple(sorted(self.members("numa")))

    @cached_property
    def cpus(self) -> frozenset[int]:
        return frozenset(self.places)

    @cached_property
    def installed(self) -> Mapping[int, int]:
        """The number of CPUs of each NUMA node that has any."""
        return {node: len(self.members("numa")[node]) for node in self.nodes}

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
        return Counter(self.places[cpu].numa for cpu in cpus if cpu in self.places)

    def sockets_of(self, nodes: Iterable[int]) -> frozenset[int]:
        wanted = frozenset(nodes)
        return frozenset(place.socket for place in self.places.values() if place.numa in wanted)


def cpu_layout(nodes: Iterable[NumaNode], cpu: CpuTopology) -> CpuLayout:
    """Return the layout that the kernel shows, as the kubelet reads it from cadvisor.

    A last-level cache counts only where it is not one whole NUMA node's (cadvisor 0.56
    utils/sysinfo). Without one, the socket's number takes the place of the cache's, and the kubelet
    takes both for one cache where another cache has that number (cpumanager/topology,
    getUncoreCacheID). Caches of unknown number count as different from any socket.
    """
    sockets = {number: socket.id for socket in cpu.sockets for number in socket.cpus}
    cores = {number: min(core) for core in cpu.cores for number in core}
    is_numbered = len(cpu.l3_ids) == len(cpu.l3_groups)
    ids = cpu.l3_ids if is_numbered else [-1 - min(group) for group in cpu.l3_groups]
    caches = {
        number: cache for cache, group in zip(ids, cpu.l3_groups, strict=True) for number in group
    }
    sizes = Counter(caches.values())
    places: dict[int, CpuPlace] = {}
    for node in nodes:
        members = [number for number in node.cpus if number in cpu.online]
        threads = Counter(cores.get(number, number) for number in members)
        for number in members:
            core, socket = cores.get(number, number), sockets.get(number, 0)
            whole = len(threads) * threads[core]
            is_split = number in caches and sizes[caches[number]] != whole
            places[number] = CpuPlace(node.id, socket, core, caches[number] if is_split else socket)
    by_socket = {place.cache >= 0 for place in places.values()}  # or by a cache, in this case
    return CpuLayout(
        places=places,
        sockets=len(cpu.sockets) or 1,
        has_cache_ids=is_numbered or len(by_socket) < 2,
    )


def take_packed(
    layout: CpuLayout,
    free: frozenset[int],
    wanted: int,
    *,
    by_cache: bool = False,
    spread_cores: bool = False,
) -> frozenset[int]:
    """Return *wanted* of the *free* CPUs, on as few parts of the machine as possible.

    Whole NUMA nodes and sockets come first, the larger of both before the other, then whole caches
    on request, whole cores, and single CPUs; among equals the part with the fewest free CPUs, then
    the lowest number.

    Args:
        by_cache: option ``prefer-align-cpus-by-uncorecache``.
        spread_cores: option ``distribute-cpus-across-cores``.
    """
    if wanted < 1:
        return frozenset()
    accumulator = _CpuAccumulator(layout, free, wanted)
    outer, inner = accumulator.levels
    accumulator.take_whole(outer, accumulator.ordered(outer))
    accumulator.take_whole(inner, accumulator.ordered(outer, inner))
    if by_cache:
        accumulator.take_caches()
    if not spread_cores:
        accumulator.take_whole("core", accumulator.ordered(outer, inner, "core"))
    accumulator.take_single(spread_cores=spread_cores)
    return accumulator.taken


def take_spread(
    layout: CpuLayout,
    free: frozenset[int],
    wanted: int,
    group: int,
    *,
    by_socket: bool = False,
) -> frozenset[int]:
    """Return *wanted* of the *free* CPUs evenly over NUMA nodes, packed where no spread is even.

    Option ``distribute-cpus-across-numa``, as the kubelet does it and not as it means to: the
    combinations of four, six and more nodes that it remembers share memory with those that it
    tries after them, so the last node of the best one can become another.

    Args:
        group: CPUs that are given together.
        by_socket: prefer nodes of one socket, and give each a share that the one with the fewest
            free CPUs has too; 1.37 with option ``align-by-socket``.
    """
    if wanted % group:
        return take_packed(layout, free, wanted)
    if wanted < 1:
        return frozenset()
    accumulator = _CpuAccumulator(layout, free, wanted)
    nodes = accumulator.ordered_by("numa")
    counts = {node: len(cpus) for node, cpus in layout.grouped("numa", accumulator.free).items()}
    groups = (len(layout.places) - 1) // group + 1
    per_node = (groups - 1) // len(layout.nodes) + 1
    needed = (wanted - 1) // group + 1
    for size in range((needed - 1) // per_node + 1, min(needed, len(counts)) + 1):
        best = _Spread()
        for combination in _combinations(nodes, size):
            if best.balance == 0 and (best.is_in_socket or not by_socket):
                break
            spread = _spread_over(combination, counts, wanted, group, by_socket=by_socket)
            if spread is None:
                continue
            spread.is_in_socket = by_socket and len(layout.sockets_of(combination.read())) <= 1
            if spread.is_before(best):
                best = spread
        if best.combination is not None:
            takers = best.remainder.read() if best.remainder else []
            chosen = best.combination.read()
            _take_spread(accumulator, chosen, takers, group, by_socket=by_socket)
            return accumulator.taken
    return take_packed(layout, free, wanted)


class _CpuAccumulator:
    """Free CPUs while some are taken."""

    def __init__(self, layout: CpuLayout, free: frozenset[int], wanted: int) -> None:
        self.layout = layout
        # Still to be taken, by the kubelet's own count, which falls too far where a part is listed
        # twice, such as a cache that spans NUMA nodes.
        self.wanted = wanted
        self.taken: frozenset[int] = frozenset()
        self.free = free & layout.cpus
        if wanted > len(self.free):
            problem = f"not enough cpus available to satisfy request: requested={wanted}"
            raise NotEnoughCpusError(f"{problem}, available={len(free)}")
        is_node_first = layout.sockets >= len(layout.nodes)
        # NUMA nodes and sockets, the larger of both first.
        self.levels = ("numa", "socket") if is_node_first else ("socket", "numa")

    def take(self, cpus: frozenset[int]) -> None:
        """Take *cpus*, which count even where they were taken before."""
        self.taken |= cpus
        self.free -= cpus
        self.wanted -= len(cpus)

    def take_whole(self, level: str, parts: list[int]) -> None:
        """Take the fully free *parts*, while whole parts are wanted.

        Cores and sockets are whole with the average number of CPUs, others with all their CPUs.
        """
        free, members = self.layout.grouped(level, self.free), self.layout.members(level)
        sizes = {"core": self.layout.per_core, "socket": self.layout.per_socket}
        whole = [part for part in parts if len(free[part]) == sizes.get(level, len(members[part]))]
        for part in whole:
            if self.wanted >= len(members[part]):
                self.take(members[part])

    def take_caches(self) -> None:
        """Take whole caches, then what fits the first cache that has as much left."""
        for cache in self.ordered_by("numa", "cache"):
            if self.wanted >= self.layout.per_cache:
                self.take_whole("cache", self.ordered_by("numa", "cache"))
            if self.wanted < 1:
                return
            # Whole cores of this cache, or one CPU less where an odd number is wanted.
            members = self.layout.grouped("cache", self.free).get(cache, frozenset())
            cores = self.layout.grouped("core", self.free)
            per_core = self.layout.per_core
            needed = -(-self.wanted // per_core)
            chosen = sorted({self.layout.places[cpu].core for cpu in members})[:needed]
            cpus = sorted(cpu for core in chosen for cpu in cores[core])
            if self.wanted % 2 and per_core > 1 and len(cpus) > self.wanted:
                cpus.pop()
            if len(cpus) == self.wanted:
                self.take(frozenset(cpus))
            if self.wanted < 1:
                return

    def take_single(self, *, spread_cores: bool) -> None:
        if spread_cores:
            level, parts = "socket", self.ordered_by("socket")
        else:
            level, parts = "core", self.ordered(*self.levels, "core")
        members = self.layout.grouped(level, self.free)
        for cpu in [cpu for part in parts for cpu in sorted(members[part])]:
            if self.wanted < 1:
                return
            self.take(frozenset({cpu}))

    def ordered_by(self, level: str, *below: str) -> list[int]:
        """Return :meth:`ordered` for NUMA nodes or sockets, with the larger level before."""
        return self.ordered(*self.levels[: self.levels.index(level) + 1], *below)

    def ordered(self, *levels: str) -> list[int]:
        """Return the parts of the last of *levels* with free CPUs, ordered by earlier levels.

        Within the same part, the one with the fewest free CPUs comes first, then the lowest number.
        """
        counts = {
            level: {part: len(cpus) for part, cpus in self.layout.grouped(level, self.free).items()}
            for level in levels
        }

        def in_order(level: str, parts: Iterable[int]) -> list[int]:
            return sorted(parts, key=lambda part: (counts[level][part], part))

        parts = in_order(levels[0], counts[levels[0]])
        for outer, inner in pairwise(levels):
            members = self.layout.grouped(outer, self.free)
            parts = [
                within
                for part in parts
                for within in in_order(inner, self.layout.grouped(inner, members[part]))
            ]
        return parts


class _Slice(Struct):
    """The first *length* items of a list that others can write to, as a slice of Go."""

    items: list[int]
    length: int

    def read(self) -> list[int]:
        return self.items[: self.length]

    def appended(self, item: int) -> "_Slice":
        """Append as Go does: in place while there is room, else in a copy of twice the room."""
        items = self.items
        if self.length == len(items):
            items = [*items, *[0] * max(len(items), 1)]
        items[self.length] = item
        return _Slice(items, self.length + 1)


class _Spread(Struct):
    """The best spread so far: its nodes, and those that take the remainder."""

    balance: float = math.inf
    combination: _Slice | None = None
    remainder: _Slice | None = None
    is_in_socket: bool = False

    def is_before(self, other: "_Spread") -> bool:
        if self.is_in_socket != other.is_in_socket:
            return self.is_in_socket
        return self.balance < other.balance


def _share(
    nodes: Sequence[int], free: Mapping[int, int], wanted: int, group: int, *, by_socket: bool
) -> int:
    """Return how many CPUs each of *nodes* gives before the remainder is shared out."""
    share = wanted // len(nodes) // group * group
    return min(share, *(free[node] // group * group for node in nodes)) if by_socket else share


def _spread_over(
    combination: _Slice, free: Mapping[int, int], wanted: int, group: int, *, by_socket: bool
) -> _Spread | None:
    """Return how even the nodes would be left; ``None`` where *combination* cannot serve."""
    nodes = combination.read()
    share = _share(nodes, free, wanted, group, by_socket=by_socket)
    groups = sum(free[node] // group for node in nodes)
    if groups * group < wanted or any(free[node] < share for node in nodes):
        return None
    left = {node: amount - (share if node in nodes else 0) for node, amount in free.items()}
    remainder = wanted - share * len(nodes)
    best = _Spread(combination=combination)
    if remainder == 0:
        best.balance = _deviation(list(left.values()))
    takers = [node for node in nodes if left[node] >= group]
    for size in range(len(takers), 0, -1) if remainder else ():
        for subset in _combinations(takers, size):
            chosen = subset.read()
            if sum(left[node] for node in chosen) < remainder:
                continue
            after = dict(left)
            for node in _turns(chosen, after, remainder, group):
                after[node] -= group
            balance = _deviation(list(after.values()))
            if balance < best.balance:
                best.balance, best.remainder = balance, subset
    return best if best.balance < math.inf else None


def _take_spread(
    accumulator: _CpuAccumulator,
    nodes: list[int],
    takers: list[int],
    group: int,
    *,
    by_socket: bool,
) -> None:
    """Take an equal share of each of *nodes*, and the remainder of *takers* in turn."""
    layout = accumulator.layout

    def free_on(node: int) -> frozenset[int]:
        return layout.grouped("numa", accumulator.free).get(node, frozenset())

    def take_from(node: int, wanted: int) -> None:
        free = free_on(node)
        if wanted <= len(free):  # else the kubelet takes none, and finds out in the end
            accumulator.take(take_packed(layout, free, wanted))

    counts = {node: len(free_on(node)) for node in nodes}
    share = _share(nodes, counts, accumulator.wanted, group, by_socket=by_socket)
    remainder = accumulator.wanted - share * len(nodes)
    for node in nodes:
        take_from(node, share)
    left = {node: len(free_on(node)) for node in takers}
    for node in _turns(takers, left, remainder, group):
        take_from(node, group)
        left[node] = len(free_on(node))
    if accumulator.wanted:
        less = "not enough" if accumulator.wanted > 0 else "too many"
        problem = f"accounting error, {less} CPUs allocated, remaining: {accumulator.wanted}"
        raise NotEnoughCpusError(problem)


def _turns(
    takers: Sequence[int], left: Mapping[int, int], remainder: int, group: int
) -> Iterator[int]:
    """Yield the takers of the *remainder* in turn, a *group* each, while *left* has one for them.

    The caller updates *left* after each turn.
    """
    while remainder > 0:
        before = remainder
        for node in takers:
            if remainder and left[node] >= group:
                yield node
                remainder -= group
        if remainder == before:
            raise NotEnoughCpusError("the kubelet would try to spread the CPUs for ever")


def _deviation(amounts: Sequence[int]) -> float:
    """Return the standard deviation, rounded as the kubelet rounds it."""

    def rounded(value: float) -> float:
        return math.floor(value * _STEPS + 0.5) / _STEPS

    mean = rounded(sum(amounts) / len(amounts))
    return rounded(math.sqrt(sum((amount - mean) ** 2 for amount in amounts) / len(amounts)))


def _combinations(items: Sequence[int], count: int) -> Iterator[_Slice]:
    """Yield all choices of *count* of *items*, lists shared as Go's ``append`` shares them."""

    def choices(chosen: _Slice, start: int) -> Iterator[_Slice]:
        if chosen.length == count:
            yield chosen
            return
        for position in range(start, len(items) - (count - chosen.length) + 1):
            yield from choices(chosen.appended(items[position]), position + 1)

    if count >= 1:
        yield from choices(_Slice([], 0), 0)
