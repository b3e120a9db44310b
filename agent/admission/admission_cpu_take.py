"""Which CPUs the CPU Manager takes out of those that are free, packed onto as few parts as it can.

Semantics of kubernetes 1.36 pkg/kubelet/cm/cpumanager/cpu_assignment.go
(takeByTopologyNUMAPacked): whole NUMA nodes and sockets, whole caches on request, whole cores,
then single CPUs; among equals the part with the fewest free CPUs, then the lowest number.
"""

from collections.abc import Iterable
from itertools import pairwise

from agent.admission.cpu_assignment import CpuLayout, grouped


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
