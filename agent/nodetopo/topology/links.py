"""NVLinks between pairs of GPUs, counted from what both ends say."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from nodetopo.model.gpu import FabricState, Gpu
from nodetopo.model.nvlink import NvLink, PeerKind, ReportedPair
from nodetopo.model.snapshot import Snapshot

Pair = tuple[int, int]
"""Two GPU indices, the lower first."""


def nvlinks_between(snapshot: Snapshot) -> Mapping[Pair, int | None]:
    """Return the number of active NVLinks of every pair of GPUs; ``None`` is unknown.

    Direct links count as the weaker end reports them: a link that only one end calls up carries
    nothing. Through NVSwitches every GPU reaches every other with all its switch links, so the pair
    has the lesser of the two counts, unless the driver denies the pair peer access. Links to a CPU
    (POWER9) join no GPUs. The links of a lost GPU are unknown, as are the links of a GPU that
    reports the state of none, or itself as the far end of all (:func:`loops`), or whose links still
    train. The count in a text is taken as is.
    """
    reported = _reported(snapshot)
    direct, switched = direct_links(snapshot), switch_links(snapshot)
    silent = silent_gpus(snapshot)
    counts: dict[Pair, int | None] = {}
    for a, b in combinations((gpu.index for gpu in snapshot.gpus), 2):
        pair = reported.get((a, b))
        if pair is not None and pair.nvlinks is not None:
            counts[a, b] = pair.nvlinks
        elif snapshot.nvlinks is None or silent & {a, b}:
            counts[a, b] = None
        else:
            via_switch = 0 if pair and pair.p2p_nvlink is False else min(switched[a], switched[b])
            counts[a, b] = via_switch + min(direct[a, b], direct[b, a])
    return counts


def usable_nvlinks_between(snapshot: Snapshot) -> Mapping[Pair, int | None]:
    """Return how many NVLinks programs can use between each pair of GPUs; ``None`` is unknown.

    Fewer than :func:`nvlinks_between` in three cases: a GPU in MIG mode uses none (NVIDIA MIG
    User Guide, "no GPU-to-GPU P2P, either PCIe or NVLink"), though nvidia-smi still prints
    them; nor does a pair that the driver denies NVLink peer access; nor does a lost GPU.
    """
    reported = _reported(snapshot)
    out = gpus_out_of_nvlink(snapshot)
    denied = {pair for pair, report in reported.items() if report.p2p_nvlink is False}
    return {
        pair: 0 if out & {*pair} or pair in denied else count
        for pair, count in nvlinks_between(snapshot).items()
    }


def gpus_out_of_nvlink(snapshot: Snapshot) -> frozenset[int]:
    """Return the GPUs that can use no NVLink in any state: those in MIG mode, and lost ones."""
    return frozenset(gpu.index for gpu in snapshot.gpus if gpu.is_lost or gpu.is_divided)


def gpus_of_unknown_links(snapshot: Snapshot) -> frozenset[int]:
    """Return the GPUs that can join others over NVLink, or not: lost ones.

    A lost GPU that was in MIG mode is none of them, for it uses no NVLink.
    """
    return frozenset(gpu.index for gpu in snapshot.gpus if gpu.is_lost and not gpu.is_divided)


def silent_gpus(snapshot: Snapshot) -> frozenset[int]:
    """Return the GPUs that do not tell their NVLinks: see :func:`nvlinks_between`."""
    links, looped = snapshot.nvlinks or (), loops(snapshot)
    told = {link.gpu for link in links if link.is_active is not None and link not in looped}
    lost = {gpu.index for gpu in snapshot.gpus if gpu.is_lost}
    return frozenset({link.gpu for link in links} - told | lost | training_gpus(snapshot))


def training_gpus(snapshot: Snapshot) -> frozenset[int]:
    """Return the GPUs that have NVLinks down while they register with their fabric.

    After a boot such links are still training, and say nothing about how the node is built.
    """
    down = {link.gpu for link in snapshot.nvlinks or () if not link.is_active}
    return frozenset(
        gpu.index
        for gpu in snapshot.gpus
        if gpu.index in down
        and gpu.fabric is not None
        and gpu.fabric.state in (FabricState.NOT_STARTED, FabricState.IN_PROGRESS)
    )


def loops(snapshot: Snapshot) -> frozenset[NvLink]:
    """Return the active NVLinks whose far end, by its address, is their own GPU.

    No GPU is linked to itself: the address is wrong, as in virtual machines of Azure (NC A100 v4),
    and where such a link leads is not known.
    """
    addresses = {gpu.index: gpu.pci for gpu in snapshot.gpus}
    return frozenset(
        link
        for link in snapshot.nvlinks or ()
        if link.is_active and link.peer is not None and link.peer == addresses.get(link.gpu)
    )


def active_links(gpu: Gpu, snapshot: Snapshot) -> tuple[NvLink, ...]:
    """Return the NVLinks of *gpu* that carry traffic, by ascending link number."""
    return tuple(
        link for link in snapshot.nvlinks or () if link.gpu == gpu.index and link.is_active
    )


def direct_links(snapshot: Snapshot) -> Counter[Pair]:
    """Return the active direct links of every ordered pair, as the first GPU counts them."""
    by_pci = {gpu.pci: gpu.index for gpu in snapshot.gpus if gpu.pci is not None}
    return Counter(
        (link.gpu, by_pci[link.peer])
        for link in snapshot.nvlinks or ()
        if link.is_active and link.peer in by_pci
    )


def switch_links(snapshot: Snapshot) -> Counter[int]:
    """Return the active links of each GPU to NVSwitches."""
    return Counter(
        link.gpu for link in snapshot.nvlinks or () if link.is_active and is_switched(link)
    )


def cpu_links(snapshot: Snapshot) -> Counter[int]:
    """Return the active links of each GPU to its CPU, which only POWER8 and POWER9 have."""
    return Counter(
        link.gpu
        for link in snapshot.nvlinks or ()
        if link.is_active and link.peer_kind is PeerKind.CPU
    )


def is_switched(link: NvLink) -> bool:
    """Return whether the far end is an NVSwitch.

    A far end of which the driver hides both kind and address counts as an NVSwitch, as it does
    for NCCL (NVIDIA/nccl src/graph/xml.cc, ncclTopoGetXmlFromGpu).
    """
    return link.peer_kind is PeerKind.SWITCH or (link.peer_kind is None and link.peer is None)


def _reported(snapshot: Snapshot) -> dict[Pair, ReportedPair]:
    index = {gpu.name: gpu.index for gpu in snapshot.gpus}
    reported = {}
    for pair in snapshot.pairs:
        if pair.a in index and pair.b in index:
            low, high = sorted((index[pair.a], index[pair.b]))
            reported[low, high] = pair
    return reported
