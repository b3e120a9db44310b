"""The fragmentation term: what the remaining GPUs are worth to the next jobs."""

from collections.abc import Callable, Mapping
from itertools import combinations
from types import MappingProxyType

from agent.allocation.facts import UNKNOWN, Facts, Place
from agent.allocation.masks import bits

JOB_WEIGHTS: Mapping[int, int] = MappingProxyType({2: 1, 4: 2, 8: 3})
"""Sizes of later jobs and their weights. Multi-GPU jobs of one node have these sizes in the
public Philly, Helios and PAI traces; the weights were chosen beforehand and never tuned."""


class Packing:
    """The remainder term of one machine; results are kept for each set.

    Safe to share between threads: at worst two threads compute the same value.
    """

    def __init__(self, value: Callable[[int], int], symmetry: "Symmetry") -> None:
        self._value = value
        self._symmetry = symmetry
        self._totals: dict[int, int] = {}
        self._packed: dict[tuple[int, int], int] = {}

    def remainder_value(self, remainder: int) -> int:
        """Return the weighted sum over job sizes of the best packing of *remainder*, 0.01 GB/s.

        *remainder* is a mask of GPUs. The jobs of a packing have one size and are disjoint; its
        value is the sum of :func:`agent.allocation.score.set_value` over its jobs.
        """
        total = self._totals.get(remainder)
        if total is None:
            mask = self._symmetry.canonical(remainder)
            total = sum(weight * self._pack(mask, job) for job, weight in JOB_WEIGHTS.items())
            self._totals[remainder] = total
        return total

    def _pack(self, mask: int, job: int) -> int:
        """Return the value of the best packing of *mask* with jobs of *job* GPUs."""
        if mask.bit_count() < job:
            return 0
        best = self._packed.get((mask, job))
        if best is not None:
            return best
        # The lowest GPU is either left out or part of one of the jobs that contain it.
        canonical = self._symmetry.canonical
        lowest = mask & -mask
        rest = mask ^ lowest
        best = self._pack(canonical(rest), job)
        seen = set()
        for others in combinations(bits(rest), job - 1):
            chosen = canonical(lowest + sum(others))
            if chosen not in seen:
                seen.add(chosen)
                left = canonical(rest ^ sum(others))
                best = max(best, self._value(chosen) + self._pack(left, job))
        self._packed[mask, job] = best
        return best


class Symmetry:
    """Classes of interchangeable GPUs, so that only one of all equivalent sets is computed.

    GPUs of a class have the same links to all others and are on one NUMA node and socket, so
    exchanging them changes neither the bandwidth nor the span of a set. HCAs and partitions are
    not considered; they may differ within a class.
    """

    def __init__(self, facts: Facts, *, is_known: bool = True) -> None:
        """Find the classes; without *is_known* (sets were measured) each GPU is its own class."""

        def are_alike(a: int, b: int) -> bool:
            return (
                _is_same_place(facts.numa[a], facts.numa[b])
                and _is_same_place(facts.sockets[a], facts.sockets[b])
                and all(
                    square[a][other] == square[b][other]
                    for square in (facts.links, facts.rates, facts.hops)
                    for other in range(len(facts.indices))
                    if other not in (a, b)
                )
            )

        remaining = list(range(len(facts.indices)))
        classes = []
        while remaining:
            first, *others = remaining
            alike = [first, *(o for o in others if is_known and are_alike(first, o))]
            remaining = [other for other in others if other not in alike]
            classes.append(alike)
        self._lowest = tuple(
            tuple(sum(1 << member for member in alike[:count]) for count in range(len(alike) + 1))
            for alike in classes
            if len(alike) > 1
        )
        self._alone = sum(1 << alike[0] for alike in classes if len(alike) == 1)

    def canonical(self, mask: int) -> int:
        """Return the lowest of all masks that are equivalent to *mask*."""
        result = mask & self._alone
        for lowest in self._lowest:
            result |= lowest[(mask & lowest[-1]).bit_count()]
        return result


def _is_same_place(a: Place, b: Place) -> bool:
    return a == b or a[0] == b[0] == UNKNOWN
