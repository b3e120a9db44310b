"""Measures for comparing all policies."""

from collections import Counter
from collections.abc import Iterable

from nodetopo.allocation.engines import engine_for
from nodetopo.allocation.facts import Facts, facts
from nodetopo.allocation.masks import positions
from nodetopo.allocation.requests import usable
from nodetopo.allocation.rules import Model, Policy, Rules
from nodetopo.allocation.score import numa_nodes
from nodetopo.allocation.terms import Terms
from nodetopo.model.snapshot import Snapshot

LATER_SIZES = (2, 4, 8)
"""Job sizes for which fragmentation is measured: the multi-GPU sizes of the public traces."""


class Yardstick:
    """The measures of one machine. Sets are bit masks of positions among the snapshot's GPUs."""

    def __init__(self, snapshot: Snapshot, model: Model = Model.RING) -> None:
        self._facts = facts(snapshot)
        self._terms = Terms(self._facts, Rules(policy=Policy.BEST, model=model))
        self._engine = engine_for(self._terms)
        lives = set(usable(snapshot))
        self.everyone = sum(1 << at for at, gpu in enumerate(snapshot.gpus) if gpu.id in lives)
        """All GPUs that are not lost."""
        numa = Counter[tuple[str, int]]()
        for position in positions(self.everyone):
            numa[self._facts.numa[position]] += 1 << position
        self._numa_masks = tuple(numa.values())
        self._numa_sizes = _largest_first(self._numa_masks)
        self._island_sizes = _largest_first(_pieces(self._facts, self.everyone))
        self._bandwidth: dict[int, int] = {}
        self._best: dict[tuple[int, int], int] = {}
        self._splits: dict[int, tuple[bool, bool]] = {}
        self._fragmentation: dict[int, float | None] = {}

    @property
    def gpus(self) -> int:
        """How many GPUs there are to hand out."""
        return self.everyone.bit_count()

    @property
    def is_exact(self) -> bool:
        """Whether :meth:`best` is proven to be the best; else a policy could find a better set."""
        return self._engine.is_exact

    def bandwidth(self, chosen: int) -> int:
        """Return the modelled bandwidth of a set, 0.1 GB/s; 0 for one GPU."""
        if chosen not in self._bandwidth:
            self._bandwidth[chosen] = self._terms.bandwidth(chosen)
        return self._bandwidth[chosen]

    def best(self, free: int, size: int) -> int:
        """Return the bandwidth of the best set of *size* within *free*, 0.1 GB/s."""
        if (free, size) not in self._best:
            chosen = self._engine.best(free=free, required=0, size=size)
            self._best[free, size] = self.bandwidth(chosen)
        return self._best[free, size]

    def splits(self, chosen: int) -> tuple[bool, bool]:
        """Return whether a set is split avoidably, (over NUMA nodes, over NVLink).

        Over NUMA nodes: it spans more of them than a set of its size must on an empty machine. Over
        NVLink: the links inside the set leave it in more pieces than a set of its size must have.
        Both count a GPU without known facts as standing alone.
        """
        if chosen not in self._splits:
            size = chosen.bit_count()
            nodes = numa_nodes(self._facts, positions(chosen))
            pieces = len(_pieces(self._facts, chosen))
            self._splits[chosen] = (
                nodes > _fewest(self._numa_sizes, size),
                pieces > _fewest(self._island_sizes, size),
            )
        return self._splits[chosen]

    def fits_node(self, size: int) -> bool:
        """Return whether *size* GPUs fit into a NUMA node of the empty machine."""
        return size <= self._numa_sizes[0]

    def has_aligned(self, free: int, size: int) -> bool:
        """Return whether *free* holds *size* GPUs of one NUMA node."""
        return any((free & node).bit_count() >= size for node in self._numa_masks)

    def fragmentation(self, free: int) -> float | None:
        """Return the share of the best bandwidth lost to fragmentation, 0 to 1.

        The mean over the sizes 2, 4 and 8, if that many GPUs are free, of 1 - (best set within
        *free*) / (best set of the empty machine). ``None`` with fewer than two free GPUs: that
        machine is full, not fragmented.
        """
        if free not in self._fragmentation:
            losses = [
                1 - self.best(free, size) / self.best(self.everyone, size)
                for size in LATER_SIZES
                if size <= free.bit_count()
            ]
            self._fragmentation[free] = sum(losses) / len(losses) if losses else None
        return self._fragmentation[free]


def _pieces(facts: Facts, chosen: int) -> list[int]:
    """Return the parts of *chosen* that NVLinks inside it hold together."""
    pieces: list[int] = []
    for position in positions(chosen):
        piece = 1 << position
        piece |= sum(1 << other for other in positions(chosen) if facts.links[position][other])
        apart = [other for other in pieces if not other & piece]
        for other in pieces:
            piece |= other if other & piece else 0
        pieces = [*apart, piece]
    return pieces


def _largest_first(groups: Iterable[int]) -> tuple[int, ...]:
    """Return the sizes of *groups*, which are masks."""
    return tuple(sorted((group.bit_count() for group in groups), reverse=True))


def _fewest(sizes: tuple[int, ...], size: int) -> int:
    """Return how many groups of *sizes*, largest first, are needed to hold *size*."""
    held = 0
    for count, group in enumerate(sizes, 1):
        held += group
        if held >= size:
            return count
    return len(sizes)
