"""Rings through a small graph: how many at once, and how wide the widest is."""

from collections.abc import Iterator, Sequence

LARGEST_SEARCHED = 10
"""Vertices up to which a ring is searched for where the cheap tests do not tell; 2^10 paths
take 10 ms. Beyond, a ring that is not certain counts as none."""

Square = Sequence[Sequence[int]]
"""A symmetric matrix; its diagonal has no meaning."""


def disjoint_rings(links: Square) -> int:
    """Return how many Hamiltonian cycles fit into the multigraph *links* without sharing a link.

    At least three vertices. Exact, by search, so meant for the eight GPUs of a cube mesh.
    """
    spare = {(a, b): links[a][b] for a in range(len(links)) for b in range(a) if links[a][b]}
    return _most(spare, tuple(_rings(links)), len(links))


def _most(spare: dict[tuple[int, int], int], rings: Sequence["Ring"], vertices: int) -> int:
    bound = min(sum(n for edge, n in spare.items() if v in edge) // 2 for v in range(vertices))
    most = 0
    for position, ring in enumerate(rings):
        if most >= bound:
            break
        if all(spare[edge] for edge in ring):
            left = {edge: n - (edge in ring) for edge, n in spare.items()}
            # Rings before this one were tried as the first of all sets that contain them.
            most = max(most, 1 + _most(left, rings[position:], vertices))
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


def widest_ring(hops: Square) -> int:
    """Return the greatest width at which a ring through all vertices closes.

    The width of a ring is that of its narrowest hop. At least three vertices, all joined.
    """
    count = len(hops)
    widths = sorted({hops[a][b] for a in range(count) for b in range(a)}, reverse=True)
    return next(width for width in widths if closes(hops, width))


def closes(hops: Square, width: int) -> bool:
    """Return whether a ring through all vertices closes over hops of at least *width*.

    Exact up to ``LARGEST_SEARCHED`` vertices; beyond, ``False`` may mean "not certain".
    """
    joined = [
        sum(1 << b for b, hop in enumerate(row) if b != a and hop >= width)
        for a, row in enumerate(hops)
    ]
    # Cheap tests settle the graphs of real machines, which are cliques with a few links across.
    if not _survives_any_loss(joined):
        return False
    return _is_dense(joined) or (len(joined) <= LARGEST_SEARCHED and _closes_by_search(joined))


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


def _closes_by_search(joined: Sequence[int]) -> bool:
    """Search for a ring by the recurrence of Held and Karp over subsets.

    *ends[mask]* are the vertices at which a path from the last vertex through the vertices
    of *mask* can end.
    """
    start = len(joined) - 1
    ends = [0] * (1 << start)
    for mask in range(1, 1 << start):
        for vertex in range(start):
            bit = 1 << vertex
            before = mask ^ bit
            if mask & bit and (ends[before] if before else 1 << start) & joined[vertex]:
                ends[mask] |= bit
    return bool(ends[-1] & joined[start])
