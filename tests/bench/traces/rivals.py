"""The placement rules of other allocators, for comparison with ours.

Each rule is a :class:`Chooser` for one machine. GPUs are positions in the snapshot.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Protocol

from nodetopo.allocation.best_effort import LARGEST, BestEffort, PeerPanics, pair_scores, set_scores
from nodetopo.allocation.masks import positions
from nodetopo.allocation.requests import usable
from nodetopo.errors import InputError
from nodetopo.model.snapshot import Snapshot
from tests.bench.traces.jobs import Uniform
from tests.bench.traces.kubelet_order import KubeletOrder

HAMI_LARGEST = 16
"""GPUs up to which the rule is imitated; HAMi looks at every set, 12,870 for 8 of 16."""


class Chooser(Protocol):
    """A rule on one machine."""

    @property
    def crashes(self) -> int:
        """How many requests would have crashed the original program."""
        ...

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return *size* of the free positions *offered*, at least as many, each named once."""
        ...


Factory = Callable[[Snapshot, Uniform], Chooser]


class Hami:
    """HAMi's scheduler in its topology-aware mode: the set whose pairs have the most points.

    For one GPU, the card with the fewest.

    The points follow NVIDIA's policy, except that a pair in which only one GPU counts NVLinks has
    none. In a tie the first by number wins (HAMi v2, pkg/device/nvidia/device.go,
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
            return (min(free, key=lambda gpu: sum(self._pairs[gpu][b] for b in free if b != gpu)),)
        taken = ~sum(1 << position for position in free)
        if size not in self._ranked:
            bits = [1 << position for position in range(self._count)]
            masks = (sum(chosen) for chosen in combinations(bits, size))
            # The sort is stable: of equals the first combination stays in front.
            ranked = sorted(masks, key=self._points.__getitem__, reverse=True)
            self._ranked[size] = tuple(ranked)
        return positions(next(mask for mask in self._ranked[size] if not mask & taken))


class FirstFit:
    """Take the free GPUs with the lowest numbers."""

    crashes = 0

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return the first *size* by number."""
        return tuple(sorted(offered)[:size])


class Kubelet:
    """Take GPUs as the kubelet does where a plugin has no preference.

    These are the first that a range over its Go map yields (kubelet v1.36.3, devicesToAllocate):
    on a node of up to eight GPUs neighbours by number.
    """

    crashes = 0

    def __init__(self, snapshot: Snapshot, source: Uniform) -> None:
        self._order = kubelet_order(snapshot, source)

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return the first *size* of the list, regardless of the order of *offered*."""
        return self._order(offered)[:size]


def kubelet_order(snapshot: Snapshot, source: Uniform) -> KubeletOrder:
    """Return the kubelet's lists of the GPUs of *snapshot* that are not lost, as positions."""
    lives = set(usable(snapshot))
    healthy = [position for position, gpu in enumerate(snapshot.gpus) if gpu.id in lives]
    return KubeletOrder(healthy, source)


class Random:
    """Take GPUs at random; every set is equally likely."""

    crashes = 0

    def __init__(self, source: Uniform) -> None:
        self._source = source

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return *size* GPUs."""
        # Sorted first: the same seed gives the same answer for every order of the list.
        left = sorted(offered)
        return tuple(left.pop(int(self._source.random() * len(left))) for _ in range(size))


class Nvidia:
    """NVIDIA's policy; if it crashes, the kubelet's own choice.

    Attributes:
        crashes: answers with a device that does not exist, and panics. Both end NVIDIA's device
            plugin.
    """

    def __init__(self, snapshot: Snapshot, source: Uniform, *, is_sorted: bool) -> None:
        if len(snapshot.gpus) > LARGEST:
            raise InputError(
                f"NVIDIA's policy is not imitated for {len(snapshot.gpus)} GPUs: it needs "
                "seconds of CPU for one answer",
                f"compare with it on a machine of at most {LARGEST}",
            )
        self._policy = BestEffort(snapshot)
        self._kubelet = Kubelet(snapshot, source)
        self._is_sorted = is_sorted
        self.crashes = 0

    def __call__(self, offered: Sequence[int], size: int) -> tuple[int, ...]:
        """Return its answer to *offered* in the kubelet's order, or by number."""
        order = sorted(offered) if self._is_sorted else self._kubelet(offered, len(offered))
        try:
            answer = self._policy.choose(order, (), size)
        except PeerPanics:
            answer = (None,)
        chosen = tuple(position for position in answer if position is not None)
        if len(chosen) == len(answer):
            return chosen
        self.crashes += 1
        return self._kubelet(offered, size)


RIVALS: Mapping[str, Factory] = MappingProxyType(
    {
        "nvidia": lambda snapshot, source: Nvidia(snapshot, source, is_sorted=False),
        "nvidia-sorted": lambda snapshot, source: Nvidia(snapshot, source, is_sorted=True),
        "hami": lambda snapshot, _: Hami(snapshot),
        "first-fit": lambda _, __: FirstFit(),
        "kubelet": Kubelet,
        "random": lambda _, source: Random(source),
    },
)
"""The rules by name. ``nvidia`` gets its list as the kubelet sends it
(:mod:`tests.bench.traces.kubelet_order`), and ``nvidia-sorted`` by number. A factory raises
``InputError`` where the rule cannot run on the machine."""
