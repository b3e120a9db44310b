"""The best sets of a machine: by looking at all of them, or step by step on a large one."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from math import comb
from typing import Protocol

from agent.allocation.facts import Facts
from agent.allocation.packing import bits
from agent.allocation.score import Key
from agent.allocation.terms import Static, Terms, is_small

BUILD_COST = 16
"""Looking up a built set costs this many times as much as passing it over in a table
(measured on CPython 3.11: about 1 µs against 60 ns)."""


class Search(Protocol):
    """A way to find the best sets. Masks are of positions, *required* lies within *free*."""

    @property
    def is_exact(self) -> bool:
        """Whether the first key of :meth:`ranked` is proven to be the best of all."""
        ...

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[Key]:
        """Return the *count* best keys, best first; fewer only where there are fewer sets."""
        ...


def search(facts: Facts) -> Search:
    """Return the search that suits the size of the machine."""
    terms = Terms(facts)
    return ExactSearch(terms) if is_small(facts) else GreedySearch(terms)


class ExactSearch:
    """Look at every set, grouped by the terms that do not depend on what is free."""

    is_exact = True

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._tables: dict[int, tuple[tuple[int, ...], ...]] = {}

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[Key]:
        """Return the *count* best keys, best first."""
        found: list[Key] = []
        for tied in self._tiers(free, required, size):
            found += self._terms.keys(tied, free)
            if len(found) >= count:
                break
        return found[:count]

    def _tiers(self, free: int, required: int, size: int) -> Iterator[list[int]]:
        """Yield the candidates in groups that are equal up to the remainder term, best first."""
        value = self._terms.remainder_value
        for equal in self._groups(free, required, size):
            tiers: dict[int, list[int]] = {}
            for mask in equal:
                tiers.setdefault(value(free ^ mask), []).append(mask)
            for worth in sorted(tiers, reverse=True):
                yield tiers[worth]

    def _groups(self, free: int, required: int, size: int) -> Iterator[Iterable[int]]:
        choices, missing = bits(free ^ required), size - required.bit_count()
        everything = comb(len(self._terms.facts.indices), size)
        if comb(len(choices), missing) * BUILD_COST <= everything:
            candidates = (required + sum(some) for some in combinations(choices, missing))
            yield from self._grouped(candidates)
            return
        taken = ~free
        for group in self._table(size):
            if usable := [m for m in group if not m & taken and m & required == required]:
                yield usable

    def _table(self, size: int) -> tuple[tuple[int, ...], ...]:
        """Return all sets of *size* on the whole machine, grouped, best group first."""
        table = self._tables.get(size)
        if table is None:
            whole = bits((1 << len(self._terms.facts.indices)) - 1)
            masks = (sum(chosen) for chosen in combinations(whole, size))
            table = self._tables[size] = tuple(self._grouped(masks))
        return table

    def _grouped(self, masks: Iterable[int]) -> list[tuple[int, ...]]:
        groups: dict[Static, list[int]] = {}
        for mask in masks:
            groups.setdefault(self._terms.static(mask), []).append(mask)
        return [tuple(groups[static]) for static in sorted(groups)]


class GreedySearch:
    """Grow a set from every start by the GPU that suits it best, and keep the best sets.

    For machines of more than 16 GPUs, or meshes of more than 10. It may miss the best set,
    and says so.
    """

    is_exact = False

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[Key]:
        """Return the *count* best keys among the sets that were grown, best first."""
        starts = [required] if required else list(bits(free))
        grown = {self._grow(start, free, size) for start in starts}
        return sorted(self._terms.key(mask, free) for mask in grown)[:count]

    def _grow(self, mask: int, free: int, size: int) -> int:
        while mask.bit_count() < size:
            mask = min(
                (mask | bit for bit in bits(free & ~mask)),
                key=lambda larger: (self._terms.static(larger), larger),
            )
        return mask
