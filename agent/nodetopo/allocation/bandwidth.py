"""The bandwidth of a set by one of three models; all in 0.1 GB/s, one direction.

``ring``: what rings through the set carry, as NCCL's ring algorithm uses them.
``relay``: the optimistic bound, where a GPU of the set can forward data for two others, as NCCL
does with its NVB paths (NCCL 2.30 src/graph/paths.cc).
``table``: what the operator measured, and the ring model for sets that were not measured.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from msgspec.structs import replace

from nodetopo.allocation.facts import Facts, Square, reach, tenths
from nodetopo.allocation.families import Families
from nodetopo.allocation.masks import positions
from nodetopo.allocation.measured import Measured
from nodetopo.allocation.rules import Model, Rules

LARGEST_COUNTED = 8
"""GPUs up to which the rings of an NVLink mesh are counted exactly: no larger mesh has been
built (DGX-1). A larger set counts one ring if any closes; sets of one size compare alike."""

EQUAL_SHARE = 94
"""Percent of a bandwidth that count as all of it: a GPU with 17 of 18 NVLinks is as good as one
with all, and the raw line rate that some drivers report as the payload (both within 6 %). Of the
sets that answer a request those with as much of the best are equal in bandwidth."""

MOST_STEPS = 50_000
"""Rings tried for one set, 0.1 s of them. The sets of a DGX-1 take 41 at most; a dense mesh of
eight, which nobody has built, would never end."""

LARGEST_SEARCHED = 16
"""Vertices up to which a ring is searched for where the cheap tests do not decide; among 16 that
takes 5 ms. Beyond, a ring that is not certain counts as none."""

MOST_TREE_VERTICES = 10
"""Vertices up to which spanning trees are counted; 10 have 115,975 partitions. Beyond, a
connected graph counts one tree."""

Bandwidth = Callable[[Sequence[int]], int]
"""Positions, ascending → 0.1 GB/s; 0 for one GPU, which sends nothing."""

Ring = frozenset[tuple[int, int]]
"""The edges of a Hamiltonian cycle, higher vertex first."""


def bandwidth(facts: Facts, rules: Rules) -> Bandwidth:
    """Return the model that *rules* name, for the machine of *facts*."""
    model = relay_bandwidth if rules.model is Model.RELAY else ring_bandwidth
    position = {index: place for place, index in enumerate(facts.indices)}
    measured = {
        frozenset(position[index] for index in gpus): width
        for gpus, width in (rules.measured.sets if rules.measured else {}).items()
        if gpus <= position.keys()
    }

    def of(members: Sequence[int]) -> int:
        width = measured.get(frozenset(members)) if measured else None
        return model(facts, members) if width is None else width

    return of


def near_share(bandwidth: int) -> int:
    """Return the least bandwidth, 0.1 GB/s, that counts as all of *bandwidth*."""
    return -(-bandwidth * EQUAL_SHARE // 100)


def alike(bandwidths: Iterable[int]) -> dict[int, int]:
    """Return as what each of *bandwidths* counts among the others: the highest of its class.

    Sorted, a bandwidth below :data:`EQUAL_SHARE` of the next higher begins a new class. So noise
    makes no classes, however many figures there are, and a class ends at a gap.
    """
    found: dict[int, int] = {}
    head = previous = 0
    for bandwidth in sorted(set(bandwidths), reverse=True):
        if not found or bandwidth < near_share(previous):
            head = bandwidth
        found[bandwidth] = head
        previous = bandwidth
    return found


def pairs_alike(hops: Square, free: int) -> dict[int, int]:
    """Return the same for the *hops* of all pairs of *free* GPUs, a mask of positions."""
    return alike(hops[a][b] for a, b in combinations(positions(free), 2))


def has_near(classes: Mapping[int, int]) -> bool:
    """Return whether any class of :func:`alike` has several bandwidths."""
    return any(bandwidth != head for bandwidth, head in classes.items())


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
            if links := facts.links[a][b]:
                # MB/s of one link, rounded; a width below half a MB/s a link changes nothing.
                rates[a][b] = (width * 100 + links // 2) // links or rates[a][b]
    return replace(facts, hops=_frozen(hops), rates=_frozen(rates), reach=reach(hops))


def ring_bandwidth(facts: Facts, members: Sequence[int]) -> int:
    """Return the bandwidth of rings through *members*.

    Over NVSwitches every hop has the full width of a GPU. In a mesh, each ring with separate
    NVLinks is used in both directions. Otherwise the widest ring decides; on PCIe alone that is the
    worst pair, since a ring in tree order crosses each uplink once.
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


