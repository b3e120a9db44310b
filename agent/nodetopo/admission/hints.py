"""Hints: the sets of NUMA nodes that a manager of the kubelet could serve a request from.

A set is an integer with a bit for each node, as in the kubelet, so nodes from 64 on have no bit
(kubernetes 1.36 pkg/kubelet/cm/topologymanager/bitmask).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

MAX_NODE = 63
"""The highest id of a NUMA node that fits a set."""


@dataclass(frozen=True, slots=True)
class Hint:
    """One set of NUMA nodes that a request could be served from.

    Attributes:
        mask: the set; ``None`` for any.
        preferred: whether it is as narrow as the request could have on an empty node.
    """

    mask: int | None
    preferred: bool

    @property
    def numa_nodes(self) -> tuple[int, ...] | None:
        """The nodes, ascending; ``None`` for any."""
        return None if self.mask is None else nodes_of(self.mask)


Hints: TypeAlias = Mapping[str, tuple[Hint, ...] | None]
"""Resource → its hints: ``None`` for no preference, empty where nothing can serve it. A manager
without a preference for anything returns no resource at all."""


def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the nodes of a set, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


def mask_of(nodes: Iterable[int]) -> int:
    """Return the set of *nodes*; ids that the kubelet cannot represent share the bit above all.

    A device plugin may report node -1: its devices then count as near a node that no machine has.
    """
    bits = frozenset(node if 0 <= node <= MAX_NODE else MAX_NODE + 1 for node in nodes)
    return sum(1 << bit for bit in bits)


def masks(nodes: Iterable[int]) -> Iterator[int]:
    """Yield every non-empty set of *nodes*."""
    whole = mask_of(nodes)
    mask = whole
    while mask:
        yield mask
        mask = (mask - 1) & whole


def sums(amounts: Mapping[int, int]) -> dict[int, int]:
    """Return the total of every non-empty set of nodes, of *amounts* by node."""
    totals = {0: 0}
    for node, amount in amounts.items():
        totals |= {mask | 1 << node: total + amount for mask, total in totals.items()}
    del totals[0]
    return totals


def narrowness(mask: int) -> tuple[int, int]:
    """Return the sort key by which the kubelet calls a set narrower: fewer nodes, then lower."""
    return mask.bit_count(), mask
