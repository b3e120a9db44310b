"""The labels of how the node's GPUs are joined: by NVLink, over NUMA nodes, and in all."""

import hashlib
import json
from collections import Counter
from itertools import combinations

from nodetopo.components.labels.label import Label, label
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.rails import job_hcas
from nodetopo.topology.affinity import hca_closeness
from nodetopo.topology.domains import (
    clique,
    has_switch,
    interconnect,
    is_settled,
    islands,
    rack_size,
)
from nodetopo.topology.links import (
    active_links,
    gpus_of_unknown_links,
    gpus_out_of_nvlink,
    loops,
    nvlinks_between,
)
from nodetopo.topology.matrix import pci_closeness

_SHAPE_HEX_DIGITS = 16
"""64 bits: a thousand shapes in one cluster share a value with odds of 3 in 10^14."""

_DOMAIN_HEX_DIGITS = 16
"""64 bits: two of a million nodes share a value with odds of 3 in 100 million."""

_NUMA_SOURCE = "sysfs `numa_node`, `/sys/devices/system/node`"


@label(
    "nvidia.com/nvswitch.present",
    "Whether NVSwitches join the GPUs; absent if the links are unknown.",
    "PCI functions in sysfs, nvmlDeviceGetNvLinkRemoteDeviceType",
    "2",
)
def _has_nvswitch(snapshot: Snapshot) -> bool | None:
    if snapshot.nvswitches or has_switch(snapshot):
        return True
    return None if _groups(snapshot) is None else False


def _groups(snapshot: Snapshot) -> tuple[tuple[int, ...], ...] | None:
    """Return the islands; ``None`` without GPUs, and while links are unknown or not settled."""
    is_known = snapshot.gpus and not gpus_of_unknown_links(snapshot) and is_settled(snapshot)
    return islands(snapshot) if is_known else None


@label(
    "nvidia.com/nvlink.version",
    "NVLink generation, the lowest of all active links; absent without active links.",
    "nvmlDeviceGetNvLinkVersion",
    "a handful",
)
def _nvlink_version(snapshot: Snapshot) -> int | None:
    if any(gpu.is_lost for gpu in snapshot.gpus):
        return None  # a lost GPU in MIG mode has links, too
    looped = loops(snapshot)
    active = [link for link in snapshot.nvlinks or () if link.is_active and link not in looped]
    return min((link.version for link in active if link.version is not None), default=None)


@label(
    "gpu.topology/interconnect",
    "Best connection between GPUs: `mnnvl` (NVLink across nodes), `nvswitch`, "
    "`nvlink-mesh`, `nvlink-pairs`, `pcie`, or `none` for a single GPU.",
    "NVLinks and fabric state by NVML",
    "6",
)
def _connection(snapshot: Snapshot) -> str | None:
    return interconnect(snapshot) if snapshot.gpus and is_settled(snapshot) else None


@label(
    "gpu.topology/nvlink-domain",
    "NVLink domain. Across nodes: the cluster UUID. Inside one node: `node-` and 16 "
    "hex digits of the SHA-256 of the node's name. Absent without NVLink.",
    "nvmlDeviceGetGpuFabricInfoV, node name",
    "one per NVLink domain, at most one per node",
)
def _domain(snapshot: Snapshot) -> str | None:
    if not is_settled(snapshot):
        return None
    fabric = clique(snapshot)
    return _own_domain(snapshot) if fabric is None else fabric.cluster_uuid


@label(
    "gpu.topology/nvlink-partition",
    "NVLink partition: the part of a domain whose GPUs the fabric allows to "
    "communicate. Across nodes: the value of `nvidia.com/gpu.clique`, regardless of "
    "its writer. Inside one node: the value of `nvlink-domain`.",
    "nvmlDeviceGetGpuFabricInfoV, node name",
    "one per NVLink partition, at most one per node",
)
def _partition(snapshot: Snapshot) -> str | None:
    if not is_settled(snapshot):
        return None
    fabric = clique(snapshot)
    # The only safe value with a dot: its parent, the domain, is its prefix.
    return _own_domain(snapshot) if fabric is None else str(fabric)