def disjoint_rings(links: Square) -> int:
    """Return how many Hamiltonian cycles fit into the multigraph *links* without sharing a link.

    At least three vertices. Found by search, so meant for the eight GPUs of a cube mesh; exact
    unless ``MOST_STEPS`` is reached, and then possibly too low.
    """
    spare = {(a, b): links[a][b] for a in range(len(links)) for b in range(a) if links[a][b]}
    return _most_disjoint(spare, tuple(_rings(links)), len(links), [MOST_STEPS])


def widest_ring(hops: Square, members: Sequence[int]) -> int:
    """Return the greatest width at which a ring through all *members* closes.

    The width of a ring is its narrowest hop's. At least three vertices, all joined.
    """
    widths = sorted({hops[a][b] for a, b in combinations(members, 2)}, reverse=True)
    return next(width for width in widths if closes(hops, members, width))


def closes(hops: Square, members: Sequence[int], width: int) -> bool:
    """Return whether a ring through all *members* closes over hops of at least *width*.

    Exact up to ``LARGEST_SEARCHED`` members; beyond, ``False`` can mean "not certain".
    """
    count = len(members)
    joined = joined_at(_among(hops, members), width)
    # Cheap tests decide the graphs of real machines, which are cliques with a few links across.
    # Every ring stays in one piece without any one vertex.
    everyone = (1 << count) - 1
    if not all(_is_connected(joined, everyone ^ 1 << lost) for lost in range(count)):
        return False
    # It suffices that every vertex is joined to half of all vertices or more (Dirac).
    if all(2 * others.bit_count() >= count for others in joined):
        return True
    return count <= LARGEST_SEARCHED and bool(Families(count).rings(joined) >> everyone & 1)


def joined_at(hops: Square, width: int) -> list[int]:
    """Return for each vertex those that it reaches at *width*, as a mask."""
    return [
        sum(1 << b for b, hop in enumerate(row) if b != a and hop >= width)
        for a, row in enumerate(hops)
    ]


def disjoint_trees(links: Square) -> int:
    """Return how many spanning trees fit into the multigraph *links* without sharing a link.

    It is the minimum, over all partitions of the vertices, of the links between parts divided by
    the number of parts less one (Nash-Williams 1961, Tutte 1961). At least two vertices.
    """
    count = len(links)
    if count > MOST_TREE_VERTICES:
        return int(_is_connected(joined_at(links, 1), (1 << count) - 1))
    best = total = sum(map(sum, links)) // 2
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


def _linked(facts: Facts, members: Sequence[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in combinations(members, 2) if facts.links[a][b]]


def _slowest_link(facts: Facts, members: Sequence[int]) -> int:
    return min(facts.rates[a][b] for a, b in _linked(facts, members))


def _among(square: Square, members: Sequence[int]) -> list[list[int]]:
    return [[square[a][b] for b in members] for a in members]


def _frozen(square: Square) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, square))


def _most_disjoint(
    spare: dict[tuple[int, int], int], rings: Sequence[Ring], vertices: int, steps: list[int]
) -> int:
    """Return how many of *rings* fit into the *spare* links; *steps* is the budget that is left."""
    bound = min(sum(n for edge, n in spare.items() if v in edge) // 2 for v in range(vertices))
    most = 0
    for position, ring in enumerate(rings):
        if most >= bound or steps[0] <= 0:
            break
        steps[0] -= 1
        if all(spare[edge] for edge in ring):
            left = {edge: n - (edge in ring) for edge, n in spare.items()}
            # Sets that contain an earlier ring were tried with that ring first.
            most = max(most, 1 + _most_disjoint(left, rings[position:], vertices, steps))
    return most


def _rings(links: Square) -> Iterator[Ring]:
    """Yield every Hamiltonian cycle once: in the direction whose second vertex is the lower."""
    path = [0]

    def extend() -> Iterator[Ring]:
        last = path[-1]
        if len(path) == len(links):
            if links[last][0] and path[1] < last:
                steps = zip(path, [*path[1:], 0], strict=True)
                yield frozenset((max(a, b), min(a, b)) for a, b in steps)
            return
        for following in range(1, len(links)):
            if links[last][following] and following not in path:
                path.append(following)
                yield from extend()
                path.pop()

    return extend()


def _is_connected(joined: Sequence[int], vertices: int) -> bool:
    reached = frontier = vertices & -vertices
    while frontier:
        vertex = frontier & -frontier
        new = joined[vertex.bit_length() - 1] & vertices & ~reached
        reached |= new
        frontier = frontier ^ vertex | new
    return reached == vertices
