"""NVLinks between pairs of GPUs, counted from what both ends say."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from agent.model.gpu import Gpu
from agent.model.nvlink import NvLink, PeerKind
from agent.model.snapshot import Snapshot

Pair = tuple[int, int]
"""Two GPU indices, the lower first."""


def nvlinks_between(snapshot: Snapshot) -> Mapping[Pair, int | None]:
    """Return the number of active NVLinks of every pair of GPUs; ``None`` is unknown.

    Direct links count as the weaker end reports them: a link that only one end calls up
    carries nothing. Through NVSwitches every GPU reaches every other with all its switch
    links, so the pair has the lesser of the two counts, unless the driver denies the pair
    peer access. A text that counts links itself is believed.
    """
    reported = {frozenset((pair.a, pair.b)): pair for pair in snapshot.pairs}
    direct, switched = _direct(snapshot), _switched(snapshot)
    counts: dict[Pair, int | None] = {}
    for a, b in combinations((gpu.index for gpu in snapshot.gpus), 2):
        pair = reported.get(frozenset((f"GPU{a}", f"GPU{b}")))
        if pair is not None and pair.nvlinks is not None:
            counts[a, b] = pair.nvlinks
        elif snapshot.nvlinks is None:
            counts[a, b] = None
        else:
            via_switch = 0 if pair and pair.p2p_nvlink is False else min(switched[a], switched[b])
            counts[a, b] = via_switch + min(direct[a, b], direct[b, a])
    return counts


def active_links(gpu: Gpu, snapshot: Snapshot) -> tuple[NvLink, ...]:
    """Return the NVLinks of *gpu* that carry traffic, by ascending link number."""
    return tuple(
        link for link in snapshot.nvlinks or () if link.gpu == gpu.index and link.is_active
    )


def _direct(snapshot: Snapshot) -> Counter[Pair]:
    by_pci = {gpu.pci: gpu.index for gpu in snapshot.gpus if gpu.pci is not None}
    return Counter(
        (link.gpu, by_pci[link.peer])
        for link in snapshot.nvlinks or ()
        if link.is_active and link.peer in by_pci
    )


def _switched(snapshot: Snapshot) -> Counter[int]:
    return Counter(
        link.gpu
        for link in snapshot.nvlinks or ()
        if link.is_active and link.peer_kind is PeerKind.SWITCH
    )
