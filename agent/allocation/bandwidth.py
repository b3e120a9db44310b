"""The bandwidth of a set, by one of three models; all in 0.1 GB/s, one direction.

``ring``: what rings through the set carry, as NCCL's ring algorithm would use them.
``relay``: the optimistic bound, where a GPU of the set may pass data on for two others, as
NCCL does with its NVB paths (NCCL 2.30 src/graph/paths.cc).
``table``: what the operator measured, and the ring model where nothing was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from agent.allocation.facts import Facts, Square, tenths
from agent.allocation.measured import Measured
from agent.allocation.ring import closes, disjoint_rings, widest_ring
from agent.allocation.rules import Model, Rules
from agent.allocation.spanning import disjoint_trees

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
