"""The Topology Manager: it merges all hints into the one that resources are allocated by.

Semantics of kubernetes 1.36 pkg/kubelet/cm/topologymanager (policy*.go). The kubelet walks the
product of all lists. A combination is preferred only if all its sets are preferred and equal; so
sets that all lists prefer are looked for first, and only then what sets have in common.
"""

import math
from collections.abc import Sequence
from functools import reduce
from operator import and_

from msgspec import Struct

from nodetopo.admission.errors import Missing
from nodetopo.admission.hints import Choices, Hint, Hints
from nodetopo.model.numa import NumaNode
from nodetopo.topology.node_sets import NO_SET, Family, mask_of, one_set

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
"""As ``topologyManagerPolicy`` spells them, each stricter than the one before."""
SCOPES = ("container", "pod")
"""As ``topologyManagerScope`` spells them."""
MOST_NODES, CLOSEST = "max-allowable-numa-nodes", "prefer-closest-numa-nodes"
OPTIONS = (MOST_NODES, CLOSEST)
"""As ``topologyManagerPolicyOptions`` spells them."""

PER_MINUTE = 200_000_000
"""Combinations of hints that a kubelet goes through (kubernetes issue 131738: 255⁴ in 21 minutes;
1.36.3 on a virtual machine: 300 million)."""

_MOST_COMBINATIONS = 60 * PER_MINUTE
"""Beyond which a kubelet is taken not to answer."""

_MOST_COMPARED = 200_000
"""Sets whose distances are computed, some seconds."""


class TopologyManager(Struct, frozen=True, kw_only=True):
    """The Topology Manager of one node."""

    policy: str  # not `none`, which merges nothing
    nodes: tuple[NumaNode, ...]  # of the whole machine
    prefer_closest: bool = False  # option prefer-closest-numa-nodes

    def merge(self, hints_by_manager: Sequence[Hints]) -> tuple[Hint, bool]:
        """Return the merged hint of all managers, and whether the policy admits it."""
        if (combinations := self.combinations(hints_by_manager)) > _MOST_COMBINATIONS:
            problem = "an answer from the kubelet within an hour: it tries"
            raise Missing(f"{problem} {combinations:,} combinations of sets of NUMA nodes")
        whole = mask_of(node.id for node in self.nodes)
        best = self._best(self._lists(hints_by_manager), whole)
        if self.policy == SINGLE and best.mask == whole:
            best = Hint(None, best.preferred)
        return best, self.policy == BEST_EFFORT or best.preferred

    def combinations(self, hints_by_manager: Sequence[Hints]) -> int:
        """Return how many combinations of hints the kubelet tries.

        A resource that nothing can serve has one hint, of any nodes.
        """
        lists = self._lists(hints_by_manager)
        return math.prod(max(choices.fitting.count, 1) for choices in lists)

    def _lists(self, hints_by_manager: Sequence[Hints]) -> list[Choices]:
        """Return the hints that the policy looks at, of all resources that have a preference."""
        every = (it for by_resource in hints_by_manager for it in by_resource.values())
        stated = [it for it in every if it is not None]
        if self.policy != SINGLE:
            return stated
        single = [choices.preferred.of_size(1) for choices in stated]
        return [Choices(sets, sets) for sets in single]

    def _best(self, lists: Sequence[Choices], whole: int) -> Hint:
        # A resource without a preference agrees with all others.
        machine = one_set(whole)
        agreed = reduce(and_, (it.preferred for it in lists)) if lists else machine
        common = agreed.overlaps(machine).nonempty
        if common.narrowest is not None:
            return Hint(self._fittest(common.of_size(common.narrowest)), preferred=True)

        # As many nodes as the resource needs that needs the most, else fewer, else more.
        needed = max((it.fitting.narrowest or 0 for it in lists), default=0)
        # A hint for what nothing can serve is of any nodes; policy single-numa-node drops it.
        anywhere = NO_SET if self.policy == SINGLE else machine
        shared = reduce(Family.overlaps, (it.fitting or anywhere for it in lists), machine).nonempty
        if shared.narrowest is None:
            return Hint(whole, preferred=False)
        fewer = shared.sizes & (2 << needed) - 1
        size = fewer.bit_length() - 1 if fewer else shared.narrowest
        return Hint(self._fittest(shared.of_size(size)), preferred=False)

    def _fittest(self, sets: Family) -> int:
        """Return the best of *sets* of as many nodes: near each other on request, low numbers."""
        if not self.prefer_closest or self.policy == SINGLE:
            return next(iter(sets))
        if sets.count > _MOST_COMPARED:
            problem = "an answer for prefer-closest-numa-nodes and as many as"
            raise Missing(f"{problem} {sets.count:,} sets of NUMA nodes, which is not worked out")
        return min(sets, key=lambda mask: (self._distance(mask), mask))

    def _distance(self, mask: int) -> float:
        """Return the mean distance between the nodes of a set."""
        # The kubelet uses the id of a node as its position in the row of distances.
        members = [node for node in self.nodes if mask >> node.id & 1]
        total = sum((it.distances or ())[other.id] for it in members for other in members)
        return total / len(members) ** 2
