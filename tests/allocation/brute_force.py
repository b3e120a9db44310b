"""The best set by definition: every set is looked at, term by term.

Written from docs/internals/placement.md; it shares no code with nodetopo.allocation.
Figures of every subset are kept, so that thousands of requests to one machine cost little.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from fractions import Fraction
from functools import cache
from itertools import combinations
from typing import TypeVar

from nodetopo.allocation.rules import DEFAULT, Model, Policy, Rules
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_facts import Machine, tenths
from tests.allocation.brute_packing import Packing, bits
from tests.allocation.brute_rings import Pair, Trees, closing, members, most_rings

EXACT_RINGS = 8
"""A set of up to so many GPUs has all rings counted that share no link, a larger one has one."""

_WIDTH = ("bandwidth_gb_s", "models", "pair_bandwidth_gb_s")
_PLACE = ("numa_nodes", "sockets")
_LEFT = ("remainder_value",)
_HCAS = ("hca_far", "rail_loss", "hca_distance")
_EVEN = ("crowding",)
_END = ("broken_partitions", "shortfall_gb_s", "reach_gb_s")

ORDERS = {
    Policy.BEST: (*_WIDTH, *_PLACE, *_LEFT, *_HCAS, *_END),
    Policy.NUMA_FIRST: (*_PLACE, *_WIDTH, *_LEFT, *_HCAS, *_END),
    Policy.PACKED: (*_LEFT, *_WIDTH, *_PLACE, *_HCAS, *_END),
    Policy.DISTRIBUTED: (*_EVEN, *_WIDTH, *_PLACE, *_HCAS, *_LEFT, *_END),
    Policy.NIC_REQUIRED: (*_HCAS, *_WIDTH, *_PLACE, *_LEFT, *_END),
}
"""The terms of three GPUs or more, after the degraded ones and before the order."""

MORE_IS_BETTER = {"bandwidth_gb_s", "pair_bandwidth_gb_s", "remainder_value"}

EQUAL = Fraction(94, 100)
"""The share of a bandwidth that counts as all of it."""

Term = Callable[[int, int], int]
"""(set, free) → a figure; both are bit masks of positions in the universe."""


Figure = TypeVar("Figure")

_NO_WIDTHS: frozenset[int] = frozenset()


class BruteForce:
    """The objective of one machine, for sets within *universe*: GPU indices, by default all.

    What a set is worth depends on nothing outside the free GPUs but how many are in use on
    each NUMA node; so a few GPUs of a large machine are judged without the rest.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        rules: Rules = DEFAULT,
        universe: Collection[int] | None = None,
    ) -> None:
        self.machine = Machine(snapshot, rules.measured)
        self.rules = rules
        self._look_at(universe)

    def within(self, universe: Collection[int]) -> "BruteForce":
        """The same for other sets."""
        other = copy(self)
        other._look_at(universe)
        return other

    def _look_at(self, universe: Collection[int] | None) -> None:
        known = self.machine.indices
        self.universe = sorted(known if universe is None else universe)
        self._at = [known.index(index) for index in self.universe]
        self._count = len(self._at)
        self._tabulate()
        self.terms: Mapping[str, Term] = {
            "bandwidth_gb_s": lambda mask, _: self.bandwidth(mask),
            "shortfall_gb_s": lambda mask, _: -self.bandwidth(mask),
            "pair_bandwidth_gb_s": self._pair_sum,
            "models": lambda mask, _: _touched(self._models, mask),
            "numa_nodes": lambda mask, _: _touched(self._nodes, mask),
            "sockets": lambda mask, _: _touched(self._sockets, mask),
            "remainder_value": lambda mask, free: self._packing.total(free ^ mask),
            "hca_far": lambda mask, _: (mask & self._far).bit_count(),
            "rail_loss": lambda mask, _: self._rail_loss(mask),
            "hca_distance": lambda mask, _: self._hca_distance(mask),
            "hca_nearness": lambda mask, _: self._hca_nearness(mask),
            "rails_beside": lambda mask, _: self._rails_beside(mask),
            "broken_partitions": self._broken,
            "crowding": self._crowding,
            "reach_gb_s": lambda mask, _: sum(self._reach[member] for member in members(mask)),
        }

    def _tabulate(self) -> None:
        machine, at = self.machine, self._at
        self._links = self._within(machine.links)
        self._hops = self._within(machine.hops)
        self._reach = [sum(hop for p, hop in machine.hops.items() if place in p) for place in at]
        self._rates = self._within(machine.rates)
        self._nodes = _members_of([machine.nodes[place] for place in at])
        self._sockets = _members_of([machine.sockets[place] for place in at])
        self._models = _members_of([machine.models[place] for place in at])
        self._far = sum(1 << n for n, place in enumerate(at) if machine.far[place])
        groups = (
            sum(1 << at.index(p) for p in group) for group in machine.groups if group <= {*at}
        )
        self._groups = tuple(groups)
        self._trees = Trees(self._links)
        self._packing = Packing(self._worth, self._count)
        self._sets = {
            frozenset(gpus): width
            for gpus, width in (self.rules.measured.sets if self.rules.measured else {}).items()
        }
        self.bandwidth = cache(self._bandwidth)
        self._of_size = cache(self._classes_of_size)
        self._of_pairs = cache(self._classes_of_pairs)
        self._plain_pairs = cache(self._sum_of_pairs)
        self._has_classes = self._classes_are_several(self._hops.values())
        self._hca_distance = cache(self._sum_of_steps)
        self._rail_loss = cache(self._without_an_hca)
        self._hcas = cache(self._nearest_hcas)
        self._widths = cache(self._all_widths)
        self._is_linked = cache(self._any_link)
        self._closing = cache(self._closing_at)

    def _within(self, figures: Mapping[Pair, Figure]) -> dict[Pair, Figure]:
        return {
            frozenset((a, b)): figures[frozenset((self._at[a], self._at[b]))]
            for a, b in combinations(range(self._count), 2)
        }

    # --- bandwidth, 0.1 GB/s ---------------------------------------------------------------

    def _classes_of_size(self, size: int) -> dict[int, int]:
        """As what the bandwidth of a later job counts, among all jobs of its size."""
        everyone = (1 << self._count) - 1
        return _classes(self.bandwidth(mask) for mask in sets(everyone, 0, size))

    def _classes_of_pairs(self, free: int) -> dict[int, int]:
        """As what the bandwidth of two free GPUs counts, among all pairs of free GPUs."""
        return _classes(self._hops[frozenset(pair)] for pair in combinations(members(free), 2))

    def _classes_are_several(self, bandwidths: Iterable[int]) -> bool:
        return any(width != top for width, top in _classes(bandwidths).items())

    def _bandwidth(self, mask: int) -> int:
        """What was measured of the set, or the model."""
        measured = self._sets.get(frozenset(self.indices(mask)))
        return self._modelled(mask) if measured is None else measured

    def _modelled(self, mask: int) -> int:
        if mask.bit_count() < 2:
            return 0
        if mask.bit_count() == 2 or not self._is_linked(mask):
            return min(self._widths(mask))
        if self.machine.is_switched:
            return self._widest(mask)
        pairs = [frozenset(pair) for pair in combinations(members(mask), 2)]
        link = min(self._rates[pair] for pair in pairs if self._links[pair])
        rings = self._rings(mask)
        found = tenths(2 * rings * link) if rings else self._widest(mask)
        if self.rules.model is Model.RELAY:
            return max(found, tenths(self._trees.most(mask) * link))
        return found

    def _rings(self, mask: int) -> int:
        if not self._closing(None)[mask]:
            return 0
        return most_rings(self._links, members(mask)) if mask.bit_count() <= EXACT_RINGS else 1

    def _widest(self, mask: int) -> int:
        """The narrowest hop of the ring whose narrowest hop is the widest."""
        widths = sorted(self._widths(mask), reverse=True)
        return next(width for width in widths if self._closing(width)[mask])

    def _closing_at(self, width: int | None) -> bytearray:
        """Which sets close a ring over hops of *width* or more; over NVLinks for None."""
        if width is None:
            return closing(self._count, {pair for pair, n in self._links.items() if n})
        return closing(self._count, {pair for pair, hop in self._hops.items() if hop >= width})

    # What follows is told from the same of the set without its lowest GPU, and that one's pairs.

    def _all_widths(self, mask: int) -> frozenset[int]:
        rest = mask & (mask - 1)
        return (
            self._widths(rest).union(self._hops[pair] for pair in _of_lowest(mask))
            if rest
            else _NO_WIDTHS
        )

    def _any_link(self, mask: int) -> bool:
        """Whether NVLink joins any two of the set."""
        lower = mask & (mask - 1)
        return bool(mask) and (
            self._is_linked(lower) or any(self._links[pair] for pair in _of_lowest(mask))
        )

    def _sum_of_pairs(self, mask: int) -> int:
        if not mask:
            return 0
        return self._plain_pairs(mask & (mask - 1)) + sum(self._hops[p] for p in _of_lowest(mask))

    def _pair_sum(self, mask: int, free: int) -> int:
        """The bandwidths of all pairs, each as the highest of its class among the free."""
        if not self._has_classes:
            return self._plain_pairs(mask)
        counted = self._of_pairs(free)
        return sum(counted[self._hops[frozenset(p)]] for p in combinations(members(mask), 2))

    def _worth(self, mask: int) -> int:
        """What a later job gets from a set, 0.01 GB/s: a tenth less for either crossing."""
        nodes, sockets = _touched(self._nodes, mask), _touched(self._sockets, mask)
        counted = self._of_size(mask.bit_count())[self.bandwidth(mask)]
        return counted * (10 - (nodes > 1) - (sockets > 1))

    # --- HCAs, partitions, crowding --------------------------------------------------------

    def _sum_of_steps(self, mask: int) -> int:
        return sum(self.machine.steps[self._at[member]] for member in members(mask))

    def _hca_nearness(self, mask: int) -> int:
        """From 5 for an HCA on the same switch to 1 for one on the socket; 0 for none there."""
        places = [self._at[member] for member in members(mask)]
        near = [
            place for place in places if self.machine.steps[place] and not self.machine.far[place]
        ]
        return sum(6 - self.machine.steps[place] for place in near)

    def _rails_beside(self, mask: int) -> int:
        """The HCAs nearest to each GPU, and those nearest to any GPU of the node on its socket."""
        near, sockets = self.machine.near, self.machine.sockets
        places = [self._at[member] for member in members(mask)]
        return sum(
            len(near[place])
            + len(
                set().union(*(n for n, s in zip(near, sockets, strict=True) if s == sockets[place]))
            )
            for place in places
        )

    def _without_an_hca(self, mask: int) -> int:
        """GPUs that cannot have a nearest HCA each.

        By König and Ore: the most by which a part of the set outnumbers its HCAs. That part
        is the whole set, or lies in the set without one of its GPUs.
        """
        if not mask or not any(self.machine.near):
            return 0
        wished = self._hcas(mask).bit_count()
        return max(mask.bit_count() - wished, *[self._rail_loss(mask ^ bit) for bit in bits(mask)])

    def _nearest_hcas(self, mask: int) -> int:
        """The HCAs nearest to any GPU of the set, as a mask."""
        if not mask:
            return 0
        near = self.machine.near[self._at[members(mask)[0]]]
        return self._hcas(mask & (mask - 1)) | sum(1 << hca for hca in near)

    def _broken(self, mask: int, free: int) -> int:
        """Whole groups of *free* of which the set takes a part."""
        whole = [group for group in self._groups if group & free == group]
        return sum(1 for group in whole if group & mask and group & ~mask)

    def _crowding(self, mask: int, free: int) -> int:
        """Squares of the GPUs of each NUMA node that are not free once the set is taken."""
        spare = {self.machine.nodes[self._at[n]] for n in members(free ^ mask)}
        left = {node: (self._nodes[node] & (free ^ mask)).bit_count() for node in spare}
        everyone = self.machine.nodes
        return sum((everyone.count(node) - left.get(node, 0)) ** 2 for node in set(everyone))

    def _names(self, size: int) -> tuple[str, ...]:
        """The terms by which sets of the size are compared; none is degraded or the order.

        The pair of two GPUs is their set. One GPU has no bandwidth, and stays away from HCAs
        unless the policy wants them.
        """
        order = ORDERS[self.rules.policy]
        if size == 1:
            order = tuple(name for name in order if name not in (*_WIDTH, "shortfall_gb_s"))
            if self.rules.policy is not Policy.NIC_REQUIRED:
                at = order.index(_HCAS[0])
                order = (*order[:at], "hca_nearness", "rails_beside", *order[at + len(_HCAS) :])
        return tuple(name for name in order if size != 2 or name != "pair_bandwidth_gb_s")

    # --- the answer ------------------------------------------------------------------------

    def mask(self, indices: Iterable[int]) -> int:
        """The set of these GPUs."""
        return sum(1 << self.universe.index(index) for index in set(indices))

    def indices(self, mask: int) -> tuple[int, ...]:
        """The GPUs of a set, ascending."""
        return tuple(self.universe[member] for member in members(mask))

    def best(self, free: int, required: int, size: int) -> int:
        """The best set of a request."""
        return self.best_of(sets(free, required, size), free)[0]

    def best_of(self, sets: Iterable[int], free: int) -> tuple[int, int]:
        """The best of *sets* of one size, and the greatest bandwidth of those equal until there.

        Of those that are equal so far only the best in the next term stay, but in bandwidth all
        that have 94 % of the best.
        """
        left, top = list(sets), 0
        for name in self._names(left[0].bit_count()):
            if name == "bandwidth_gb_s":
                top = max(map(self.bandwidth, left))
                left = [mask for mask in left if self.bandwidth(mask) >= EQUAL * top]
                continue
            if len(left) == 1 and top:
                break
            term, sign = self.terms[name], -1 if name in MORE_IS_BETTER else 1
            figures = [sign * term(mask, free) for mask in left]
            least = min(figures)
            left = [mask for mask, figure in zip(left, figures, strict=True) if figure == least]
        return min(left, key=self.indices), top

    def first(self, free: int, required: int, size: int, count: int) -> list[tuple[int, ...]]:
        """The *count* best sets of a request as indices."""
        return self.first_of(sets(free, required, size), free, count)

    def first_of(self, able: Iterable[int], free: int, count: int) -> list[tuple[int, ...]]:
        """The *count* best of *able*: the best, the best of the others, and so on."""
        left = set(able)
        found: list[tuple[int, ...]] = []
        while left and len(found) < count:
            best, _ = self.best_of(left, free)
            found.append(self.indices(best))
            left.remove(best)
        return found

    def plain(self, mask: int, free: int, top: int) -> dict[str, object]:
        """The score of a set as the answer prints it: GB/s, and indices; *top* of the request."""
        shown: dict[str, object] = {name: term(mask, free) for name, term in self.terms.items()}
        bandwidth = self.bandwidth(mask)
        counts_as = top if EQUAL * top <= bandwidth <= top else bandwidth
        has_bandwidth = mask & (mask - 1)
        shown["degraded"] = 0
        shown["bandwidth_gb_s"] = bandwidth / 10 if has_bandwidth else None
        shown["counts_as_gb_s"] = counts_as / 10 if has_bandwidth else None
        shown["shortfall_gb_s"] = (counts_as - bandwidth) / 10 if has_bandwidth else None
        shown["reach_gb_s"] = self.terms["reach_gb_s"](mask, free) / 10
        shown["pair_bandwidth_gb_s"] = self._pair_sum(mask, free) / 10
        shown["remainder_value"] = self._packing.total(free ^ mask) / 100
        return {**shown, "order": list(self.indices(mask))}

    def answer(self, free: Iterable[int], required: Iterable[int], size: int) -> tuple[int, ...]:
        """The best set of GPU indices."""
        return self.indices(self.best(self.mask(free), self.mask(required), size))


def _classes(bandwidths: Iterable[int]) -> dict[int, int]:
    """As what each counts: the highest that is reached over steps of no more than 6 %."""
    found: dict[int, int] = {}
    for width in sorted({*bandwidths}, reverse=True):
        higher = [other for other in found if width >= EQUAL * other]
        found[width] = found[min(higher)] if higher else width
    return found


def sets(free: int, required: int, size: int) -> Iterator[int]:
    """Every set of *size* within *free* that has all of *required*."""
    missing = size - required.bit_count()
    for some in combinations(bits(free & ~required), missing):
        yield required + sum(some)


@cache
def _of_lowest(mask: int) -> tuple[Pair, ...]:
    """The pairs of the lowest GPU of a set with each of the others."""
    lowest, *others = members(mask)
    return tuple(frozenset((lowest, other)) for other in others)


def _members_of(places: list[object]) -> dict[object, int]:
    found: dict[object, int] = {}
    for position, place in enumerate(places):
        found[place] = found.get(place, 0) | 1 << position
    return found


def _touched(places: Mapping[object, int], mask: int) -> int:
    return sum(1 for inside in places.values() if inside & mask)
