"""Which HCAs and which GPUs belong together, for two device plugins that are asked one by one.

The measure is nvidia-smi's distance between a GPU and an HCA. A set of GPUs and a set of HCAs are
matched one to one, or as evenly as their numbers allow, so that no pair crosses a socket which
need not, then none a host bridge, and so on down to PIX. Of equally near HCAs the one on the
GPU's own rail is taken, then the one with the fewest users.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property
from itertools import combinations, islice
from math import comb, inf
from typing import Any

from msgspec import Struct

from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.cover import Cover, best_cover
from nodetopo.rdma.rails import network_cards
from nodetopo.topology.affinity import hca_closeness

LEVELS = tuple(sorted(Closeness))
"""From the same board to the other socket; an unknown distance counts as one further."""

LEVEL_BITS = 6
"""A pair weighs 64 pairs of the next nearer level: more than a node has."""

FARTHEST = 63
"""Rails apart, and users, beyond which there is no difference."""

SCALE = 1 << 12
"""More than 64 pairs can be apart, or have users, in all."""

MOST_TRIED = 256
"""Choices of HCAs that are tried one by one where distances are not a tree's."""

MOST_MATCHED = 64
"""HCAs that are dealt out to GPUs at once; of more each GPU gets one after the other."""


class Pair(Struct, frozen=True, kw_only=True):
    """A GPU and the HCA that it was matched with, by their positions, and their distance."""

    gpu: int
    hca: int
    closeness: Closeness | None


