"""The Topology Manager's merge of all hints into the one that pods are placed by.

Semantics of kubernetes 1.36 pkg/kubelet/cm/topologymanager (policy*.go). It walks the product
of all lists. A combination is preferred only if all its sets are preferred ones and the same, so
that those that all lists prefer are looked for first, and what sets have in common only then.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agent.admission.hints import Hint, Hints, mask_of, masks, narrowness, nodes_of
from agent.model.numa import NumaNode

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
"""As ``topologyManagerPolicy`` spells them, each stricter than the one before."""
SCOPES = ("container", "pod")
"""As ``topologyManagerScope`` spells them."""

_ANY = Hint(None, preferred=True)
_NOWHERE = Hint(None, preferred=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merger:
    """The Topology Manager of one node.

    Attributes:
        policy: not ``none``, which merges nothing.
        nodes: all NUMA nodes of the machine.
        prefer_closest: option ``prefer-closest-numa-nodes``.
    """

    policy: str
    nodes: tuple[NumaNode, ...]
    prefer_closest: bool = False

    def merge(self, told: Sequence[Hints]) -> tuple[Hint, bool]:
        """Return what all managers' hints come to, and whether the policy admits it."""
        lists = _lists(told)
        if self.policy == SINGLE:
            lists = [tuple(filter(_is_single, hints)) for hints in lists]
        best = self._best(lists)
        if self.policy == SINGLE and best.mask == self._whole:
            best = Hint(None, best.preferred)
        return best, self.policy == BEST_EFFORT or best.preferred

    @property
    def _whole(self) -> int:
        return mask_of(node.id for node in self.nodes)

    def _best(self, lists: Sequence[tuple[Hint, ...]]) -> Hint:
        whole, fitness = self._whole, self._fitness()
        if agreed := _agreed(lists, whole):
            return Hint(min(agreed, key=fitness), preferred=True)
        wanted = _widest_need(lists)
        nearest = min(
            _overlaps(lists, whole),
            key=lambda mask: (_distance(mask, wanted), fitness(mask)),
            default=whole,
        )
        return Hint(nearest, preferred=False)

    def _fitness(self) -> Callable[[int], tuple[float, ...]]:
        if not self.prefer_closest or self.policy == SINGLE:
            return narrowness
        return lambda mask: (mask.bit_count(), self._mean_distance(mask), mask)

    def _mean_distance(self, mask: int) -> float:
        # The kubelet takes a node's id for its place in the row of distances.
        rows = [node.distances or () for node in self.nodes if mask >> node.id & 1]
        ids = [node.id for node in self.nodes if mask >> node.id & 1]
        return sum(row[other] for row in rows for other in ids) / len(ids) ** 2


def _lists(told: Iterable[Hints]) -> list[tuple[Hint, ...]]:
    found: list[tuple[Hint, ...]] = []
    for hints in told:
        if not hints:
            found.append((_ANY,))
        found += [(_ANY,) if one is None else one or (_NOWHERE,) for one in hints.values()]
    return found


def _is_single(hint: Hint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _agreed(lists: Iterable[tuple[Hint, ...]], whole: int) -> frozenset[int]:
    """Return the sets that every list prefers; one that prefers any stands back."""
    preferred = [frozenset(hint.mask for hint in hints if hint.preferred) for hints in lists]
    stated = [masks for masks in preferred if None not in masks]
    agreed = frozenset.intersection(*stated) if stated else frozenset({whole})
    return frozenset(mask & whole for mask in agreed if mask is not None and mask & whole)


def _overlaps(lists: Iterable[tuple[Hint, ...]], whole: int) -> list[int]:
    """Return what sets, one of each list, have in common, where they have anything.

    It is counted for all sets at once: how many combinations are of sets that include it, less
    those that have more in common.
    """
    every, bits = (0, *masks(nodes_of(whole))), [1 << node for node in nodes_of(whole)]
    combinations = dict.fromkeys(every, 1)
    for hints in lists:
        including = Counter(whole if hint.mask is None else hint.mask & whole for hint in hints)
        for bit in bits:
            for mask in (one for one in every if not one & bit):
                including[mask] += including[mask | bit]
        combinations = {mask: count * including[mask] for mask, count in combinations.items()}
    for bit in bits:
        for mask in (one for one in every if not one & bit):
            combinations[mask] -= combinations[mask | bit]
    return [mask for mask, count in combinations.items() if mask and count]


def _widest_need(lists: Iterable[tuple[Hint, ...]]) -> int:
    """Return how many nodes the resource needs that needs the most."""
    counts = ([hint.mask.bit_count() for hint in hints if hint.mask is not None] for hints in lists)
    return max((min(found) for found in counts if found), default=0)


def _distance(mask: int, wanted: int) -> tuple[int, int]:
    """Return the key that puts as many nodes as wanted first, then fewer, then more."""
    count = mask.bit_count()
    return (1, count) if count > wanted else (0, wanted - count)
