"""What a set of GPUs is worth: one pure function per term, and the record of all of them.

The terms are compared in the order of :class:`Score`'s fields, the next one only where all
before are equal. Sets are tuples of positions in the snapshot, ascending. Bandwidths are
integers of 0.1 GB/s, so that equal means equal. They are a model, never a measurement; they
rank sets of one machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import total_ordering
from itertools import combinations
from typing import Any

from agent.allocation.facts import Facts, tenths
from agent.allocation.ring import closes, disjoint_rings, widest_ring

LARGEST_MESH = 8
"""GPUs up to which rings of an NVLink mesh are counted exactly: no larger mesh has been built
(DGX-1). A larger set counts one ring if it closes; sets of one size are compared alike."""

CROSSING_PENALTY = 1
"""Tenths of its bandwidth that a set loses in :func:`set_value` for spanning NUMA nodes, and
again for spanning sockets. A choice, not a measurement: small against any step in bandwidth
between sets, and the order of NUMA before packing does not depend on it."""

Key = tuple[int, int, int, int, int, int, int, int, int, tuple[int, ...]]
"""The terms in the order of :class:`Score`, each so that less is better."""


@total_ordering
@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The worth of a set, most important first; ``a < b`` says that *a* is the better set.

    Attributes:
        bandwidth_gb_s: modelled ring bandwidth in one direction, more is better; ``None`` for
            one GPU, which has no ring.
        pair_bandwidth_gb_s: sum over all pairs of the set, more is better.
        numa_nodes, sockets: how many the set spans, fewer are better; a GPU of unknown
            place counts as one of its own.
        remainder_value: what the GPUs left are worth to later jobs of 2, 4 and 8 GPUs, in
            weighted GB/s, more is better.
        hca_far: GPUs with no HCA on their socket.
        rail_loss: GPUs that cannot have one of their nearest HCAs for themselves.
        hca_distance: sum of the distances to the nearest HCA; PIX is 1, SYS 5.
        broken_partitions: switch or index pairs that were whole and would not be.
        order: the GPU indices; the lower list wins when all else is equal.
    """

    bandwidth_gb_s: float | None
    pair_bandwidth_gb_s: float
    numa_nodes: int
    sockets: int
    remainder_value: float
    hca_far: int
    rail_loss: int
    hca_distance: int
    broken_partitions: int
    order: tuple[int, ...]

    def __lt__(self, other: "Score") -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[object, ...]:
        return (
            -(self.bandwidth_gb_s or 0),
            -self.pair_bandwidth_gb_s,
            self.numa_nodes,
            self.sockets,
            -self.remainder_value,
            self.hca_far,
            self.rail_loss,
            self.hca_distance,
            self.broken_partitions,
            self.order,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return the terms in JSON's own types, in order of importance."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**plain, "order": list(self.order)}

    def lost_at(self, better: "Score") -> str:
        """Return the name of the first term at which this score is not equal to *better*."""
        names = [field.name for field in fields(self)]
        return next(name for name in names if getattr(self, name) != getattr(better, name))


def score(key: Key, facts: Facts) -> Score:
    """Return the record of *key*."""
    size = len(key[-1])
    return Score(
        bandwidth_gb_s=-key[0] / 10 if size > 1 else None,
        pair_bandwidth_gb_s=-key[1] / 10,
        numa_nodes=key[2],
        sockets=key[3],
        remainder_value=-key[4] / 100,
        hca_far=key[5],
        rail_loss=key[6],
        hca_distance=key[7],
        broken_partitions=key[8],
        order=tuple(facts.indices[position] for position in key[9]),
    )


def ring_bandwidth(facts: Facts, members: Sequence[int]) -> int:
    """Return the bandwidth of rings through *members*, 0.1 GB/s, one direction; 0 for one GPU.

    Two GPUs have their links. Behind NVSwitches every GPU brings all its links to any ring.
    In a mesh each ring that shares no link with another carries its rate in both directions
    around. Where no ring closes over NVLink the narrowest hop of the widest ring decides; on
    PCIe alone that is the worst pair, since a ring in tree order crosses each uplink once.
    """
    if len(members) < 2:
        return 0
    widths = {facts.hops[a][b] for a, b in combinations(members, 2)}
    linked = [(a, b) for a, b in combinations(members, 2) if facts.links[a][b]]
    if len(widths) == 1 and facts.is_switched:
        return min(widths)
    if len(members) == 2 or not linked:
        return min(widths)
    if not facts.is_switched and (rings := mesh_rings(facts, members)):
        return tenths(2 * rings * min(facts.rates[a][b] for a, b in linked))
    return widest_ring(_among(facts.hops, members))


def mesh_rings(facts: Facts, members: Sequence[int]) -> int:
    """Return how many rings close through *members* over NVLink alone without sharing a link."""
    links = _among(facts.links, members)
    return disjoint_rings(links) if len(members) <= LARGEST_MESH else int(closes(links, 1))


def _among(square: Sequence[Sequence[int]], members: Sequence[int]) -> list[list[int]]:
    return [[square[a][b] for b in members] for a in members]


def pair_bandwidth(facts: Facts, members: Sequence[int]) -> int:
    """Return the bandwidths of all pairs of *members* added up, 0.1 GB/s."""
    return sum(facts.hops[a][b] for a, b in combinations(members, 2))


def numa_nodes(facts: Facts, members: Sequence[int]) -> int:
    """Return how many NUMA nodes *members* span."""
    return len({facts.numa[member] for member in members})


def sockets(facts: Facts, members: Sequence[int]) -> int:
    """Return how many CPU sockets *members* span."""
    return len({facts.sockets[member] for member in members})


def set_value(bandwidth: int, nodes: int, sockets: int) -> int:
    """Return what a later job would get from a set, 0.01 GB/s."""
    return bandwidth * (10 - CROSSING_PENALTY * ((nodes > 1) + (sockets > 1)))


def hca_far(facts: Facts, members: Sequence[int]) -> int:
    """Return how many of *members* have no HCA on their socket; 0 on a node without HCAs."""
    return sum(facts.is_far[member] for member in members)


def hca_distance(facts: Facts, members: Sequence[int]) -> int:
    """Return the distances of *members* to their nearest HCAs added up; PIX is 1, SYS 5."""
    return sum(facts.hca_steps[member] for member in members)


def rail_loss(facts: Facts, members: Sequence[int]) -> int:
    """Return how many of *members* must share one of their nearest HCAs with another.

    That is what a maximum matching of GPUs and nearest HCAs leaves over. GPUs that share an
    HCA share its PCIe switch as well, and so the way to the host.
    """
    owner: dict[int, int] = {}

    def settles(member: int, asked: set[int]) -> bool:
        for hca in _bits(facts.hcas[member]):
            if hca not in asked:
                asked.add(hca)
                if hca not in owner or settles(owner[hca], asked):
                    owner[hca] = member
                    return True
        return False

    return sum(not settles(member, set()) for member in members) if any(facts.hcas) else 0


def whole_partitions(facts: Facts, free: int) -> tuple[int, ...]:
    """Return the partitions of which every GPU is in *free*; all are bit masks."""
    return tuple(partition for partition in facts.partitions if partition & free == partition)


def broken_partitions(whole: Sequence[int], chosen: int) -> int:
    """Return how many of the partitions *whole* the set *chosen* would split; bit masks."""
    count = 0
    for partition in whole:
        if 0 != partition & chosen != partition:
            count += 1
    return count


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
