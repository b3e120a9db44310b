"""NVIDIA's best-effort policy, imitated for comparison with its device plugin's preference.

The policy divides *all* free GPUs into sets of the requested size, in the way with the most points,
and hands out the best set of that division (go-gpuallocator v0.6.0). In a tie the first wins, so
the answer depends on the order of the list; tests/bench/traces/kubelet_order.py has the
kubelet's. tests/bench compares its answers and crashes with the Go library's.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb, factorial
from types import MappingProxyType

from msgspec import Struct

from nodetopo.allocation.masks import bits, positions
from nodetopo.allocation.requests import unknown_gpu
from nodetopo.errors import InputError
from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import has_switch
from nodetopo.topology.links import direct_links, nvlinks_between
from nodetopo.topology.matrix import pci_closeness

LARGEST = 12
"""Free GPUs up to which the imitation answers. The library itself needs 2 to 40 s of CPU for 2
to 5 of 16 (docs/internals/figures.md), and from 13 on overwrites divisions that it still
compares."""

REMEMBERED = 5
"""Free GPUs up to which answers are kept: 8 GPUs have 8,800 lists of so many, 10 have 36,100. On
a busy node most lists are no longer."""

LEVEL_POINTS: Mapping[Closeness, int] = MappingProxyType(
    {
        Closeness.INTERNAL: 60,
        Closeness.PIX: 50,
        Closeness.PXB: 40,
        Closeness.PHB: 30,
        Closeness.NODE: 20,
        Closeness.SYS: 10,
    },
)
"""Points for the PCIe distance of a pair (go-gpuallocator v0.6.0, calculateGPUPairScore)."""

NVLINK_POINTS = 100
"""Points for each NVLink of a pair, of any generation (same)."""

MOST_NVLINKS = 18
"""NVLinks of one pair beyond which its reader stops counting (same, internal/links)."""

LOPSIDED = -(1 << 40)
"""A pair's addition to the score of a set if one GPU counts NVLinks and the other none; the policy
panics there. It keeps every sum below zero, where no real score is.
"""

PairScores = tuple[tuple[int, ...], ...]
"""By position of the GPU that comes first in a list, then of the second."""


class PeerPanics(InputError):  # noqa: N818 - a state of the peer, not an error of ours
    """NVIDIA's policy would panic, and its device plugin would exit."""


