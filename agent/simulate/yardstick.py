"""What a set of GPUs is worth, the same for every policy that is compared."""

from collections import Counter
from functools import cached_property

from agent.allocation.engines import suited
from agent.allocation.facts import Facts, facts
from agent.allocation.masks import positions
from agent.allocation.requests import usable
from agent.allocation.rules import Model, Policy, Rules
from agent.allocation.score import numa_nodes
from agent.allocation.terms import Terms
from agent.model.snapshot import Snapshot

LATER_SIZES = (2, 4, 8)
"""Job sizes for which fragmentation is measured: the multi-GPU sizes of the public traces."""


class Yardstick:
    """The measures of one machine. Sets are bit masks of positions among the snapshot's GPUs."""

    def __init__(self, snapshot: Snapshot, model: Model = Model.RING) -> None:
        self._facts = facts(snapshot)
        self._terms = Terms(self._facts, Rules(policy=Policy.BEST, model=model))
        self._engine = suited(self._terms)
        lives = set(usable(snapshot))
        self.everyone = sum(1 << at for at, gpu in enumerate(snapshot.gpus) if gpu.id in lives)
        """All GPUs that are not lost."""
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
        """Whether :meth:`best` is proven to be the best; else a policy may find a better set."""
        return self._engine.is_exact

    def bandwidth(self, chosen: int) -> int:
        """Return the modelled bandwidth of a set, 0.1 GB/s; 0 for one GPU."""
        found = self._bandwidth.get(chosen)
        if found is None:
            found = self._bandwidth[chosen] = self._terms.bandwidth(chosen)
        return found

    def best(self, free: int, size: int) -> int:
        """Return the bandwidth of the best set of *size* within *free*, 0.1 GB/s."""
        found = self._best.get((free, size))
        if found is None:
            chosen = self._engine.best(free=free, required=0, size=size)
            found = self._best[free, size] = self.bandwidth(chosen)
        return found

    def splits(self, chosen: int) -> tuple[bool, bool]:
        """Return whether a set is split avoidably, (over NUMA nodes, over NVLink).

        Over NUMA nodes: it spans more of them than a set of its size must on an empty machine.
        Over NVLink: the links inside the set leave it in more pieces than a set of its size
        must have. Both count a GPU of which nothing is known as one that stands alone.
        """
        found = self._splits.get(chosen)
        if found is None:
            found = self._splits[chosen] = self._split(chosen)
        return found

    def _split(self, chosen: int) -> tuple[bool, bool]:
        size = chosen.bit_count()
        nodes = numa_nodes(self._facts, positions(chosen))
        pieces = len(_pieces(self._facts, chosen))
        return (
            nodes > _fewest(self._numa_sizes, size),
            pieces > _fewest(self._island_sizes, size),
        )

    def fits_node(self, size: int) -> bool:
        """Return whether a NUMA node of the empty machine holds *size* GPUs."""
        return size <= self._numa_sizes[0]

    def has_aligned(self, free: int, size: int) -> bool:
        """Return whether *free* holds *size* GPUs of one NUMA node."""
        return any((free & node).bit_count() >= size for node in self._numa_masks)

    def fragmentation(self, free: int) -> float | None:
        """Return how much of the best bandwidth the free GPUs can no longer give, 0 to 1.

        The mean over the sizes 2, 4 and 8, as far as so many are free, of 1 - (best set within
        *free*) / (best set of the empty machine). ``None`` where fewer than two GPUs are free:
        that is a full machine, not a fragmented one.
        """
        if free not in self._fragmentation:
            self._fragmentation[free] = self._fragmented(free)
        return self._fragmentation[free]

    def _fragmented(self, free: int) -> float | None:
        losses = [
            1 - self.best(free, size) / self.best(self.everyone, size)
            for size in LATER_SIZES
            if size <= free.bit_count()
        ]
        return sum(losses) / len(losses) if losses else None

    @cached_property
    def _numa_masks(self) -> tuple[int, ...]:
        masks = Counter[tuple[str, int]]()
        for position in positions(self.everyone):
            masks[self._facts.numa[position]] += 1 << position
        return tuple(sorted(masks.values(), key=lambda mask: (-mask.bit_count(), mask)))

    @cached_property
    def _numa_sizes(self) -> tuple[int, ...]:
        return tuple(mask.bit_count() for mask in self._numa_masks)

    @cached_property
    def _island_sizes(self) -> tuple[int, ...]:
        sizes = (piece.bit_count() for piece in _pieces(self._facts, self.everyone))
        return tuple(sorted(sizes, reverse=True))


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


def _fewest(sizes: tuple[int, ...], size: int) -> int:
    """Return how many groups of *sizes*, largest first, are needed to hold *size*."""
    held = 0
    for count, group in enumerate(sizes, 1):
        held += group
        if held >= size:
            return count
    return len(sizes)
