"""The terms of one machine, each computed once for every set that is looked at."""

from collections.abc import Callable, Sequence

from agent.allocation.facts import Facts
from agent.allocation.packing import JOB_WEIGHTS, Packing, bits
from agent.allocation.score import (
    Key,
    broken_partitions,
    hca_distance,
    hca_far,
    numa_nodes,
    pair_bandwidth,
    rail_loss,
    ring_bandwidth,
    set_value,
    sockets,
    whole_partitions,
)
from agent.allocation.symmetry import Symmetry

LARGEST_EXACT = 16
"""GPUs up to which all sets are looked at; 12,870 of them at most, for 8 of 16."""

LARGEST_EXACT_MESH = 10
"""The same for GPUs that NVLinks join directly to two or more others, where every set needs
its rings counted. No larger mesh has been built (DGX-1 has 8)."""

Static = tuple[int, int, int, int]
"""What a set is worth wherever it is cut from: bandwidth, pairs, NUMA nodes, sockets."""

_Local = tuple[int, int, int, tuple[int, ...]]


class Terms:
    """Compare sets, given as bit masks of positions, of one machine.

    Safe to share between threads: two of them at worst compute the same value twice.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._symmetry = Symmetry(facts)
        self._static: dict[int, Static] = {}
        self._local: dict[int, _Local] = {}
        self.remainder_value: Callable[[int], int] = (
            Packing(self._value, self._symmetry).remainder_value
            if is_small(facts)
            else self._estimated_value
        )

    def static(self, mask: int) -> Static:
        """Return the terms that decide first, each so that less is better."""
        found = self._static.get(mask)
        if found is None:
            like = self._symmetry.canonical(mask)
            found = self._compute(mask) if like == mask else self.static(like)
            self._static[mask] = found
        return found

    def _compute(self, mask: int) -> Static:
        members = positions(mask)
        return (
            -ring_bandwidth(self.facts, members),
            -pair_bandwidth(self.facts, members),
            numa_nodes(self.facts, members),
            sockets(self.facts, members),
        )

    def key(self, mask: int, free: int) -> Key:
        """Return all terms of *mask* when cut from *free*, in the order of comparison."""
        return self.keys((mask,), free)[0]

    def keys(self, tied: Sequence[int], free: int) -> list[Key]:
        """Return the keys, best first, of sets that are equal up to the remainder term."""
        static = self.static(tied[0])
        remainder = -self.remainder_value(free ^ tied[0])
        whole = whole_partitions(self.facts, free)
        keys = []
        for mask in tied:
            far, loss, distance, members = self._locally(mask)
            broken = broken_partitions(whole, mask)
            keys.append((*static, remainder, far, loss, distance, broken, members))
        return sorted(keys)

    def _locally(self, mask: int) -> _Local:
        found = self._local.get(mask)
        if found is None:
            members = positions(mask)
            found = self._local[mask] = (
                hca_far(self.facts, members),
                rail_loss(self.facts, members),
                hca_distance(self.facts, members),
                members,
            )
        return found

    def _value(self, mask: int) -> int:
        bandwidth, _, nodes, spanned = self.static(mask)
        return set_value(-bandwidth, nodes, spanned)

    def _estimated_value(self, remainder: int) -> int:
        """Value the jobs of a machine too large to pack exactly, cut in order of place."""
        facts = self.facts
        order = sorted(
            positions(remainder),
            key=lambda member: (facts.sockets[member], facts.numa[member], member),
        )
        return sum(
            weight * self._value(sum(1 << member for member in order[start : start + job]))
            for job, weight in JOB_WEIGHTS.items()
            for start in range(0, len(order) - job + 1, job)
        )


def is_small(facts: Facts) -> bool:
    """Return whether every set of the machine can be looked at in the time of a request."""
    is_mesh = not facts.is_switched and any(sum(map(bool, row)) > 1 for row in facts.links)
    return len(facts.indices) <= (LARGEST_EXACT_MESH if is_mesh else LARGEST_EXACT)


def positions(mask: int) -> tuple[int, ...]:
    """Return the positions that *mask* holds, ascending."""
    return tuple(bit.bit_length() - 1 for bit in bits(mask))
