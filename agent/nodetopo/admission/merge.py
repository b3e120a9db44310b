"""The Topology Manager: it merges all hints into the one that resources are allocated by.

Semantics of kubernetes 1.36 pkg/kubelet/cm/topologymanager (policy*.go). The kubelet walks the
product of all lists. A combination is preferred only if all its sets are preferred and equal; so
sets that all lists prefer are looked for first, and only then what sets have in common.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodetopo.admission.hints import Hint, Hints, mask_of, masks, narrowness, nodes_of
from nodetopo.model.numa import NumaNode

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
"""As ``topologyManagerPolicy`` spells them, each stricter than the one before."""
SCOPES = ("container", "pod")
"""As ``topologyManagerScope`` spells them."""

_ANY = Hint(None, preferred=True)
_NOWHERE = Hint(None, preferred=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyManager:
    """The Topology Manager of one node.

    Attributes:
        policy: not ``none``, which merges nothing.
        nodes: all NUMA nodes of the machine.
        prefer_closest: option ``prefer-closest-numa-nodes``.
    """

    policy: str
    nodes: tuple[NumaNode, ...]
    prefer_closest: bool = False

    def merge(self, hints_by_manager: Sequence[Hints]) -> tuple[Hint, bool]:
        """Return the merged hint of all managers, and whether the policy admits it."""
        lists: list[tuple[Hint, ...]] = []
        for by_resource in hints_by_manager:
            if not by_resource:
                lists.append((_ANY,))
            lists += [
                (_ANY,) if hints is None else hints or (_NOWHERE,) for hints in by_resource.values()
            ]
        if self.policy == SINGLE:
            lists = [tuple(filter(_is_at_most_one_node, hints)) for hints in lists]
        whole = mask_of(node.id for node in self.nodes)
        best = self._best(lists, whole)
        if self.policy == SINGLE and best.mask == whole:
            best = Hint(None, best.preferred)
        return best, self.policy == BEST_EFFORT or best.preferred

    def _best(self, lists: Sequence[tuple[Hint, ...]], whole: int) -> Hint:
        # Sets that every list prefers; a list that prefers any set agrees with all others.
        preferred = [frozenset(hint.mask for hint in hints if hint.preferred) for hints in lists]
        stated = [sets for sets in preferred if None not in sets]
        agreed = frozenset.intersection(*stated) if stated else frozenset({whole})
        if common := [mask & whole for mask in agreed if mask is not None and mask & whole]:
            return Hint(min(common, key=self._fitness), preferred=True)

        # As many nodes as the resource needs that needs the most, else fewer, else more.
        counts = [[it.mask.bit_count() for it in hints if it.mask is not None] for hints in lists]
        needed = max((min(widths) for widths in counts if widths), default=0)

        def distance(mask: int) -> tuple[int, int]:
            count = mask.bit_count()
            return (1, count) if count > needed else (0, needed - count)

        nearest = min(
            _overlaps(lists, whole),
            key=lambda mask: (distance(mask), self._fitness(mask)),
            default=whole,
        )
        return Hint(nearest, preferred=False)

    def _fitness(self, mask: int) -> tuple[float, ...]:
        """Return the sort key of a set: narrow, near each other on request, low numbers."""
        if not self.prefer_closest or self.policy == SINGLE:
            return narrowness(mask)
        # The kubelet uses the id of a node as its position in the row of distances.
        members = [node for node in self.nodes if mask >> node.id & 1]
        total = sum((it.distances or ())[other.id] for it in members for other in members)
        return mask.bit_count(), total / len(members) ** 2, mask


def _is_at_most_one_node(hint: Hint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _overlaps(lists: Iterable[tuple[Hint, ...]], whole: int) -> list[int]:
    """Return every non-empty intersection of sets, one of each list.

    The combinations are counted for all sets at once: those whose sets all include it, less those
    that have more in common.
    """
    every, bits = (0, *masks(nodes_of(whole))), [1 << node for node in nodes_of(whole)]
    combinations = dict.fromkeys(every, 1)
    for hints in lists:
        including = Counter(whole if hint.mask is None else hint.mask & whole for hint in hints)
        for bit in bits:
            for mask in (it for it in every if not it & bit):
                including[mask] += including[mask | bit]
        combinations = {mask: count * including[mask] for mask, count in combinations.items()}
    for bit in bits:
        for mask in (it for it in every if not it & bit):
            combinations[mask] -= combinations[mask | bit]
    return [mask for mask, count in combinations.items() if mask and count]
