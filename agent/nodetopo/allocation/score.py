"""The score of a set of GPUs: one pure function per term, and the record of all terms.

A policy compares the terms in its own order (:func:`nodetopo.allocation.rules.terms_for`), the next
one only where all before are equal. Sets are tuples of positions in the snapshot, ascending.
Bandwidths are integers of 0.1 GB/s, so that they compare exactly. They are modelled and only
rank the sets of one machine. The bandwidth of a set, the first term, has three models:
:mod:`nodetopo.allocation.bandwidth`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any

from msgspec import Struct

from nodetopo.allocation.facts import Facts
from nodetopo.allocation.masks import positions

CROSSING_PENALTY = 1
"""Tenths of its bandwidth that a set loses in :func:`set_value` for spanning NUMA nodes, and
again for spanning sockets. A choice, not a measurement: it is small against any difference in
bandwidth between sets, and NUMA comes before packing whatever its value."""

FARTHEST_STEPS = 5
"""The distance SYS in :attr:`Facts.hca_steps`."""


class Score(Struct, frozen=True, kw_only=True):
    """The terms of a set."""

    degraded: int  # degraded GPUs of the set, fewer are better
    # Modelled, one direction, more is better; None for one GPU, which sends nothing.
    bandwidth_gb_s: float | None
    # The bandwidth by which the set is compared at first: that of the best set of the request, of
    # which it has at least 94 %, otherwise its bandwidth. The best is the widest of the sets that
    # equal the answer in all terms before.
    counts_as_gb_s: float | None
    # How many GPU models the set has, by product, memory and compute capability; fewer are better,
    # as the smallest memory and the slowest GPU set the pace.
    models: int
    # Sum over all pairs of the set, as they count among the pairs of free GPUs
    # (`allocation.bandwidth.alike`); more is better. It is compared for three GPUs or more.
    pair_bandwidth_gb_s: float
    # numa_nodes, sockets: how many the set spans, fewer are better; a GPU of unknown place counts
    # as a separate place
    numa_nodes: int
    sockets: int
    # What the remaining GPUs are worth to later jobs of 2, 4 and 8 GPUs, in weighted GB/s, more is
    # better. Where it is known when jobs end, the mean over now and after each end.
    remainder_value: float
    hca_far: int  # GPUs with no HCA on their socket
    rail_loss: int  # GPUs that cannot have one of their nearest HCAs for themselves
    hca_distance: int  # sum of the distances to the nearest HCA; PIX is 1, SYS 5
    # Sum of how near an HCA is: PIX is 5, SYS 1, none on the socket 0. It is compared for one GPU,
    # in place of the three terms before.
    hca_nearness: int
    # Sum of how many HCAs are nearest to the GPU, and how many to any GPU of its socket, less is
    # better: what is left keeps the socket with more. It is compared for one GPU, after
    # `hca_nearness`.
    rails_beside: int
    # PCIe switches, or Fabric Manager pairs, whose GPUs were all free and of which the set takes
    # only some.
    broken_partitions: int
    crowding: int  # sum over NUMA nodes of the square of the GPUs in use
    # How far the bandwidth is below what it counts as, less is better; None for one GPU.
    shortfall_gb_s: float | None
    # Bandwidth of the GPUs of the set to all GPUs of the node, less is better: the best-connected
    # stay free.
    reach_gb_s: float
    order: tuple[int, ...]  # GPU indices; the lower list wins when all else is equal

    def to_plain(self) -> dict[str, Any]:
        """Return the terms as JSON types."""
        plain = {name: getattr(self, name) for name in self.__struct_fields__}
        return {**plain, "order": list(self.order)}

    def lost_at(self, better: "Score", terms: Sequence[str]) -> str | None:
        """Return the first of *terms* in which this score differs from *better*; ``None``: none."""
        return next((name for name in terms if self.figure(name) != better.figure(name)), None)

    def figure(self, name: str) -> Any:
        """Return the value of the term *name*, by which sets are compared."""
        return self.counts_as_gb_s if name == "bandwidth_gb_s" else getattr(self, name)


def pair_bandwidth(facts: Facts, members: Sequence[int], counted: Mapping[int, int]) -> int:
    """Return the sum of the bandwidths of all pairs of *members*, 0.1 GB/s, as they are *counted*.

    A bandwidth that is not in *counted* counts as it is.
    """
    hops = (facts.hops[a][b] for a, b in combinations(members, 2))
    return sum(counted.get(hop, hop) for hop in hops)


def models(facts: Facts, members: Sequence[int]) -> int:
    return len({facts.models[member] for member in members})


def numa_nodes(facts: Facts, members: Sequence[int]) -> int:
    return len({facts.numa[member] for member in members})


def sockets(facts: Facts, members: Sequence[int]) -> int:
    """Return how many CPU sockets *members* span."""
    return len({facts.sockets[member] for member in members})


def set_value(bandwidth: int, nodes: int, sockets: int) -> int:
    """Return what a set is worth to a later job, 0.01 GB/s."""
    return bandwidth * (10 - CROSSING_PENALTY * ((nodes > 1) + (sockets > 1)))


def hca_far(facts: Facts, members: Sequence[int]) -> int:
    """Return how many of *members* have no HCA on their socket; 0 on a node without HCAs."""
    return sum(facts.is_far[member] for member in members)


def hca_distance(facts: Facts, members: Sequence[int]) -> int:
    """Return the sum of the distances of *members* to their nearest HCAs; PIX is 1, SYS 5."""
    return sum(facts.hca_steps[member] for member in members)


def reach(facts: Facts, members: Sequence[int]) -> int:
    """Return the bandwidth of *members* to all GPUs of the node, 0.1 GB/s."""
    return sum(facts.reach[member] for member in members)


def hca_nearness(facts: Facts, members: Sequence[int]) -> int:
    """Return the sum of how near an HCA is to *members*: PIX 5, SYS 1, 0 off the socket."""
    near = (m for m in members if facts.hca_steps[m] and not facts.is_far[m])
    return sum(FARTHEST_STEPS + 1 - facts.hca_steps[member] for member in near)


def rails_beside(facts: Facts, members: Sequence[int]) -> int:
    """Return how many HCAs are nearest to *members*, and to the GPUs on their sockets, added up."""
    found = 0
    for member in members:
        socket = facts.sockets[member]
        beside = [h for h, s in zip(facts.hcas, facts.sockets, strict=True) if s == socket]
        found += facts.hcas[member].bit_count() + reduce(or_, beside).bit_count()
    return found


def rail_loss(facts: Facts, members: Sequence[int]) -> int:
    """Return how many of *members* must share one of their nearest HCAs with another.

    These are the GPUs that a maximum matching of GPUs and nearest HCAs leaves over. GPUs that
    share an HCA also share its PCIe switch, and so the path to the host.
    """
    owner: dict[int, int] = {}

    def is_matched(member: int, visited: set[int]) -> bool:
        for hca in positions(facts.hcas[member]):
            if hca not in visited:
                visited.add(hca)
                if hca not in owner or is_matched(owner[hca], visited):
                    owner[hca] = member
                    return True
        return False

    return sum(not is_matched(member, set()) for member in members) if any(facts.hcas) else 0


def whole_partitions(facts: Facts, free: int) -> tuple[int, ...]:
    """Return the partitions whose GPUs are all in *free*; bit masks."""
    return tuple(partition for partition in facts.partitions if partition & free == partition)


def broken_partitions(whole: Sequence[int], chosen: int) -> int:
    """Return how many of the partitions *whole* the set *chosen* splits; bit masks."""
    count = 0
    for partition in whole:
        if 0 != partition & chosen != partition:
            count += 1
    return count


def crowding(facts: Facts, in_use: Sequence[int]) -> int:
    """Return the sum over the NUMA nodes of the square of the GPUs *in_use* there.

    It is least for an even load: of two nodes with 1 and 3 GPUs in use, one more on the first
    costs 3, on the second 7.
    """
    return sum(count * count for count in Counter(facts.numa[gpu] for gpu in in_use).values())
