"""What the GPUs that remain are worth to the jobs that come next: the fragmentation term."""

from collections.abc import Callable, Mapping
from itertools import combinations
from types import MappingProxyType

from agent.allocation.masks import bits
from agent.allocation.symmetry import Symmetry

JOB_WEIGHTS: Mapping[int, int] = MappingProxyType({2: 1, 4: 2, 8: 3})
"""Sizes of later jobs and their weights. Multi-GPU jobs of one node are of these sizes in the
public Philly, Helios and PAI traces; the weights were chosen beforehand and never tuned."""


class Packing:
    """The remainder term of one machine, remembered set by set.

    Safe to share between threads: two of them at worst compute the same value twice.
    """

    def __init__(self, value: Callable[[int], int], symmetry: Symmetry) -> None:
        self._value = value
        self._symmetry = symmetry
        self._totals: dict[int, int] = {}
        self._packed: dict[tuple[int, int], int] = {}

    def remainder_value(self, remainder: int) -> int:
        """Return the weighted sum over job sizes of the best packing of *remainder*, 0.01 GB/s.

        *remainder* is a mask of GPUs. Jobs of one packing are of one size and disjoint; a
        packing is worth the sum of :func:`agent.allocation.score.set_value` over its jobs.
        """
        total = self._totals.get(remainder)
        if total is None:
            mask = self._symmetry.canonical(remainder)
            total = sum(weight * self._pack(mask, job) for job, weight in JOB_WEIGHTS.items())
            self._totals[remainder] = total
        return total

    def _pack(self, mask: int, job: int) -> int:
        if mask.bit_count() < job:
            return 0
        best = self._packed.get((mask, job))
        if best is None:
            best = self._packed[mask, job] = self._best(mask, job)
        return best

    def _best(self, mask: int, job: int) -> int:
        """The lowest GPU is either left out or packed with one of the ways to fill its job."""
        lowest = mask & -mask
        rest = mask ^ lowest
        best = self._pack(self._symmetry.canonical(rest), job)
        seen = set()
        for others in combinations(bits(rest), job - 1):
            chosen = self._symmetry.canonical(lowest + sum(others))
            if chosen not in seen:
                seen.add(chosen)
                left = self._symmetry.canonical(mask ^ lowest ^ sum(others))
                best = max(best, self._value(chosen) + self._pack(left, job))
        return best
