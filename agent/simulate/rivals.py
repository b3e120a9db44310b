"""Rules that others place GPUs by, for comparison with ours.

Each is a :class:`Chooser` for one machine. GPUs are positions in the snapshot.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Protocol

from agent.allocation.best_effort import LARGEST, BestEffort, PeerPanics, pair_scores, set_scores
from agent.allocation.masks import positions
from agent.errors import InputError
from agent.model.snapshot import Snapshot
from agent.simulate.jobs import Uniform

# The rule of HAMi's scheduler in its topology-aware mode.

HAMI_LARGEST = 16
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
        if self._count > HAMI_LARGEST:
            raise InputError(
                f"HAMi's rule is not imitated for {self._count} GPUs: it looks at every set",
                f"compare with it on a machine of at most {HAMI_LARGEST}",
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


class Chooser(Protocol):
    """A rule at work on one machine."""

    @property
    def crashes(self) -> int:
        """How many requests would have killed the program whose rule this is."""
        ...

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return *size* of the free positions *offered*, at least as many, each named once."""
        ...


Factory = Callable[[Snapshot, Uniform], Chooser]


class FirstFit:
    """Take the free GPUs of the lowest numbers."""

    crashes = 0

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return the first *size* by number."""
        return tuple(sorted(offered)[:size])


class Random:
    """Take any, as the kubelet does where a plugin has no preference.

    It goes through a map of Go, whose order is random (kubelet v1.34.0, devicesToAllocate).
    """

    crashes = 0

    def __init__(self, source: Uniform) -> None:
        self._source = source

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return *size*, every set as likely as any other."""
        # Sorted first: the same seed gives the same answer for every order of the list.
        left = sorted(offered)
        return tuple(left.pop(int(self._source.random() * len(left))) for _ in range(size))


class Nvidia:
    """Ask NVIDIA's policy. Where it crashes the kubelet's choice stands in: any GPUs.

    Attributes:
        crashes: answers with a device that does not exist, and panics. Either ends NVIDIA's
            device plugin.
    """

    def __init__(self, snapshot: Snapshot, source: Uniform, *, is_shuffled: bool) -> None:
        if len(snapshot.gpus) > LARGEST:
            raise InputError(
                f"NVIDIA's policy is not imitated for {len(snapshot.gpus)} GPUs: it needs "
                "seconds of CPU for one answer",
                f"compare with it on a machine of at most {LARGEST}",
            )
        self._policy = BestEffort(snapshot)
        self._any = Random(source)
        self._is_shuffled = is_shuffled
        self.crashes = 0

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return its answer to *offered* in the kubelet's order, or by number."""
        order = self._any(offered, len(offered)) if self._is_shuffled else sorted(offered)
        try:
            answer = self._policy.choose(order, (), size)
        except PeerPanics:
            answer = (None,)
        chosen = tuple(position for position in answer if position is not None)
        if len(chosen) == len(answer):
            return chosen
        self.crashes += 1
        return self._any(offered, size)


RIVALS: Mapping[str, Factory] = MappingProxyType(
    {
        "nvidia": lambda snapshot, source: Nvidia(snapshot, source, is_shuffled=True),
        "nvidia-sorted": lambda snapshot, source: Nvidia(snapshot, source, is_shuffled=False),
        "hami": lambda snapshot, _: Hami(snapshot),
        "first-fit": lambda _, __: FirstFit(),
        "random": lambda _, source: Random(source),
    },
)
"""The rules by name. ``nvidia`` is offered its list as the kubelet sends it, in random order;
``nvidia-sorted`` by number. Building one may raise ``InputError`` where it cannot be asked."""