def _own_domain(snapshot: Snapshot) -> str | None:
    """Return the domain that ends with the node; ``None`` where NVLink joins no GPUs."""
    groups = islands(snapshot)  # a lost GPU can join more GPUs, but part none
    if snapshot.node is None or not groups or len(groups[0]) == 1:
        return None
    # Schedulers read a level's value as global, and join levels with dots, which node names
    # contain. So neither a plain number nor the name itself is usable.
    digest = hashlib.sha256(snapshot.node.encode(errors="surrogatepass")).hexdigest()
    return f"node-{digest[:_DOMAIN_HEX_DIGITS]}"


@label(
    "gpu.topology/nvlink-domain-size",
    "GPUs of the NVLink domain. Across nodes: as the rack is built, 72 on a machine or "
    "GPU that is named GB200 NVL72 or GB300 NVL72; absent where no name states it. Inside one "
    "node: the value of `nvlink-gpus`.",
    "DMI `product_name`, nvmlDeviceGetName, NVLinks by NVML",
    "a handful",
)
def _domain_size(snapshot: Snapshot) -> int | None:
    if not is_settled(snapshot):
        return None
    return _joined(snapshot) if clique(snapshot) is None else rack_size(snapshot)


@label(
    "gpu.topology/nvlink-gpus",
    "GPUs of this node in its largest group joined by NVLink; 1 without NVLink.",
    "NVLinks by NVML",
    "a handful",
)
def _joined(snapshot: Snapshot) -> int | None:
    groups = _groups(snapshot)
    return None if groups is None else len(groups[0])


@label(
    "gpu.topology/nvlink-islands",
    "Groups of two or more GPUs of this node joined by NVLink; 0 without NVLink.",
    "NVLinks by NVML",
    "a handful",
)
def _island_count(snapshot: Snapshot) -> int | None:
    groups = _groups(snapshot)
    return None if groups is None else sum(len(group) > 1 for group in groups)


@label(
    "gpu.topology/nvlink-links",
    "Active NVLinks of the GPU with the fewest; GPUs in MIG mode use none and do not count.",
    "nvmlDeviceGetNvLinkState",
    "a handful",
)
def _links_per_gpu(snapshot: Snapshot) -> int | None:
    out, links = gpus_out_of_nvlink(snapshot), snapshot.nvlinks
    if links is None or gpus_of_unknown_links(snapshot) or not is_settled(snapshot):
        return None
    looped = loops(snapshot)
    unclear = [link for link in links if link.is_active is None or link in looped]
    if any(link.gpu not in out for link in unclear):
        return None
    counts = [len(active_links(gpu, snapshot)) for gpu in snapshot.gpus if gpu.index not in out]
    return min(counts, default=None)


@label(
    "gpu.topology/mig-enabled",
    "Whether any GPU is in MIG mode, and therefore without NVLink.",
    "nvmlDeviceGetMigMode",
    "2",
)
def _has_mig(snapshot: Snapshot) -> bool | None:
    if any(gpu.is_divided for gpu in snapshot.gpus):
        return True
    is_unread = any(issue.call == "nvmlDeviceGetMigMode" for issue in snapshot.issues)
    is_unread |= any(gpu.is_of_lost_mode for gpu in snapshot.gpus)
    is_known = snapshot.gpus and snapshot.driver_version is not None and not is_unread
    return False if is_known else None


ENTRIES: tuple[Label, ...] = (
    _has_nvswitch,
    _nvlink_version,
    _connection,
    _domain,
    _domain_size,
    _joined,
    _partition,
    _island_count,
    _links_per_gpu,
    label(
        "gpu.topology/nvlink-version",
        "The same as `nvidia.com/nvlink.version`.",
        "nvmlDeviceGetNvLinkVersion",
        "a handful",
    )(_nvlink_version),
    _has_mig,
)


def _cpu_nodes(snapshot: Snapshot) -> tuple[int, ...] | None:
    """Return the NUMA nodes with CPUs, which the memory of a Grace GPU is not."""
    nodes = snapshot.numa_nodes
    if nodes is None or not snapshot.gpus:
        return None
    return tuple(sorted(node.id for node in nodes if len(node.cpus)))


