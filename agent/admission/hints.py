"""What a manager of the kubelet tells the Topology Manager: sets of NUMA nodes it could serve from.

A set is an integer with a bit for each node, as the kubelet has it, so that nodes from 64 on have
none (kubernetes 1.36 pkg/kubelet/cm/topologymanager/bitmask).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

MAX_NODE = 63
"""The highest id of a NUMA node that fits a set."""

Hints = Mapping[str, "tuple[Hint, ...] | None"]
"""Resource → what could serve it; ``None`` for no preference, empty for nothing could. A manager
without a preference for anything returns no resource at all."""


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


def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the nodes of a set, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


def mask_of(nodes: Iterable[int]) -> int:
    """Return the set of *nodes*; ids that the kubelet cannot know become the one bit above all.

    A device plugin may tell node -1: its devices then count as near a node that no machine has.
    """
    bits = frozenset(node if 0 <= node <= MAX_NODE else MAX_NODE + 1 for node in nodes)
    return sum(1 << bit for bit in bits)


def masks(nodes: Iterable[int]) -> Iterator[int]:
    """Yield every set of *nodes* but the empty one."""
    whole = mask_of(nodes)
    mask = whole
    while mask:
        yield mask
        mask = (mask - 1) & whole


def sums(amounts: Mapping[int, int]) -> dict[int, int]:
    """Return what every set of nodes but the empty one has in sum, of *amounts* by node."""
    found = {0: 0}
    for node, amount in amounts.items():
        found |= {mask | 1 << node: total + amount for mask, total in found.items()}
    del found[0]
    return found


def narrowness(mask: int) -> tuple[int, int]:
    """Return the key by which the kubelet calls a set narrower: fewer nodes, then lower ones."""
    return mask.bit_count(), mask
