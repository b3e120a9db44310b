"""The rule of HAMi's scheduler in its topology-aware mode."""

from collections.abc import Sequence
from itertools import combinations

from agent.allocation.best_effort_scores import pair_scores, set_scores
from agent.allocation.masks import positions
from agent.errors import InputError
from agent.model.snapshot import Snapshot

LARGEST = 16
"""GPUs up to which the rule is imitated; HAMi looks at every set, 12,870 for 8 of 16."""


class Hami:
    """Take the set whose pairs have the most points; alone, the card with the fewest.

    The points are those of NVIDIA's policy, but a pair of which only one GPU counts NVLinks
    has none. Of equals the first by number wins (HAMi v2, pkg/device/nvidia/device.go,
    computeBestCombination and computeWorstSingleCard).
    """

    crashes = 0

    def __init__(self, snapshot: Snapshot) -> None:
        self._count = len(snapshot.gpus)
        if self._count > LARGEST:
            raise InputError(
                f"HAMi's rule is not imitated for {self._count} GPUs: it looks at every set",
                f"compare with it on a machine of at most {LARGEST}",
            )
        self._pairs = tuple(
            tuple(max(points, 0) for points in row) for row in pair_scores(snapshot)
        )
        self._points = set_scores(self._pairs, range(self._count))
        self._ranked: dict[int, tuple[int, ...]] = {}

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return its answer; the order of *offered* does not matter."""
        free = sorted(offered)
        if size == 1:
            return (min(free, key=lambda one: sum(self._pairs[one][b] for b in free if b != one)),)
        taken = ~sum(1 << position for position in free)
        return positions(next(mask for mask in self._best_first(size) if not mask & taken))

    def _best_first(self, size: int) -> tuple[int, ...]:
        found = self._ranked.get(size)
        if found is None:
            bits = [1 << position for position in range(self._count)]
            masks = (sum(chosen) for chosen in combinations(bits, size))
            # The sort is stable: of equals the first combination stays in front.
            ranked = sorted(masks, key=self._points.__getitem__, reverse=True)
            found = self._ranked[size] = tuple(ranked)
        return found
