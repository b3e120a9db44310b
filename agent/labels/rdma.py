"""The labels of the network cards that GPUs reach other nodes through.

Of all RDMA devices these are the nearest of any GPU, by nvidia-smi's levels; of several equally
near, the fastest: NCCL takes those too, and the slower ones serve storage or management. Of two
link layers the one that more GPUs have nearest counts, then InfiniBand.
"""

import re
from collections import Counter
from collections.abc import Mapping

from agent.labels.label import LabelEntry
from agent.model.hca import Hca, LinkLayer
from agent.model.nvlink import Closeness
from agent.model.snapshot import Snapshot
from agent.rdma.selection import ACTIVE, job_hcas, nearest_cards, rates
from agent.topology.affinity import hca_closeness
from agent.topology.matrix import word

RATE_KEY = "gpu.topology/rdma-rate"
GDR_KEY = "gpu.topology/gdr"

_LAYERS: Mapping[LinkLayer, str] = {LinkLayer.INFINIBAND: "ib", LinkLayer.ETHERNET: "roce"}

_DMABUF_SINCE = (5, 12)
"""The first kernel whose RDMA drivers register dma-bufs (ibv_reg_dmabuf_mr, Linux 5.12)."""

_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


def _gpu_hcas(snapshot: Snapshot) -> tuple[int, ...] | None:
    """Return the positions of the cards of the GPUs; ``None`` where HCAs were not read.

    Also where the place of a lost GPU is unknown: the cards near it count.
    """
    cards = nearest_cards(snapshot)
    if cards is None:
        return None
    hcas = snapshot.hcas or ()
    nearest = cards or (frozenset(job_hcas(snapshot)),)
    votes = Counter(layer for group in nearest for layer in {_layer(hcas[at]) for at in group})
    if not votes:
        return ()
    chosen = max(votes, key=lambda layer: (votes[layer], layer is LinkLayer.INFINIBAND))
    return tuple(at for at in sorted(set().union(*nearest)) if _layer(hcas[at]) is chosen)


def _layer(hca: Hca) -> LinkLayer | None:
    layers = [port.layer for port in hca.ports if port.state == ACTIVE] or [
        port.layer for port in hca.ports
    ]
    return next((layer for layer in _LAYERS if layer in layers), None)


def _rdma(snapshot: Snapshot) -> str | None:
    positions = _gpu_hcas(snapshot)
    if positions is None:
        return None
    if not positions:
        return "none"
    layer = _layer((snapshot.hcas or ())[positions[0]])
    return None if layer is None else _LAYERS[layer]


def _count(snapshot: Snapshot) -> int | None:
    positions = _gpu_hcas(snapshot)
    return None if positions is None else len(positions)


def _rate(snapshot: Snapshot) -> int | None:
    """Return the rate that most of the cards have, of equally many the lower."""
    hcas, positions = snapshot.hcas or (), _gpu_hcas(snapshot) or ()
    votes = Counter(rate for at in positions for rate in rates(hcas[at]))
    return min(votes, key=lambda rate: (-votes[rate], rate), default=None)


def _distance(snapshot: Snapshot) -> str | None:
    distances, cards = hca_closeness(snapshot), _gpu_hcas(snapshot) or ()
    worst: Closeness | None = None
    for gpu in snapshot.gpus:
        known = [distances[gpu.index, at] for at in cards if (gpu.index, at) in distances]
        if not known:
            return None
        worst = min(known) if worst is None else max(worst, min(known))
    return None if worst is None else word(worst).lower()


def _gpudirect(snapshot: Snapshot) -> str | None:
    driver = snapshot.nvidia
    if driver is None or not _gpu_hcas(snapshot):
        return None
    release = _RELEASE.match((snapshot.kernel.release if snapshot.kernel else None) or "")
    # A kernel of unknown release counts as new.
    has_dmabuf = release is None or (int(release[1]), int(release[2])) >= _DMABUF_SINCE
    if driver.is_open and has_dmabuf:
        return "dmabuf"
    if driver.peer_memory:
        return "peermem"
    return None if driver.is_open is None or driver.peer_memory is None else "none"


ENTRIES: tuple[LabelEntry, ...] = (
    LabelEntry(
        key="gpu.topology/rdma",
        meaning="What the network cards of the GPUs speak: `ib`, `roce`, or `none` without any.",
        source="sysfs `link_layer` of `/sys/class/infiniband`",
        cardinality="3",
        value=_rdma,
    ),
    LabelEntry(
        key="gpu.topology/rdma-nics",
        meaning="RDMA devices that some GPU has nearest, of equally near ones the fastest; 0 "
        "without any.",
        source="`/sys/class/infiniband`, PCI tree",
        cardinality="a handful",
        value=_count,
    ),
    LabelEntry(
        key=RATE_KEY,
        meaning="Rate of most of these cards, Gb/s; absent while no port is up.",
        source="sysfs `ports/<n>/rate`",
        cardinality="a handful",
        value=_rate,
    ),
    LabelEntry(
        key="gpu.topology/gpu-nic",
        meaning="How near the worst-off GPU is to one of these cards, in `nvidia-smi topo`'s "
        "words: `pix`, `pxb`, `phb`, `node`, `sys`.",
        source="PCI tree in sysfs, nvmlDeviceGetTopologyCommonAncestor",
        cardinality="5",
        value=_distance,
    ),
    LabelEntry(
        key=GDR_KEY,
        meaning="How cards read GPU memory: `dmabuf` (open kernel module, Linux 5.12), else "
        "`peermem` (nvidia_peermem), else `none`; absent without cards.",
        source="`/proc/driver/nvidia/version`, `/sys/module/nvidia_peermem`, kernel release",
        cardinality="3",
        value=_gpudirect,
    ),
)
