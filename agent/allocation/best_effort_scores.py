"""The points that NVIDIA's best-effort policy gives to pairs and sets of GPUs.

For comparison only; our own objective is in :mod:`agent.allocation.score`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent.model.nvlink import Closeness
from agent.model.snapshot import Snapshot
from agent.topology.domains import has_switch
from agent.topology.links import direct_links, nvlinks_between
from agent.topology.matrix import pci_closeness

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
"""Points for each NVLink of a pair, of whatever generation (same)."""

MOST_NVLINKS = 18
"""NVLinks of one pair beyond which its reader stops counting (same, internal/links)."""

LOPSIDED = -(1 << 40)
"""What a pair adds to the score of a set if one GPU counts NVLinks and the other none; the
policy panics there. It keeps every sum below zero, where no real score is."""

PairScores = tuple[tuple[int, ...], ...]
"""By position of the GPU that comes first in a list, then of the second."""


def pair_scores(snapshot: Snapshot) -> PairScores:
    """Return the points of every ordered pair, or ``LOPSIDED``.

    The reader matches the far end of a link with the GPUs' PCI addresses, so that it finds no
    NVLinks through NVSwitches (internal/links, GetNVLink; a remark there says so). A pair counts
    what the first of the two sees. An unknown PCIe distance counts as SYS.
    """
    known = pci_closeness(snapshot)
    links = _seen_nvlinks(snapshot)
    return tuple(
        tuple(
            _points(
                known.get(frozenset((first.name, second.name))),
                links.get((first.index, second.index), 0),
                links.get((second.index, first.index), 0),
            )
            for second in snapshot.gpus
        )
        for first in snapshot.gpus
    )


def _seen_nvlinks(snapshot: Snapshot) -> Mapping[tuple[int, int], int]:
    """Return the NVLinks to the second GPU of a pair as the first counts them."""
    if snapshot.nvlinks is not None:
        return direct_links(snapshot)
    if has_switch(snapshot):
        return {}
    counts = {pair: count or 0 for pair, count in nvlinks_between(snapshot).items()}
    return counts | {(b, a): count for (a, b), count in counts.items()}


def _points(distance: Closeness | None, there: int, back: int) -> int:
    if bool(there) != bool(back):
        return LOPSIDED
    level = LEVEL_POINTS[Closeness.SYS if distance is None else distance]
    return level + NVLINK_POINTS * min(there, MOST_NVLINKS)


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