class BestEffort:
    """Answer as NVIDIA's policy would on one machine. Safe to share between threads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ids = tuple(gpu.id for gpu in snapshot.gpus)
        self._position = {name: position for position, name in enumerate(self._ids)}
        self._pairs = pair_scores(snapshot)
        self._plans: dict[tuple[int, int, int], BestEffortPlan] = {}
        self._answers: dict[tuple[tuple[int, ...], int], tuple[int | None, ...]] = {}

    def allocate(
        self, available: Sequence[str], required: Sequence[str], size: int
    ) -> tuple[str | None, ...]:
        """Return the answer of the policy to ids in the order given.

        ``None`` is a device that does not exist: the policy pads its list and can hand out the
        padding, which crashes NVIDIA's plugin. The answer is empty where the policy has none.

        Raises:
            InputError: an id is unknown, or the policy would need seconds.
            PeerPanics: the policy would panic.
        """
        for name in (*available, *required):
            if name not in self._position:
                raise unknown_gpu(self._snapshot, name)
        chosen = self.choose(
            [self._position[name] for name in available],
            [self._position[name] for name in required],
            size,
        )
        return tuple(None if position is None else self._ids[position] for position in chosen)

    def choose(
        self, available: Sequence[int], required: Sequence[int], size: int
    ) -> tuple[int | None, ...]:
        """Return the same for positions in the snapshot; no position comes twice in a list.

        Raises:
            InputError: the policy would need seconds.
            PeerPanics: the policy would panic.
        """
        count = len(available)
        if not 0 < size <= count or len(required) > size or not {*required} <= {*available}:
            return ()
        if size == 1:
            return (required[0] if required else available[0],)
        if size == count:
            if any(self._pairs[a][b] < 0 for a, b in combinations(available, 2)):
                raise _panics()
            return tuple(available)
        if count > LARGEST:
            raise InputError(
                f"NVIDIA's policy is not imitated for {size} of {count} free GPUs: it would "
                f"compare {divisions(count, size):,} divisions, seconds of CPU for one answer",
                f"offer at most {LARGEST} GPUs",
            )
        if required or count > REMEMBERED:
            return self._divided(available, required, size)
        key = tuple(available), size
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._divided(available, (), size)
        return answer

    def _divided(
        self, available: Sequence[int], required: Sequence[int], size: int
    ) -> tuple[int | None, ...]:
        """Return the best set of the best division; ``None`` is padding."""
        kept = sum(1 << available.index(position) for position in required)
        key = len(available), size, kept
        ways = self._plans.get(key)
        if ways is None:
            ways = self._plans[key] = plan(*key)
        scores = set_scores(self._pairs, available)
        sets = (mask for mask in best_division(scores, ways) if mask & kept == kept)
        # max() keeps the first of equals, as the policy does.
        best = max(sets, key=scores.__getitem__)
        chosen = tuple(available[place] for place in positions(best))
        return (*chosen, *[None] * (size - len(chosen)))


# From here on sets are about places in a list, not about GPUs: bit 0 is the first of the list.

Option = tuple[int, int]
"""A set that contains the first remaining place, and what remains then; bit masks. The second
still holds the padding, the first does not."""


class BestEffortPlan(Struct, frozen=True):
    """All ways to divide a list.

    A list that does not divide evenly is padded at its end, and the padding is kept together
    in one set (go-gpuallocator v0.6.0, iterateGPUPartitions).
    """

    whole: int  # all places, padding included
    # For each possible remainder its options, in the order in which the policy tries them;
    # remainders with the fewest places first.
    steps: tuple[tuple[int, tuple[Option, ...]], ...]


def plan(count: int, size: int, required: int) -> BestEffortPlan:
    """Return the plan for *count* places and sets of *size*, which is at least 2.

    The places *required*, a bit mask, stay together in one set without padding.
    """
    padding = ((1 << -count % size) - 1) << count
    whole = (1 << count) - 1 | padding
    options: dict[int, tuple[Option, ...]] = {}

    def is_allowed(chosen: int) -> bool:
        padded, met = chosen & padding, chosen & required
        return padded in (0, padding) and (not met or (met == required and not padded))

    def explore(rest: int) -> bool:
        """Record the options of *rest*; return whether it can be divided at all."""
        if rest not in options:
            first = rest & -rest
            candidates = (
                first + sum(others) for others in combinations(bits(rest ^ first), size - 1)
            )
            options[rest] = tuple(
                (chosen & ~padding, rest ^ chosen)
                for chosen in candidates
                if is_allowed(chosen) and (rest == chosen or explore(rest ^ chosen))
            )
        return bool(options[rest])

    explore(whole)
    ordered = sorted(options.items(), key=lambda step: step[0].bit_count())
    return BestEffortPlan(whole=whole, steps=tuple(step for step in ordered if step[1]))


def best_division(scores: Sequence[int], ways: BestEffortPlan) -> list[int]:
    """Return the sets of the division with the most points; of equals the first tried.

    The best way to divide a remainder does not depend on how the remainder came about, so each
    is solved once; taking the first of equals at every step gives the first of all.
    """
    best = {0: 0}
    taken: dict[int, Option] = {}
    for rest, options in ways.steps:
        most = -1
        for option in options:
            points = scores[option[0]]
            if points < 0:
                raise _panics()
            points += best[option[1]]
            if points > most:
                most = points
                taken[rest] = option
        best[rest] = most
    sets, rest = [], ways.whole
    while rest:
        chosen, rest = taken[rest]
        sets.append(chosen)
    return sets


def divisions(count: int, size: int) -> int:
    """Return how many ways there are to divide *count* places, all of which the policy scores."""
    odd = count % size
    even = count - odd
    ways: int = factorial(even) // (factorial(size) ** (even // size) * factorial(even // size))
    return comb(count, odd) * ways


def pair_scores(snapshot: Snapshot) -> PairScores:
    """Return the points of every ordered pair, or ``LOPSIDED``.

    The reader matches the far end of a link with the GPUs' PCI addresses, so it sees no NVLinks
    through NVSwitches (internal/links, GetNVLink; a comment there says so). A pair counts the
    links that the first of the two sees. An unknown PCIe distance counts as SYS.
    """
    links: Mapping[tuple[int, int], int] = {}
    if snapshot.nvlinks is not None:
        links = direct_links(snapshot)
    elif not has_switch(snapshot):
        counts = {pair: count or 0 for pair, count in nvlinks_between(snapshot).items()}
        links = counts | {(b, a): count for (a, b), count in counts.items()}
    distances = pci_closeness(snapshot, of_gpus=True)

    def points(first: Gpu, second: Gpu) -> int:
        there = links.get((first.index, second.index), 0)
        back = links.get((second.index, first.index), 0)
        if bool(there) != bool(back):
            return LOPSIDED
        distance = distances.get(frozenset((first.name, second.name)), Closeness.SYS)
        return LEVEL_POINTS[distance] + NVLINK_POINTS * min(there, MOST_NVLINKS)

    gpus = snapshot.gpus
    return tuple(tuple(points(first, second) for second in gpus) for first in gpus)


def set_scores(pairs: PairScores, order: Sequence[int]) -> list[int]:
    """Return the points of every subset of *order*, a list of positions.

    Subsets are bit masks of places in *order*. A set scores the sum of its pairs, the first in
    the order first. Twice as many additions as subsets.
    """
    totals = [0]
    for place, second in enumerate(order):
        gains = [0]
        for first in order[:place]:
            points = pairs[first][second]
            gains += [gain + points for gain in gains]
        totals += [total + gain for total, gain in zip(totals, gains, strict=True)]
    return totals


def _panics() -> PeerPanics:
    return PeerPanics(
        "NVIDIA's policy panics here: of two GPUs one counts NVLinks to the other, and the "
        "other counts none back",
        "offer only one of the two",
    )
