"""Rings through a small graph: how many at once, and how wide the widest is."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations

LARGEST_SEARCHED = 10
"""Vertices up to which a ring is searched for where the cheap tests do not tell; 2^10 paths
take 10 ms."""

LARGEST_TABULATED = 16
"""Vertices of a whole machine up to which all its rings of a width are worked out at once, in
half a second, for the sets that are larger than that. Beyond, a ring that is not certain counts
as none."""

MOST_STEPS = 50_000
"""Rings that are tried for one set, 0.1 s of them. those of a DGX-1 take 41 at most; a dense mesh
of eight, which nobody has built, would take for ever."""

Square = Sequence[Sequence[int]]
"""A symmetric matrix; its diagonal has no meaning."""


def disjoint_rings(links: Square) -> int:
    """Return how many Hamiltonian cycles fit into the multigraph *links* without sharing a link.

    At least three vertices. Found by search, so meant for the eight GPUs of a cube mesh; it is
    exact unless ``MOST_STEPS`` did not do, and then may be too low.
    """
    spare = {(a, b): links[a][b] for a in range(len(links)) for b in range(a) if links[a][b]}
    return _most(spare, tuple(_rings(links)), len(links), [MOST_STEPS])


def _most(
    spare: dict[tuple[int, int], int], rings: Sequence["Ring"], vertices: int, steps: list[int]
) -> int:
    bound = min(sum(n for edge, n in spare.items() if v in edge) // 2 for v in range(vertices))
    most = 0
    for position, ring in enumerate(rings):
        if most >= bound or steps[0] <= 0:
            break
        steps[0] -= 1
        if all(spare[edge] for edge in ring):
            left = {edge: n - (edge in ring) for edge, n in spare.items()}
            # Rings before this one were tried as the first of all sets that contain them.
            most = max(most, 1 + _most(left, rings[position:], vertices, steps))
    return most


Ring = frozenset[tuple[int, int]]
"""The edges of a Hamiltonian cycle, higher vertex first."""


def _rings(links: Square) -> Iterator[Ring]:
    """Yield every Hamiltonian cycle once: the one of two directions whose second vertex is less."""
    path = [0]

    def extend() -> Iterator[Ring]:
        last = path[-1]
        if len(path) == len(links):
            if links[last][0] and path[1] < last:
                yield frozenset(_edge(*ends) for ends in zip(path, [*path[1:], 0], strict=True))
            return
        for following in range(1, len(links)):
            if links[last][following] and following not in path:
                path.append(following)
                yield from extend()
                path.pop()

    return extend()


def _edge(a: int, b: int) -> tuple[int, int]:
    return max(a, b), min(a, b)


def widest_ring(hops: Square, members: Sequence[int]) -> int:
    """Return the greatest width at which a ring through all *members* closes.

    The width of a ring is that of its narrowest hop. At least three vertices, all joined.
    """
    widths = sorted({hops[a][b] for a, b in combinations(members, 2)}, reverse=True)
    return next(width for width in widths if closes(hops, members, width))


def closes(hops: Square, members: Sequence[int], width: int) -> bool:
    """Return whether a ring through all *members* closes over hops of at least *width*.

    Exact up to ``LARGEST_SEARCHED`` members, and on machines of up to ``LARGEST_TABULATED``;
    elsewhere ``False`` may mean "not certain".
    """
    joined = _joined([[hops[a][b] for b in members] for a in members], width)
    # Cheap tests settle the graphs of real machines, which are cliques with a few links across.
    if not _survives_any_loss(joined):
        return False
    if _is_dense(joined):
        return True
    if len(joined) <= LARGEST_SEARCHED:
        return bool(_closing(joined)[-1])
    if len(hops) <= LARGEST_TABULATED:
        table = _all_closing(tuple(map(tuple, hops)), width)
        return bool(table[sum(1 << member for member in members)])
    return False


def _joined(hops: Square, width: int) -> list[int]:
    """Return the vertices that each one reaches at *width*, as masks."""
    return [
        sum(1 << b for b, hop in enumerate(row) if b != a and hop >= width)
        for a, row in enumerate(hops)
    ]


@lru_cache(maxsize=8)
def _all_closing(hops: tuple[tuple[int, ...], ...], width: int) -> bytearray:
    return _closing(_joined(hops, width))


def _survives_any_loss(joined: Sequence[int]) -> bool:
    """Return whether the graph stays in one piece without any one vertex, as every ring does."""
    everyone = (1 << len(joined)) - 1
    return all(_is_connected(joined, everyone ^ 1 << lost) for lost in range(len(joined)))


def _is_connected(joined: Sequence[int], vertices: int) -> bool:
    reached = frontier = vertices & -vertices
    while frontier:
        vertex = frontier & -frontier
        new = joined[vertex.bit_length() - 1] & vertices & ~reached
        reached |= new
        frontier = frontier ^ vertex | new
    return reached == vertices


def _is_dense(joined: Sequence[int]) -> bool:
    """Return whether every vertex is joined to half of all or more, which suffices (Dirac)."""
    return all(2 * others.bit_count() >= len(joined) for others in joined)


def _closing(joined: Sequence[int]) -> bytearray:
    """Return for every set of three vertices or more, by its mask, whether a ring closes.

    The recurrence of Held and Karp over subsets: *ends[mask]* are the vertices at which a path
    from the highest vertex of a set through the others, which are *mask*, can end.
    """
    closing = bytearray(1 << len(joined))
    for start, near in enumerate(joined):
        ends = [1 << start]
        for mask in range(1, 1 << start):
            reached, left = 0, mask
            while left:
                bit = left & -left
                left ^= bit
                if ends[mask ^ bit] & joined[bit.bit_length() - 1]:
                    reached |= bit
            ends.append(reached)
            closing[mask | 1 << start] = bool(reached & near) and mask & (mask - 1) != 0
    return closing
