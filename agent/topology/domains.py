"""NVLink domains: which GPUs reach each other without PCIe, inside the node and beyond."""

from dataclasses import dataclass
from enum import StrEnum

from agent.model.gpu import FabricState
from agent.model.snapshot import Snapshot
from agent.topology.links import is_switched, nvlinks_between, usable_nvlinks_between

MAX_LINKS_PER_GPU = 18
"""NVLinks of a Hopper or Blackwell GPU, the most of any GPU (nvml.h NVML_NVLINK_MAX_LINKS)."""


class Interconnect(StrEnum):
    """How the node's GPUs are joined, by the best kind of link that all GPUs of a group have."""

    MNNVL = "mnnvl"
    NVSWITCH = "nvswitch"
    MESH = "nvlink-mesh"
    PAIRS = "nvlink-pairs"
    PCIE = "pcie"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clique:
    """A partition of a multi-node NVLink domain; ``str()`` is the value of gpu.clique."""

    cluster_uuid: str
    clique_id: int

    def __str__(self) -> str:
        return f"{self.cluster_uuid}.{self.clique_id}"


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
    """Return how the GPUs are joined; ``None`` when their links are unknown."""
    if len(snapshot.gpus) == 0:
        return Interconnect.NONE
    if clique(snapshot) is not None:
        return Interconnect.MNNVL
    groups = islands(snapshot)
    if groups is None:
        return None
    largest = len(groups[0])
    if largest == 1:  # NVSwitches that no two GPUs can use join nothing
        return Interconnect.PCIE if len(snapshot.gpus) > 1 else Interconnect.NONE
    if has_switch(snapshot):
        return Interconnect.NVSWITCH
    return Interconnect.MESH if largest > 2 else Interconnect.PAIRS


def has_switch(snapshot: Snapshot) -> bool:
    """Return whether NVSwitches join the GPUs.

    Known from the links' far ends; in a snapshot from a text it is inferred where a GPU would
    need more links than any GPU has to give each of its peers that many of its own.
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


def clique(snapshot: Snapshot) -> Clique | None:
    """Return the clique that all registered GPUs of the node share.

    ``None`` without a multi-node fabric, while any GPU is still registering, and when GPUs
    name different cliques, for which GFD publishes no label either.
    """
    cliques = set()
    for fabric in (gpu.fabric for gpu in snapshot.gpus):
        if fabric is None or fabric.state is FabricState.NOT_SUPPORTED:
            continue
        is_registered = fabric.state is FabricState.COMPLETED and fabric.status == 0
        if not is_registered or fabric.cluster_uuid is None or fabric.clique_id is None:
            return None
        cliques.add(Clique(cluster_uuid=fabric.cluster_uuid, clique_id=fabric.clique_id))
    return cliques.pop() if len(cliques) == 1 else None
