"""NVLink domains: which GPUs reach each other without PCIe, inside the node and beyond."""

import re
from enum import StrEnum

from msgspec import Struct

from nodetopo.model.gpu import FabricState, Gpu
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.links import (
    gpus_of_unknown_links,
    is_switched,
    nvlinks_between,
    usable_nvlinks_between,
)

MAX_LINKS_PER_GPU = 18
"""NVLinks of a Hopper or Blackwell GPU, the most of any GPU (nvml.h NVML_NVLINK_MAX_LINKS)."""


_SUPERCHIP = re.compile(r"\bG[HB][0-9]{3}\b")
"""GH200, GB200 and GB300 in a product name: a Grace CPU with its GPUs, the modules of NVIDIA's
multi-node NVLink racks (GH200 NVL32, GB200 and GB300 NVL72; NVIDIA MNNVL User Guide, overview)."""

_BOARD = re.compile(r"\b[HB][0-9]{2,3}\b")
"""H20, H100, H200, B200, B300 and similar product names: cards, and boards with built-in
NVSwitches. NVIDIA's guides to multi-node NVLink describe none of them.
"""


_RACK = re.compile(r"\bG[HB][0-9]{3}[ _-]NVL([0-9]{2,3})\b")
"""GB200 NVL72 and similar: a superchip, then its domain's GPUs. A GB200 NVL4 is one board.
Later racks are left out: the number in Vera Rubin NVL144 counts dies."""


class Interconnect(StrEnum):
    """How the node's GPUs are joined, by the best kind of link that all GPUs of a group have."""

    MNNVL = "mnnvl"
    NVSWITCH = "nvswitch"
    MESH = "nvlink-mesh"
    PAIRS = "nvlink-pairs"
    PCIE = "pcie"
    NONE = "none"


class Clique(Struct, frozen=True, kw_only=True):
    """A partition of a multi-node NVLink domain; ``str()`` is the value of gpu.clique."""

    cluster_uuid: str
    clique_id: int

    def __str__(self) -> str:
        return f"{self.cluster_uuid}.{self.clique_id}"


def is_settled(snapshot: Snapshot) -> bool:
    """Return whether every GPU has finished its registration with the fabric.

    Until then a standalone node looks like a part of a larger domain, so labels about either wait,
    and published ones stay. The same applies to a lost GPU whose registration was never read,
    unless the others have no fabric.
    """
    return not unsettled_gpus(snapshot)


def unsettled_gpus(snapshot: Snapshot) -> frozenset[int]:
    """Return the GPUs that have not finished their registration, as :func:`is_settled` judges."""
    fabrics = {gpu.index: gpu.fabric for gpu in snapshot.gpus if gpu.fabric is not None}
    registered = {
        index: fabric
        for index, fabric in fabrics.items()
        if fabric.state is not FabricState.NOT_SUPPORTED
    }
    lost = {gpu.index for gpu in snapshot.gpus if gpu.is_lost} - fabrics.keys()
    if not registered and len(lost) < len(snapshot.gpus):
        lost = set()
    return frozenset(lost).union(
        index
        for index, fabric in registered.items()
        if fabric.state is not FabricState.COMPLETED or fabric.status
    )


def islands(snapshot: Snapshot) -> tuple[tuple[int, ...], ...] | None:
    """Return the groups of GPU indices joined by NVLink, largest first, then by first index.

    A GPU without NVLink is an island of one; so is one that cannot use its links: in MIG
    mode, lost, or denied peer access by the driver. ``None`` when the links of any pair are
    unknown.
    """
    links = usable_nvlinks_between(snapshot)
    if None in links.values():
        return None
    group = {gpu.index: {gpu.index} for gpu in snapshot.gpus}
    for (a, b), count in links.items():
        if count and group[a] is not group[b]:
            group[a] |= group[b]
            group.update(dict.fromkeys(group[a], group[a]))
    unique = {tuple(sorted(members)) for members in group.values()}
    return tuple(sorted(unique, key=lambda members: (-len(members), members)))


