"""Rings and trees of a small graph by their definitions, for every set of vertices at once.

A graph is given as numbers of links by pair of vertices; a set of vertices as a bit mask.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise, permutations

Pair = frozenset[int]


@cache
def members(mask: int) -> tuple[int, ...]:
    """The vertices of *mask*, ascending."""
    return tuple(vertex for vertex in range(mask.bit_length()) if mask >> vertex & 1)


def rings_through(chosen: Sequence[int]) -> Iterator[list[Pair]]:
    """Every closed way through all of *chosen*, in both directions; at least three."""
    for order in permutations(chosen[1:]):
        yield [frozenset(hop) for hop in pairwise((chosen[0], *order, chosen[0]))]


def closing(count: int, joined: set[Pair]) -> bytearray:
    """For every set of *count* vertices, whether a ring over pairs of *joined* visits them all.

    A ring is a path that starts at the lowest vertex and ends at one joined to it. Such paths
    through a set are those through one vertex less, and one hop; so one pass over all sets in
    ascending order finds them all. The tests compare it to trying every permutation.
    """
    others = [
        sum(1 << b for b in range(count) if frozenset((a, b)) in joined) for a in range(count)
    ]
    ends = [0] * (1 << count)
    found = bytearray(1 << count)
    for mask in range(1, 1 << count):
        lowest = mask & -mask
        rest = mask ^ lowest
        if not rest:
            ends[mask] = lowest
            continue
        last = 0
        while rest:
            bit = rest & -rest
            rest ^= bit
            if ends[mask ^ bit] & others[bit.bit_length() - 1]:
                last |= bit
        ends[mask] = last
        if last & others[lowest.bit_length() - 1]:
            found[mask] = mask.bit_count() > 2
    return found


def most_rings(links: Mapping[Pair, int], chosen: Sequence[int]) -> int:
    """The most rings through all of *chosen* of which no two use the same link.

    So many fit if one of the rings leaves links in which one less fit. Each takes two links
    of every GPU, which bounds them.
    """
    total = {frozenset((a, b)): links[frozenset((a, b))] for a in chosen for b in chosen if a < b}

    @cache
    def fit(left: tuple[int, ...], number: int) -> bool:
        if number == 0:
            return True
        spare = dict(zip(total, left, strict=True))
        return any(
            fit(tuple(n - (pair in ring) for pair, n in spare.items()), number - 1)
            for ring in _rings_over(spare, chosen)
        )

    bound = min(sum(n for pair, n in total.items() if gpu in pair) // 2 for gpu in chosen)
    whole = tuple(total.values())
    return next(number for number in range(bound, -1, -1) if fit(whole, number))


def _rings_over(spare: Mapping[Pair, int], chosen: Sequence[int]) -> Iterator[set[Pair]]:
    """Every ring over links that are left, once: its second GPU is below its last."""
    first, *rest = chosen

    def walk(path: tuple[int, ...], left: frozenset[int]) -> Iterator[set[Pair]]:
        if not left:
            hops = {frozenset(hop) for hop in pairwise((*path, first))}
            if path[1] < path[-1] and spare[frozenset((first, path[-1]))]:
                yield hops
            return
        for gpu in left:
            if spare[frozenset((path[-1], gpu))]:
                yield from walk((*path, gpu), left - {gpu})

    return walk((first,), frozenset(rest))


class Trees:
    """How many spanning trees without a common link each set of vertices holds.

    That is the least, over all ways to part the set into p > 1 parts, of the links between
    parts divided by p - 1, rounded down (Nash-Williams, Tutte).
    """

    def __init__(self, links: Mapping[Pair, int]) -> None:
        self._links = links
        self._inside = cache(self._count)
        self._kept = cache(self._most_kept)

    def most(self, mask: int) -> int:
        """The most trees that span *mask*, which has two vertices or more."""
        total = self._inside(mask)
        return min(
            (total - self._kept(mask, parts)) // (parts - 1)
            for parts in range(2, mask.bit_count() + 1)
        )

    def _count(self, mask: int) -> int:
        inside = members(mask)
        return sum(self._links[frozenset((a, b))] for a in inside for b in inside if a < b)

    def _most_kept(self, mask: int, parts: int) -> int:
        """The most links within parts, over all ways to part *mask* into so many."""
        if parts == 1:
            return self._inside(mask)
        lowest = mask & -mask
        best, others = 0, mask ^ lowest
        some = others
        while some:  # the part of the lowest vertex is it and any of the others but *some*
            if some.bit_count() >= parts - 1:
                best = max(best, self._inside(mask ^ some) + self._kept(some, parts - 1))
            some = (some - 1) & others
        return best
