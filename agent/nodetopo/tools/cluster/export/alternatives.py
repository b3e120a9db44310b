"""The alternatives of a claim: groups of GPUs to try, in order, for a good placement.

The Kubernetes allocator takes the first alternative that a node's free devices satisfy, and the
first of its devices that fit, in the order of the driver's slices
(k8s.io/dynamic-resource-allocation v0.36.3 ``structured``). NVIDIA's driver publishes in random
order, so no order is assumed: any set that an alternative admits can be taken.

The list is built by insertion. For every possible set of free GPUs, the choice of placement is
known, and so the cost of each alternative there. Starting from "any", the alternative and position
that lower the total cost the most are added, until the list has eight or no addition is worth it.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations, islice
from math import comb

from msgspec import Struct

from nodetopo.allocation.engines import engine_for
from nodetopo.allocation.facts import facts
from nodetopo.allocation.masks import bits, positions
from nodetopo.allocation.terms import Terms
from nodetopo.model.dra import NUMA_NODE, PCIE_ROOT
from nodetopo.model.snapshot import Snapshot

MOST = 8
"""Alternatives of a request (k8s.io/api v0.36.3 resource/v1
``FirstAvailableDeviceRequestMaxSize``)."""

LARGEST_WHOLE = 10
"""Most GPUs for which every possible set of free GPUs is examined; beyond, :data:`SAMPLED` of them.
"""

SAMPLED = 256
"""Free sets of a larger node, drawn by a fixed rule."""

MOST_OUTCOMES = 70
"""Sets examined per alternative, evenly among all: all the sets of 4 of 8 GPUs."""

MOST_WAYS = 20_000
"""Sets up to which those are taken from among all: 8 of 16 GPUs are 12,870. Of more GPUs, which no
known machine has, only neighbours are looked at."""

MOST_SETS = 256
"""Most sets of the wanted size for which each is a separate candidate: 70 of 4 of 8 GPUs."""

WORTH = 0.0005
"""How much an alternative must lower the mean cost of the free sets to be worth its line, where a
set that is worse than the best one costs 1."""

LEFT = 1.0
"""Cost of leaving no value in the remaining GPUs for later jobs, where a worse set costs 1: the
remainder decides only between equally good sets.
"""


ROUNDS = 4
"""Times that the list is gone through once more to exchange alternatives for better ones."""


class Alternative(Struct, frozen=True, kw_only=True):
    """*count* of the GPUs *among* (a mask of positions), equal in the attribute *match* if any."""

    count: int
    among: int
    match: str | None = None


class Layout:
    """The selectable GPUs of a node, with the placement score of each set of them."""

    def __init__(
        self,
        snapshot: Snapshot,
        matchable: Container[str] = (NUMA_NODE, PCIE_ROOT),
        nic_nodes: Container[int | None] = (),
    ) -> None:
        """Look at *snapshot*; the claims match a NIC on one of *nic_nodes*, empty for none."""
        self._snapshot = snapshot
        self._values: dict[int, int] = {}
        self._ranks: dict[int, tuple[int, ...]] = {}
        # The claimable GPUs: neither lost nor divided into MIG devices, and with a PCI address; a
        # mask of positions in the snapshot.
        self.everyone = sum(
            1 << at
            for at, gpu in enumerate(snapshot.gpus)
            if gpu.pci is not None
            and not gpu.is_lost
            and not (gpu.mig is not None and gpu.mig.is_enabled)
        )
        # The GPUs of each NUMA node and PCIe root, by attribute; masks. An attribute is left out
        # unless all GPUs are known to have it.
        self.places = {
            name: masks
            for name, of in (
                (NUMA_NODE, [gpu.numa_node for gpu in snapshot.gpus]),
                (PCIE_ROOT, [gpu.path and gpu.path.root for gpu in snapshot.gpus]),
            )
            if (masks := _equal(of, self.everyone))
        }
        # The subset that a claim can match: `matchable` attributes, published by the driver.
        self.shared = {name: it for name, it in self.places.items() if name in matchable}
        near = self.everyone & sum(
            1 << at for at, gpu in enumerate(snapshot.gpus) if gpu.numa_node in nic_nodes
        )
        # The GPUs that can have a NIC on their NUMA node; all where that makes no difference.
        self.near = near or self.everyone

    @cached_property
    def terms(self) -> Terms:
        return Terms(facts(self._snapshot))

    @cached_property
    def _engine(self) -> "Callable[[int, int], int]":
        engine = engine_for(self.terms)
        return lambda free, size: engine.best(free=free, required=0, size=size)

    def value_left(self, left: int) -> int:
        """Return the value of the GPUs *left* for later jobs."""
        if left not in self._values:
            self._values[left] = self.terms.value_left(left)
        return self._values[left]

    def best(self, free: int, size: int) -> int:
        """Return the set of *size* GPUs that placement takes of *free*.

        Of sets that are as good by themselves, it takes one near NICs.
        """
        best, near = self._engine(free, size), free & self.near
        if near != free and near.bit_count() >= size:
            nearest = self._engine(near, size)
            if self.rank(nearest) <= self.rank(best):
                return nearest
        return best

    def rank(self, taken: int) -> tuple[int, ...]:
        """Return the terms of a set that placement compares before the remainder.

        The last is the number of its GPUs that are not near a NIC.
        """
        known = self._ranks.get(taken)
        if known is None:
            names = self.terms.order(taken.bit_count())
            names = names[: names.index("remainder_value")]
            own = tuple(self.terms.figure(name)(taken, taken) for name in names)
            self._ranks[taken] = known = (*own, (taken & ~self.near).bit_count())
        return known


def _equal(values: Sequence[object], everyone: int) -> tuple[int, ...]:
    groups: dict[object, int] = {}
    for at in positions(everyone):
        groups[values[at]] = groups.get(values[at], 0) | 1 << at
    return () if None in groups else tuple(groups.values())


def _within(members: int, masks: Iterable[int]) -> bool:
    return any(members & mask == members for mask in masks)


def ranked(layout: Layout, size: int) -> tuple[Alternative, ...]:
    """Return the alternatives for *size* GPUs, the first to try first; the last is any of them."""
    anyone = Alternative(count=size, among=layout.everyone)
    if size >= layout.everyone.bit_count():
        return (anyone,)
    return _List(layout, size).built(anyone)


def plain(layout: Layout, size: int) -> Alternative:
    """Return the best single request without alternatives.

    It is the weakest of the requests that most often lead to a best set of a free node. If it has
    an attribute, the claim waits until enough GPUs have an equal value of it.
    """
    anyone = Alternative(count=size, among=layout.everyone)
    if size >= layout.everyone.bit_count():
        return anyone
    built = _List(layout, size)
    choices = [anyone]
    choices += [
        Alternative(count=size, among=layout.everyone, match=attribute)
        for attribute in layout.shared
    ]
    return max(choices, key=built.luck)


def _exactly(gain: tuple[float, int, Alternative]) -> float:
    """Return how much an alternative gains, without the noise of adding up floats.

    Of equal ones the first candidate is taken, so that jobs of all sizes begin at the same end.
    """
    return round(gain[0], 6)


class _List:
    """The list while it is built; a state is a set of free GPUs that suffices, by its number."""

    def __init__(self, layout: Layout, size: int) -> None:
        self._layout = layout
        self._size = size
        self._states = tuple(_states(layout.everyone, size))
        self._best = tuple(layout.best(free, size) for free in self._states)
        self._whole = max(layout.value_left(layout.everyone), 1)
        self._costs: dict[Alternative, dict[int, float]] = {}

    def built(self, last: Alternative) -> tuple[Alternative, ...]:
        chosen = [last]
        candidates = [each for each in self._candidates() if each != last]
        while len(chosen) < MOST:
            gain, at, found = max((self._gain(chosen, each) for each in candidates), key=_exactly)
            if gain < WORTH * len(self._states):
                break
            chosen.insert(at, found)
        self._refine(chosen, candidates)
        return tuple(chosen)

    def luck(self, each: Alternative) -> float:
        """Return the share of best sets among the sets that *each* can lead to on a free node."""
        everyone = self._layout.everyone
        found = self._outcomes(each, everyone)
        best = self._layout.rank(self._layout.best(everyone, self._size))
        return (
            sum(self._layout.rank(outcome) == best for outcome in found) / len(found)
            if found
            else -1.0
        )

    def _refine(self, chosen: list[Alternative], candidates: Sequence[Alternative]) -> None:
        """Remove alternatives one by one while the best replacement is an improvement."""
        cost = self._total(chosen)
        for _ in range(ROUNDS):
            before = cost
            for at in range(len(chosen) - 1):
                rest = chosen[:at] + chosen[at + 1 :]
                gain, place, found = max(
                    (self._gain(rest, each) for each in candidates), key=_exactly
                )
                total = self._total(rest) - gain
                if total < cost - 1e-9:
                    rest.insert(place, found)
                    chosen[:], cost = rest, total
            if cost > before - WORTH * len(self._states):
                break

    def _total(self, chosen: Sequence[Alternative]) -> float:
        """Return the cost of the list, of all states together."""
        costs: dict[int, float] = {}
        for each in reversed(chosen):
            costs.update(self._cost(each))
        return sum(costs.values())

    def _gain(
        self, chosen: Sequence[Alternative], new: Alternative
    ) -> tuple[float, int, Alternative]:
        """Return the most that *new* lowers the cost, and the place in the list where it does."""
        gains = [0.0] * len(chosen)
        for state, cost in self._cost(new).items():
            for at, each in enumerate(chosen):
                before = self._cost(each).get(state)
                if before is not None:
                    gains[at] += before - cost
                    break
        best, place, running = 0.0, len(chosen) - 1, 0.0
        for at in reversed(range(len(chosen))):
            running += gains[at]
            if running > best:
                best, place = running, at
        return best, place, new

    def _cost(self, each: Alternative) -> dict[int, float]:
        known = self._costs.get(each)
        if known is None:
            known = {}
            for state, free in enumerate(self._states):
                outcomes = self._outcomes(each, free)
                if outcomes:
                    known[state] = sum(self._loss(state, outcome) for outcome in outcomes) / len(
                        outcomes
                    )
            self._costs[each] = known
        return known

    def _outcomes(self, each: Alternative, free: int) -> list[int]:
        groups = (each.among,) if each.match is None else self._layout.shared[each.match]
        found: list[int] = []
        for group in groups:
            singles = bits(group & each.among & free)
            ways = comb(len(singles), each.count)
            if ways <= MOST_WAYS:
                step = max(ways // MOST_OUTCOMES, 1)
                found += map(sum, islice(combinations(singles, each.count), 0, None, step))
            else:
                twice = (*singles, *singles)
                found += (sum(twice[at : at + each.count]) for at in range(len(singles)))
        return found

    def _loss(self, state: int, taken: int) -> float:
        best, free = self._best[state], self._states[state]
        if taken == best:
            return 0.0
        wanted, got = self._layout.rank(best), self._layout.rank(taken)
        worse = 0.0
        if got != wanted:
            worse = 1.0 + next(
                abs(have - want) / max(abs(want), abs(have))
                for have, want in zip(got, wanted, strict=True)
                if have != want
            )
        lost = self._layout.value_left(free & ~best) - self._layout.value_left(free & ~taken)
        return worse + LEFT * max(lost, 0) / self._whole

    def _candidates(self) -> Iterator[Alternative]:
        """Yield the candidates for the list; of equivalent ones, the simplest comes first."""
        layout, size = self._layout, self._size
        natural = (*layout.places.values(), layout.terms.facts.partitions)
        groups = dict.fromkeys(
            (layout.everyone, layout.near, *(mask for masks in natural for mask in masks))
        )
        groups |= {a | b: None for masks in natural for a, b in combinations(masks, 2)}
        singles = bits(layout.everyone)
        if len(singles) <= LARGEST_WHOLE:
            groups |= dict.fromkeys(self._alike(singles))
        if comb(len(singles), size) <= MOST_SETS:
            groups |= dict.fromkeys(map(sum, combinations(singles, size)))
        for among in groups:
            if among & ~layout.everyone or among.bit_count() < size:
                continue
            yield Alternative(count=size, among=among)
            for name, masks in layout.shared.items():
                suitable = [mask for mask in masks if (mask & among).bit_count() >= size]
                if len(suitable) > 1:  # of one alone the alternative without the attribute is it
                    yield Alternative(count=size, among=among, match=name)

    def _alike(self, singles: Sequence[int]) -> Iterator[int]:
        """Yield the largest groups all of whose sets are as good as each other."""
        found: list[int] = []
        for count in range(len(singles), self._size, -1):
            for among in map(sum, combinations(singles, count)):
                if _within(among, found):
                    continue
                sets = map(sum, combinations(bits(among), self._size))
                if len({self._layout.rank(each) for each in sets}) == 1:
                    found.append(among)
        yield from found


def _states(everyone: int, size: int) -> Iterator[int]:
    """Yield the possible sets of free GPUs that suffice for *size*."""
    singles = bits(everyone)
    if len(singles) <= LARGEST_WHOLE:
        for count in range(size, len(singles) + 1):
            yield from map(sum, combinations(singles, count))
        return
    number = 1
    for drawn in range(SAMPLED):
        rest, free = list(singles), 0
        for _ in range(size + drawn % (len(singles) - size + 1)):
            # Knuth's MMIX generator; its upper bits are the good ones.
            number = (number * 6364136223846793005 + 1442695040888963407) % 2**64
            free |= rest.pop((number >> 32) % len(rest))
        yield free