class Pairing(Struct, frozen=True, kw_only=True, dict=True):
    """The distances of one snapshot; positions are those of its GPUs and of its HCAs."""

    snapshot: Snapshot

    @cached_property
    def closeness(self) -> Mapping[tuple[int, int], Closeness]:
        """The distance by (position of the GPU, position of the HCA), where it is known."""
        by_index = hca_closeness(self.snapshot)
        positions = {gpu.index: position for position, gpu in enumerate(self.snapshot.gpus)}
        return {(positions[index], hca): level for (index, hca), level in by_index.items()}

    def hcas_for(
        self,
        gpus: Sequence[int],
        available: Sequence[int],
        size: int,
        users: Mapping[int, int] | None = None,
    ) -> tuple[int, ...]:
        """Return *size* of the *available* HCAs for *gpus*; fewer where there are fewer.

        Args:
            gpus: positions; none is as if every GPU were as near.
            available: positions, each once.
            size: with fewer HCAs than GPUs each serves several, with more each GPU gets several.
            users: how many containers have each HCA already; equally near ones with fewer win.
        """
        used = users or {}
        left = list(available)
        size = min(size, len(left))
        if not gpus:
            return tuple(sorted(left, key=lambda hca: used.get(hca, 0))[:size])
        if 0 < size < len(gpus):
            return self._cover(gpus, left, size, used)

        def cost(gpu: int, hca: int) -> int:
            return self._cost(gpu, hca, used.get(hca, 0))

        nearest = _Nearest(gpus, left, cost)
        chosen: dict[int, None] = {}
        while len(chosen) < size:
            turn = size - len(chosen)
            if turn > MOST_MATCHED:
                turn = len(gpus)  # one each
            dealt = _dealt(gpus, nearest.among(turn, chosen), turn, cost)
            chosen.update((hca, None) for _, hca in dealt)
        return tuple(chosen)

    def matched(self, gpus: Sequence[int], hcas: Sequence[int]) -> tuple[Pair, ...]:
        """Return an HCA for each of *gpus*, one to one as far as there are enough; none of none.

        With fewer HCAs than GPUs each serves as many as the others, or one more.
        """
        if not gpus or not hcas:
            return ()
        places = range(len(gpus))  # a GPU of several shares can be there several times
        if len(hcas) < len(gpus):
            dealt = _dealt(hcas, places, len(gpus), lambda hca, at: self._pair_cost(gpus[at], hca))
            hca_of = {at: hca for hca, at in dealt}
        else:
            near = _Nearest(gpus, hcas, self._pair_cost).among(len(gpus))
            hca_of = dict(
                _dealt(places, near, len(gpus), lambda at, hca: self._pair_cost(gpus[at], hca))
            )
        return tuple(
            Pair(gpu=gpu, hca=hca_of[at], closeness=self.closeness.get((gpu, hca_of[at])))
            for at, gpu in enumerate(gpus)
        )

    def distance(self, gpus: Sequence[int], hcas: Sequence[int]) -> int:
        """Return a number that is lower the nearer each of *gpus* is to its own of *hcas*."""
        return sum(self._nearness(pair.gpu, pair.hca) for pair in self.matched(gpus, hcas))

    def gpus_for(self, hcas: Sequence[int], available: Sequence[int], size: int) -> tuple[int, ...]:
        """Return the *size* GPUs of *available* that are nearest to *hcas*, one HCA each.

        With more HCAs than GPUs some HCAs have no GPU of their own, and the best are used.
        """
        left = list(available)
        size = min(size, len(left))
        if not hcas or size == 0:
            return tuple(left[:size])
        if size >= len(hcas):
            near = _Nearest(hcas, left, lambda hca, gpu: self._cost(gpu, hca, 0)).among(size)
            dealt = _dealt(hcas, near, size, lambda hca, gpu: self._cost(gpu, hca, 0))
            return tuple(gpu for _, gpu in dealt)
        own = _Nearest(left, hcas, self._pair_cost).among(size)
        unasked = len(left) - size  # GPUs that are left out
        costs = [[self._cost(gpu, hca, 0) for hca in own] + [0] * unasked for gpu in left]
        columns = assign(costs)
        return tuple(gpu for gpu, column in zip(left, columns, strict=True) if column < len(own))

    def within(self, gpus: Sequence[int], hcas: Sequence[int], chosen: Sequence[int]) -> list[int]:
        """Return those of *gpus* that have one of *hcas* no farther than *chosen* GPUs have."""
        if not hcas or not chosen:
            return list(gpus)
        nearest = {gpu: min(self._level(gpu, hca) for hca in hcas) for gpu in (*gpus, *chosen)}
        farthest = max(nearest[gpu] for gpu in chosen)
        return [gpu for gpu in gpus if nearest[gpu] <= farthest]

    def _cover(
        self, gpus: Sequence[int], hcas: Sequence[int], size: int, users: Mapping[int, int]
    ) -> tuple[int, ...]:
        rail_of = self._rails[0]

        def taste(some: Sequence[int], hca: int) -> int:
            apart = sum(self._apart(gpu, hca) for gpu in some)
            return apart * SCALE + min(users.get(hca, 0), FARTHEST)

        in_order = sorted(gpus, key=lambda gpu: rail_of.get(gpu, gpu))
        cover = Cover(gpus=in_order, hcas=hcas, size=size, level=self._level, taste=taste)
        if not cover.is_tree and comb(len(hcas), size) <= MOST_TRIED:
            tried = combinations(hcas, size)
            return min(tried, key=lambda some: self.distance(in_order, some))
        return best_cover(cover)

    def _level(self, gpu: int, hca: int) -> int:
        level = self.closeness.get((gpu, hca))
        return len(LEVELS) if level is None else LEVELS.index(level)

    def _nearness(self, gpu: int, hca: int) -> int:
        return 1 << LEVEL_BITS * self._level(gpu, hca)

    def _cost(self, gpu: int, hca: int, users: int) -> int:
        """Return what a pair costs: its distance, then how far apart the rails, then the users."""
        near = self._nearness(gpu, hca) * SCALE + self._apart(gpu, hca)
        return near * SCALE + min(users, FARTHEST)

    def _pair_cost(self, gpu: int, hca: int) -> int:
        return self._cost(gpu, hca, 0)

    def _apart(self, gpu: int, hca: int) -> int:
        of_gpu, of_hca = self._rails[0].get(gpu), self._rails[1].get(hca)
        if of_gpu is None or of_hca is None:
            return FARTHEST
        return min(abs(of_gpu - of_hca), FARTHEST)

    @cached_property
    def _rails(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """The rail of each GPU and of each HCA.

        The i-th HCA of every node is on the i-th switch of the fabric, and the GPUs share the
        rails in their order (NVIDIA DGX SuperPOD reference architecture, "rail-optimized").
        Cards for storage and management are not counted.
        """
        gpus, hcas = self.snapshot.gpus, self.snapshot.hcas or ()
        first = PciAddress(0, 0, 0, 0)
        of_gpus = sorted(
            range(len(gpus)), key=lambda at: (gpus[at].pci is None, gpus[at].pci or first, at)
        )
        cards = network_cards(self.snapshot) or range(len(hcas))
        of_hcas = sorted(cards, key=lambda at: hcas[at].pci_order)
        return (
            {at: rank * len(of_hcas) // len(gpus) for rank, at in enumerate(of_gpus)},
            {at: rank for rank, at in enumerate(of_hcas)},
        )


class _Nearest:
    """The devices of *offered* that are worth a look for *takers*, the cheapest of each."""

    def __init__(
        self, takers: Sequence[int], offered: Sequence[int], cost: Callable[[int, int], int]
    ) -> None:
        self._offered = offered
        self._sorted = [
            sorted(offered, key=lambda one, taker=taker: cost(taker, one))  # type: ignore[misc]
            for taker in takers
        ]

    def among(self, size: int, without: Container[int] = ()) -> list[int]:
        """Return the *size* cheapest of each taker, in the order of all; none of *without*.

        No others are needed for a choice of *size*: whoever has a device that is not among its own
        *size* cheapest can have one of these, which nobody has, and is no worse off.
        """
        near = set[int]()
        for own in self._sorted:
            near.update(islice((one for one in own if one not in without), size))
        return [one for one in self._offered if one in near]


def _dealt(
    takers: Sequence[int], offered: Sequence[int], size: int, cost: Callable[[int, int], int]
) -> list[tuple[int, int]]:
    """Return *size* pairs of a taker and one of *offered*, as many for each taker, at least cost.

    What is left over when they are dealt out goes to any takers, one more each.
    """
    rounds, more = divmod(size, len(takers))
    rows = [taker for taker in takers for _ in range(rounds)] + list(takers if more else ())
    spare = len(rows) - size  # takers that get no more
    never = (SCALE * SCALE) << LEVEL_BITS * (len(LEVELS) + 2)
    costs = [
        [cost(taker, one) for one in offered] + [never if row < rounds * len(takers) else 0] * spare
        for row, taker in enumerate(rows)
    ]
    return [
        (taker, offered[column])
        for taker, column in zip(rows, assign(costs), strict=True)
        if column < len(offered)
    ]


def assign(costs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return for each row a column of its own, so that the sum of the costs is the least.

    The Hungarian method with potentials (Kuhn 1955, Munkres 1957; in this form Jonker and
    Volgenant 1987), O(rows² × columns). There must be as many columns as rows, or more.
    """
    columns = len(costs[0]) if costs else 0
    if len(costs) > columns:
        raise ValueError(f"{len(costs)} rows do not fit into {columns} columns")
    potential_of_row = [0] * (len(costs) + 1)
    potential = [0] * (columns + 1)
    owner = [0] * (columns + 1)  # row of each column, from 1; column 0 stands for the new row
    for row in range(1, len(costs) + 1):
        owner[0] = row
        column = 0
        least: list[float] = [inf] * (columns + 1)
        came_from, is_used = [0] * (columns + 1), [False] * (columns + 1)
        while owner[column]:
            is_used[column] = True
            at, following = owner[column], 0
            delta: Any = inf  # of the costs' own type once a candidate is seen: exact integers
            for candidate in range(1, columns + 1):
                if is_used[candidate]:
                    continue
                reduced = costs[at - 1][candidate - 1] - potential_of_row[at] - potential[candidate]
                if reduced < least[candidate]:
                    least[candidate], came_from[candidate] = reduced, column
                if least[candidate] < delta:
                    delta, following = least[candidate], candidate
            for candidate in range(columns + 1):
                if is_used[candidate]:
                    potential_of_row[owner[candidate]] += delta
                    potential[candidate] -= delta
                else:
                    least[candidate] -= delta
            column = following
        while column:
            owner[column] = owner[came_from[column]]
            column = came_from[column]
    place = {row: column for column, row in enumerate(owner) if column and row}
    return tuple(place[row] - 1 for row in range(1, len(costs) + 1))
