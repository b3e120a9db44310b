"""The bandwidth of a set, by one of three models; all in 0.1 GB/s, one direction.

``ring``: what rings through the set carry, as NCCL's ring algorithm would use them.
``relay``: the optimistic bound, where a GPU of the set may pass data on for two others, as
NCCL does with its NVB paths (NCCL 2.30 src/graph/paths.cc).
``table``: what the operator measured, and the ring model where nothing was.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

from agent.allocation.facts import Facts, Square, tenths
from agent.allocation.measured import Measured
from agent.allocation.rules import Model, Rules

# Rings through a small graph: how many at once, and how wide the widest is.

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


RingSquare = Sequence[Sequence[int]]
"""A symmetric matrix; its diagonal has no meaning."""


def disjoint_rings(links: RingSquare) -> int:
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


def _rings(links: RingSquare) -> Iterator[Ring]:
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


def widest_ring(hops: RingSquare, members: Sequence[int]) -> int:
    """Return the greatest width at which a ring through all *members* closes.

    The width of a ring is that of its narrowest hop. At least three vertices, all joined.
    """
    widths = sorted({hops[a][b] for a, b in combinations(members, 2)}, reverse=True)
    return next(width for width in widths if closes(hops, members, width))


def closes(hops: RingSquare, members: Sequence[int], width: int) -> bool:
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


def _joined(hops: RingSquare, width: int) -> list[int]:
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


# Spanning trees of a small multigraph that share no link.

SPANNING_LARGEST_COUNTED = 10
"""Vertices up to which trees are counted; 10 have 115,975 partitions. Beyond, a connected
graph counts one tree."""


def disjoint_trees(links: Sequence[Sequence[int]]) -> int:
    """Return how many spanning trees fit into the multigraph *links* without sharing a link.

    That is the least, over all ways to part the vertices, of the links between parts divided
    by one less than the parts (Nash-Williams 1961, Tutte 1961). At least two vertices.
    """
    count = len(links)
    total = sum(map(sum, links)) // 2
    if count > SPANNING_LARGEST_COUNTED:
        return int(_spanning_is_connected(links))
    best = total
    parts: list[list[int]] = []

    def place(vertex: int, inside: int) -> None:
        nonlocal best
        if vertex == count:
            if len(parts) > 1:
                best = min(best, (total - inside) // (len(parts) - 1))
            return
        for part in parts:
            kept = sum(links[vertex][other] for other in part)
            part.append(vertex)
            place(vertex + 1, inside + kept)
            part.pop()
        parts.append([vertex])
        place(vertex + 1, inside)
        parts.pop()

    place(0, 0)
    return best


def _spanning_is_connected(links: Sequence[Sequence[int]]) -> bool:
    reached, frontier = {0}, [0]
    while frontier:
        row = links[frontier.pop()]
        new = [vertex for vertex, number in enumerate(row) if number and vertex not in reached]
        reached.update(new)
        frontier += new
    return len(reached) == len(links)


LARGEST_COUNTED = 8
"""GPUs up to which rings of an NVLink mesh are counted exactly: no larger mesh has been built
(DGX-1). A larger set counts one ring if it closes; sets of one size are compared alike."""


Bandwidth = Callable[[Sequence[int]], int]
"""Positions, ascending → 0.1 GB/s; 0 for one GPU, which sends nothing."""


def bandwidth(facts: Facts, rules: Rules) -> Bandwidth:
    """Return the model that *rules* name, for the machine of *facts*."""
    model = relay_bandwidth if rules.model is Model.RELAY else ring_bandwidth
    sets = _by_positions(facts, rules.measured) if rules.measured else {}

    def of(members: Sequence[int]) -> int:
        found = sets.get(frozenset(members)) if sets else None
        return model(facts, members) if found is None else found

    return of


def with_measured_pairs(facts: Facts, measured: Measured | None) -> Facts:
    """Return *facts* with the measured hops in place of the modelled ones."""
    if measured is None or not measured.pairs:
        return facts
    hops = [list(row) for row in facts.hops]
    rates = [list(row) for row in facts.rates]
    position = {index: place for place, index in enumerate(facts.indices)}
    for pair, width in measured.pairs.items():
        ends = [position[index] for index in pair if index in position]
        if len(ends) < 2:
            continue  # measured on more GPUs than the node has now
        for a, b in (ends, ends[::-1]):
            hops[a][b] = width
            rates[a][b] = _per_link(width, facts.links[a][b]) or rates[a][b]
    return replace(facts, hops=_frozen(hops), rates=_frozen(rates))


def ring_bandwidth(facts: Facts, members: Sequence[int]) -> int:
    """Return what rings through *members* carry.

    Over NVSwitches every hop has the whole width of a GPU. In a mesh each ring that closes
    over NVLinks of its own is used both ways. Else the widest ring decides; on PCIe alone that
    is the worst pair, since a ring in tree order crosses each uplink once.
    """
    if len(members) < 2:
        return 0
    widths = {facts.hops[a][b] for a, b in combinations(members, 2)}
    if len(widths) == 1 and facts.is_switched:
        return min(widths)
    if len(members) == 2 or not _linked(facts, members):
        return min(widths)
    if not facts.is_switched and (rings := mesh_rings(facts, members)):
        return tenths(2 * rings * _slowest_link(facts, members))
    return widest_ring(facts.hops, members)


def relay_bandwidth(facts: Facts, members: Sequence[int]) -> int:
    """Return the better of the rings and of the walks along spanning trees of NVLinks.

    A closed walk along a tree uses each of its links once in each direction, so trees without
    a common link carry one link's rate each. That is what Blink packs (Wang et al., MLSys 2020).
    """
    ring = ring_bandwidth(facts, members)
    if len(members) < 3 or facts.is_switched or not _linked(facts, members):
        return ring
    trees = disjoint_trees(_among(facts.links, members))
    return max(ring, tenths(trees * _slowest_link(facts, members)))


def mesh_rings(facts: Facts, members: Sequence[int]) -> int:
    """Return how many rings close through *members* over NVLink alone without sharing a link."""
    if len(members) > LARGEST_COUNTED:
        return int(closes(facts.links, members, 1))
    return disjoint_rings(_among(facts.links, members))


def _per_link(width: int, links: int) -> int:
    """Return the MB/s of one of *links* that carry *width*, to the nearest; 0 without links."""
    return (width * 100 + links // 2) // links if links else 0


def _linked(facts: Facts, members: Sequence[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in combinations(members, 2) if facts.links[a][b]]


def _slowest_link(facts: Facts, members: Sequence[int]) -> int:
    return min(facts.rates[a][b] for a, b in _linked(facts, members))


def _among(square: Square, members: Sequence[int]) -> list[list[int]]:
    return [[square[a][b] for b in members] for a in members]


def _by_positions(facts: Facts, measured: Measured) -> Mapping[frozenset[int], int]:
    position = {index: place for place, index in enumerate(facts.indices)}
    return {
        frozenset(position[index] for index in gpus): width
        for gpus, width in measured.sets.items()
        if gpus <= position.keys()
    }


def _frozen(square: Square) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, square))