def _gpus_by_node(snapshot: Snapshot) -> Counter[int | None] | None:
    """Return the number of GPUs of each node; unplaced GPUs count for ``None``.

    On a machine with a single node, all GPUs are there. ``None`` if a lost GPU was not found on
    PCI, which proves nothing about the firmware.
    """
    nodes = _cpu_nodes(snapshot)
    if nodes is None:
        return None
    only = nodes[0] if len(nodes) == 1 else None
    lost = (gpu for gpu in snapshot.gpus if gpu.is_lost and gpu.function is None)
    if only is None and any(gpu.numa_node is None for gpu in lost):
        return None
    return Counter(only if gpu.numa_node is None else gpu.numa_node for gpu in snapshot.gpus)


@label(
    "gpu.topology/numa-nodes",
    "NUMA nodes with CPUs.",
    "`/sys/devices/system/node`",
    "a handful",
)
def _node_count(snapshot: Snapshot) -> int | None:
    nodes = _cpu_nodes(snapshot)
    return len(nodes) if nodes else None


@label(
    "gpu.topology/gpu-numa-nodes",
    "NUMA nodes that have GPUs; absent if firmware does not place a GPU.",
    _NUMA_SOURCE,
    "a handful",
)
def _gpu_node_count(snapshot: Snapshot) -> int | None:
    counts = _gpus_by_node(snapshot)
    return None if counts is None or counts[None] else len(counts)


@label(
    "gpu.topology/gpus-per-numa",
    "GPUs on each NUMA node, in order of the nodes' numbers, for example `4-4`; `u1` "
    "at the end if firmware does not place one GPU.",
    _NUMA_SOURCE,
    "one per machine type",
)
def _spread(snapshot: Snapshot) -> str | None:
    nodes, counts = _cpu_nodes(snapshot), _gpus_by_node(snapshot)
    if not nodes or counts is None:
        return None
    if counts[None] and snapshot.pci_gpus is None:
        return None  # not read, which says nothing about the firmware
    placed = {node for node in counts if node is not None}
    parts = [str(counts[node]) for node in sorted(placed.union(nodes))]
    return "-".join([*parts, *([f"u{counts[None]}"] if counts[None] else [])])


NUMA_ENTRIES: tuple[Label, ...] = (
    _node_count,
    _gpu_node_count,
    _spread,
)


@label(
    "gpu.topology/shape",
    "Equal on identically built nodes: GPU models, NVLinks, PCIe distances, NUMA "
    "nodes and positions of the HCAs. 16 hex digits; a dead NVLink changes the value, "
    "and MIG can change it.",
    "all of these, hashed",
    "one per machine type",
)
def shape(snapshot: Snapshot) -> str | None:
    """Return a value shared by all identically built nodes; ``None`` while a part is unknown.

    It consists of facts that are the same on every node of one build: positions, never names or
    serials. GPUs are in NVML's order and HCAs in address order, as the kernel's order of HCAs
    varies between boots. MIG mode is left out; if the driver hides the NVLinks of GPUs in that
    mode, the value changes all the same.
    """
    if not snapshot.gpus or None in (snapshot.pci_gpus, snapshot.hcas, snapshot.numa_nodes):
        return None
    if any(issue.probe == "nvml" for issue in snapshot.issues) or not is_settled(snapshot):
        return None
    links = nvlinks_between(snapshot)
    if any(gpu.product is None or gpu.is_lost for gpu in snapshot.gpus) or None in links.values():
        return None
    gpus = [gpu.index for gpu in snapshot.gpus]
    distances, near = pci_closeness(snapshot, of_gpus=True), hca_closeness(snapshot)
    hcas = snapshot.hcas or ()
    positions = sorted(job_hcas(snapshot), key=lambda position: hcas[position].pci_order)
    facts = {
        "gpus": [(gpu.product, gpu.numa_node) for gpu in snapshot.gpus],
        "nvlinks": [links[pair] for pair in combinations(gpus, 2)],
        "distances": [
            distances.get(frozenset((a.name, b.name))) for a, b in combinations(snapshot.gpus, 2)
        ],
        "hcas": [
            (hcas[position].numa_node, [near.get((gpu, position)) for gpu in gpus])
            for position in positions
        ],
        "numa": sum(len(node.cpus) > 0 for node in snapshot.numa_nodes or ()),
    }
    # Compact and with sorted keys, so that the digest depends on nothing but the facts.
    canonical = json.dumps(facts, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_SHAPE_HEX_DIGITS]


SHAPE_ENTRIES: tuple[Label, ...] = (shape,)
