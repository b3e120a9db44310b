"""What the GPUs that remain are worth to the jobs that come next: the fragmentation term."""

from collections.abc import Callable, Mapping
from itertools import combinations
from types import MappingProxyType

from agent.allocation.facts import UNKNOWN, Facts, Place
from agent.allocation.masks import bits

# GPUs that are interchangeable, so that a set need be judged once for all like it.


class Symmetry:
    """Classes of GPUs that see all others alike and sit on one NUMA node and socket.

    Exchanging two GPUs of a class changes neither bandwidth nor what a set spans. HCAs and
    partitions are left out: they may tell such GPUs apart.
    """

    def __init__(self, facts: Facts, *, is_known: bool = True) -> None:
        """Find the classes; without *is_known* (sets were measured) each GPU is one of its own."""
        remaining = list(range(len(facts.indices)))
        classes = []
        while remaining:
            first = remaining[0]
            alike = [
                o for o in remaining if o == first or (is_known and _are_alike(facts, first, o))
            ]
            remaining = [other for other in remaining if other not in alike]
            classes.append(alike)
        self._lowest = tuple(
            tuple(sum(1 << member for member in alike[:count]) for count in range(len(alike) + 1))
            for alike in classes
            if len(alike) > 1
        )
        self._alone = sum(1 << alike[0] for alike in classes if len(alike) == 1)

    def canonical(self, mask: int) -> int:
        """Return the lowest of all masks that symmetry makes equal to *mask*."""
        result = mask & self._alone
        for lowest in self._lowest:
            result |= lowest[(mask & lowest[-1]).bit_count()]
        return result


def _are_alike(facts: Facts, a: int, b: int) -> bool:
    others = [other for other in range(len(facts.indices)) if other not in (a, b)]
    return (
        _same_place(facts.numa[a], facts.numa[b])
        and _same_place(facts.sockets[a], facts.sockets[b])
        and all(
            square[a][other] == square[b][other]
            for square in (facts.links, facts.rates, facts.hops)
            for other in others
        )
    )


def _same_place(a: Place, b: Place) -> bool:
    return a == b or a[0] == b[0] == UNKNOWN


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