def interconnect(snapshot: Snapshot) -> Interconnect | None:
    """Return how the GPUs are joined; ``None`` when their links are unknown.

    Also if a lost GPU's unknown links could change the answer.
    """
    if len(snapshot.gpus) == 0:
        return Interconnect.NONE
    if clique(snapshot) is not None:
        return Interconnect.MNNVL
    groups = islands(snapshot)
    if groups is None:
        return None
    largest = len(groups[0])
    if len(snapshot.gpus) == 1:
        return Interconnect.NONE
    if largest > 1 and has_switch(snapshot):
        return Interconnect.NVSWITCH
    if largest > 2:
        return Interconnect.MESH
    if gpus_of_unknown_links(snapshot):
        return None
    # NVSwitches that no two GPUs can use join nothing.
    return Interconnect.PAIRS if largest > 1 else Interconnect.PCIE


def rack_size(snapshot: Snapshot) -> int | None:
    """Return the GPUs of the multi-node NVLink domain, as its rack is built.

    The machine's DMI name or the GPUs' product states it, such as ``GB300 NVL72``. ``None`` if
    neither does, or if they differ: most trays carry their vendor's own name
    (dsx-ai-factory/infra-controller #4700: ``ARS-121GL-NB3-LCC-R1``), and NVML reports no size.
    """
    names = [snapshot.product_name, *(gpu.product for gpu in snapshot.gpus)]
    sizes = {int(match[1]) for name in names if (match := _RACK.search(name or ""))}
    return sizes.pop() if len(sizes) == 1 else None


def has_switch(snapshot: Snapshot) -> bool:
    """Return whether NVSwitches join the GPUs.

    Known from the links' far ends; in a snapshot from a text it is inferred if separate links to
    each peer would exceed the links of any GPU.
    """
    if any(link.is_active and is_switched(link) for link in snapshot.nvlinks or ()):
        return True
    if snapshot.nvlinks is not None:
        return False
    links = nvlinks_between(snapshot)
    return any(
        sum(count or 0 for pair, count in links.items() if gpu.index in pair) > MAX_LINKS_PER_GPU
        for gpu in snapshot.gpus
    )


def has_multi_node_nvlink(product: str | None, *, has_c2c: bool | None = None) -> bool | None:
    """Return whether the NVLinks of GPUs of *product* can lead to other nodes.

    A superchip has it by its name, a GPU that is not known yet by its chip-to-chip link to the CPU
    (*has_c2c*; ``None`` where that was not read), which every GPU of a multi-node rack has so far.
    ``None`` where neither answers.
    """
    if has_c2c or _SUPERCHIP.search(product or ""):
        return True
    return False if has_c2c is False or _BOARD.search(product or "") else None


def cluster_uuid(gpu: Gpu) -> str | None:
    """Return the multi-node NVLink fabric that *gpu* names; ``None`` where it belongs to none.

    The driver's word alone is no proof. H100 boards were seen to report a completed fabric with a
    cluster UUID, the same on two nodes that NVLink does not join (meta-pytorch/torchcomms #1315),
    and others one of zeros (#1385). So a UUID counts only where :func:`has_multi_node_nvlink` is
    sure: a missing level keeps a job waiting or on the network, a wrong one breaks it.
    """
    named = None if gpu.fabric is None else gpu.fabric.cluster_uuid
    has_c2c = None if gpu.c2c is None else gpu.c2c.is_enabled
    is_zero = not (named or "").strip("0-")
    return None if is_zero or not has_multi_node_nvlink(gpu.product, has_c2c=has_c2c) else named


def clique(snapshot: Snapshot) -> Clique | None:
    """Return the clique that all registered GPUs of the node share.

    ``None`` without a multi-node fabric (:func:`cluster_uuid`), while any GPU is still
    registering, and when GPUs name different cliques, for which GFD publishes no label either.
    """
    cliques = set()
    for gpu in snapshot.gpus:
        fabric, cluster = gpu.fabric, cluster_uuid(gpu)
        if fabric is None or fabric.state is FabricState.NOT_SUPPORTED:
            continue
        is_registered = fabric.state is FabricState.COMPLETED and fabric.status == 0
        if not is_registered or cluster is None or fabric.clique_id is None:
            return None
        cliques.add(Clique(cluster_uuid=cluster, clique_id=fabric.clique_id))
    return cliques.pop() if len(cliques) == 1 else None
