"""How the GPUs of the node are joined, by NVLink and beyond."""

import hashlib

from agent.labels.fabric import is_settled
from agent.labels.label import LabelEntry, boolean, number
from agent.model.snapshot import Snapshot
from agent.topology.domains import Interconnect, clique, has_switch, interconnect, islands
from agent.topology.links import active_links, gpus_out_of_nvlink

_DOMAIN_HEX_DIGITS = 16
"""64 bits: two of a million nodes share a value with odds of 3 in 100 million."""

_JOINED_INSIDE = {Interconnect.NVSWITCH, Interconnect.MESH, Interconnect.PAIRS}


def _has_nvswitch(snapshot: Snapshot) -> bool | None:
    if snapshot.nvswitches or has_switch(snapshot):
        return True
    return None if not snapshot.gpus or islands(snapshot) is None else False


def _nvlink_version(snapshot: Snapshot) -> int | None:
    versions = [
        link.version
        for link in snapshot.nvlinks or ()
        if link.is_active and link.version is not None
    ]
    return min(versions, default=None)


def _interconnect(snapshot: Snapshot) -> str | None:
    return interconnect(snapshot) if snapshot.gpus and is_settled(snapshot) else None


def _domain(snapshot: Snapshot) -> str | None:
    if not is_settled(snapshot):
        return None
    fabric = clique(snapshot)
    return _own_domain(snapshot) if fabric is None else fabric.cluster_uuid


def _partition(snapshot: Snapshot) -> str | None:
    if not is_settled(snapshot):
        return None
    fabric = clique(snapshot)
    # The one value with a dot that is safe: it repeats its parent, the domain, before it.
    return _own_domain(snapshot) if fabric is None else str(fabric)


def _own_domain(snapshot: Snapshot) -> str | None:
    """Return the domain that ends at the node's edge; ``None`` where NVLink joins no GPUs."""
    if snapshot.node is None or interconnect(snapshot) not in _JOINED_INSIDE:
        return None
    # Schedulers read a level's value as global, and join levels with dots, which node names
    # hold. So neither a plain number nor the name itself will do.
    digest = hashlib.sha256(snapshot.node.encode()).hexdigest()
    return f"node-{digest[:_DOMAIN_HEX_DIGITS]}"


def _domain_size(snapshot: Snapshot) -> int | None:
    groups = islands(snapshot) if snapshot.gpus else None
    return len(groups[0]) if groups else None


def _island_count(snapshot: Snapshot) -> int | None:
    groups = islands(snapshot) if snapshot.gpus else None
    return sum(len(group) > 1 for group in groups) if groups else None


def _links_per_gpu(snapshot: Snapshot) -> int | None:
    out, links = gpus_out_of_nvlink(snapshot), snapshot.nvlinks
    if links is None or any(link.is_active is None for link in links if link.gpu not in out):
        return None
    counts = [len(active_links(gpu, snapshot)) for gpu in snapshot.gpus if gpu.index not in out]
    return min(counts, default=None)


def _has_mig(snapshot: Snapshot) -> bool | None:
    modes = [gpu.mig.is_enabled for gpu in snapshot.gpus if gpu.mig is not None]
    if any(modes):
        return True
    is_unread = any(issue.subject.endswith("nvmlDeviceGetMigMode") for issue in snapshot.issues)
    is_told = snapshot.gpus and snapshot.driver_version is not None and not is_unread
    return False if is_told else None


ENTRIES: tuple[LabelEntry, ...] = (
    LabelEntry(
        key="nvidia.com/nvswitch.present",
        meaning="Whether NVSwitches join the GPUs; absent where the links are unknown.",
        source="PCI functions in sysfs, nvmlDeviceGetNvLinkRemoteDeviceType",
        cardinality="2",
        value=lambda snapshot: boolean(_has_nvswitch(snapshot)),
    ),
    LabelEntry(
        key="nvidia.com/nvlink.version",
        meaning="NVLink generation, the lowest of all active links; absent without any.",
        source="nvmlDeviceGetNvLinkVersion",
        cardinality="a handful",
        value=lambda snapshot: number(_nvlink_version(snapshot)),
    ),
    LabelEntry(
        key="gpu.topology/interconnect",
        meaning="Best way between GPUs: `mnnvl` (NVLink across nodes), `nvswitch`, "
        "`nvlink-mesh`, `nvlink-pairs`, `pcie`, or `none` for a single GPU.",
        source="NVLinks and fabric state by NVML",
        cardinality="6",
        value=_interconnect,
    ),
    LabelEntry(
        key="gpu.topology/nvlink-domain",
        meaning="What NVLink joins. Across nodes: the cluster UUID. Inside one node: `node-` and "
        "16 hex digits of the SHA-256 of the node's name. Absent without NVLink.",
        source="nvmlDeviceGetGpuFabricInfoV, node name",
        cardinality="one per NVLink domain, at most one per node",
        value=_domain,
    ),
    LabelEntry(
        key="gpu.topology/nvlink-domain-size",
        meaning="GPUs of this node in its largest group joined by NVLink; 1 without NVLink.",
        source="NVLinks by NVML",
        cardinality="a handful",
        value=lambda snapshot: number(_domain_size(snapshot)),
    ),
    LabelEntry(
        key="gpu.topology/nvlink-partition",
        meaning="What NVLink joins and the fabric lets talk. Across nodes: the value of "
        "`nvidia.com/gpu.clique`, whoever writes that one. Inside one node: that of "
        "`nvlink-domain`.",
        source="nvmlDeviceGetGpuFabricInfoV, node name",
        cardinality="one per NVLink partition, at most one per node",
        value=_partition,
    ),
    LabelEntry(
        key="gpu.topology/nvlink-islands",
        meaning="Groups of two or more GPUs of this node joined by NVLink; 0 without NVLink.",
        source="NVLinks by NVML",
        cardinality="a handful",
        value=lambda snapshot: number(_island_count(snapshot)),
    ),
    LabelEntry(
        key="gpu.topology/nvlink-links",
        meaning="NVLinks that every GPU has up: the least of any; GPUs in MIG mode use none and "
        "do not count.",
        source="nvmlDeviceGetNvLinkState",
        cardinality="a handful",
        value=lambda snapshot: number(_links_per_gpu(snapshot)),
    ),
    LabelEntry(
        key="gpu.topology/nvlink-version",
        meaning="The same as `nvidia.com/nvlink.version`.",
        source="nvmlDeviceGetNvLinkVersion",
        cardinality="a handful",
        value=lambda snapshot: number(_nvlink_version(snapshot)),
    ),
    LabelEntry(
        key="gpu.topology/mig-enabled",
        meaning="Whether any GPU is in MIG mode, and so out of NVLink.",
        source="nvmlDeviceGetMigMode",
        cardinality="2",
        value=lambda snapshot: boolean(_has_mig(snapshot)),
    ),
)
