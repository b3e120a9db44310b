"""The best set of a small machine of any shape, from lists of all its sets."""

from collections.abc import Iterable, Iterator
from itertools import combinations, takewhile
from math import comb

from agent.allocation.masks import bits, positions
from agent.allocation.terms import LARGEST_MESH, Figure, Terms

BUILD_COST = 16
"""Looking up a built set costs this many times as much as passing it over in a table
(measured on CPython 3.11: about 1 µs against 60 ns)."""

Group = tuple[int, ...]
"""Sets that are equal in every leading term that does not depend on what is free."""


class TableEngine:
    """Keep all sets of a size in order of their leading terms; compare the others on request.

    The table of a size is made at its first request, or by :meth:`prepare`.
    """

    name = "table"
    is_exact = True

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._everyone = (1 << len(terms.facts.indices)) - 1
        leading = list(takewhile(terms.is_fixed, terms.order))
        self._leading = [terms.figure(name) for name in leading]
        rest = [name for name in terms.order if name not in leading and name != "order"]
        self._rest: list[Figure] = [terms.figure(name) for name in rest]
        self._tables: dict[int, tuple[Group, ...]] = {}

    def prepare(self) -> None:
        """Make every table now, and on a mesh the value of all that can be left."""
        count = self._everyone.bit_length()
        for size in range(1, count + 1):
            self._table(size)
        for left in range(1 << count if count <= LARGEST_MESH else 0):
            self._terms.value_left(left)

    def best(self, *, free: int, required: int, size: int) -> int:
        """Return the best set."""
        if size == required.bit_count():
            return required
        candidates = next(self._groups(free, required, size))
        for figure in self._rest:
            if len(candidates) == 1:
                break
            figures = [figure(mask, free) for mask in candidates]
            least = min(figures)
            candidates = [m for m, f in zip(candidates, figures, strict=True) if f == least]
        return candidates[0] if len(candidates) == 1 else min(candidates, key=positions)

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        """Return the *count* best sets, best first."""
        found: list[int] = []
        for group in self._groups(free, required, size):
            found += sorted(group, key=lambda mask: self._key(mask, free))
            if len(found) >= count:
                break
        return found[:count]

    def _key(self, mask: int, free: int) -> tuple[list[int], tuple[int, ...]]:
        return [figure(mask, free) for figure in self._rest], positions(mask)

    def _groups(self, free: int, required: int, size: int) -> Iterator[list[int]]:
        """Yield the candidates in groups of equal leading terms, best first."""
        choices, missing = bits(free & ~required), size - required.bit_count()
        everything = comb(self._everyone.bit_count(), size)
        if size not in self._tables and comb(len(choices), missing) * BUILD_COST <= everything:
            candidates = (required + sum(some) for some in combinations(choices, missing))
            yield from map(list, self._grouped(candidates))
            return
        taken = ~free
        for group in self._table(size):
            if usable := [m for m in group if not m & taken and m & required == required]:
                yield usable

    def _table(self, size: int) -> tuple[Group, ...]:
        """Return all sets of *size* on the whole machine, grouped, best group first."""
        table = self._tables.get(size)
        if table is None:
            masks = (sum(chosen) for chosen in combinations(bits(self._everyone), size))
            table = self._tables[size] = tuple(self._grouped(masks))
        return table

    def _grouped(self, masks: Iterable[int]) -> list[Group]:
        groups: dict[tuple[int, ...], list[int]] = {}
        for mask in masks:
            key = tuple(figure(mask, mask) for figure in self._leading)
            groups.setdefault(key, []).append(mask)
        return [tuple(groups[key]) for key in sorted(groups)]
