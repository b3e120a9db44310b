"""Hints: the sets of NUMA nodes that a manager of the kubelet could serve a request from.

A set is an integer with a bit for each node, as in the kubelet, so nodes from 64 on have no bit
(kubernetes 1.36 pkg/kubelet/cm/topologymanager/bitmask).
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from msgspec import Struct

from nodetopo.topology.node_sets import Family, nodes_of

MOST_SHOWN = 1023
"""Hints of one resource that are shown, the narrowest: all of up to ten NUMA nodes."""


class Hint(Struct, frozen=True):
    """One set of NUMA nodes that a request could be served from."""

    mask: int | None  # None for any
    preferred: bool  # as narrow as the request could have on an empty node

    @property
    def numa_nodes(self) -> tuple[int, ...] | None:
        """The nodes, ascending; ``None`` for any."""
        return None if self.mask is None else nodes_of(self.mask)


class Choices(Struct, frozen=True):
    """All hints for one resource."""

    fitting: Family  # empty where nothing can serve it
    preferred: Family

    def __iter__(self) -> Iterator[Hint]:
        """Yield the hints, the narrowest first."""
        return (Hint(mask, mask in self.preferred) for mask in self.fitting)

    @property
    def shown(self) -> tuple[Hint, ...]:
        """The first :data:`MOST_SHOWN` hints."""
        return tuple(islice(self, MOST_SHOWN))


Hints: TypeAlias = Mapping[str, Choices | None]
"""Resource → its hints; ``None`` for no preference. A manager without a preference for anything
returns no resource at all."""
