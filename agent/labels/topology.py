"""How the GPUs of the node are joined, by NVLink and beyond."""

import hashlib
import json
from collections import Counter
from itertools import combinations

from agent.labels.fabric import is_settled
from agent.labels.label import LabelEntry, boolean, number
from agent.labels.rdma import job_hcas
from agent.model.snapshot import Snapshot
from agent.topology.affinity import hca_closeness
from agent.topology.domains import Interconnect, clique, has_switch, interconnect, islands
from agent.topology.links import active_links, gpus_out_of_nvlink, nvlinks_between
from agent.topology.matrix import pci_closeness

# How the GPUs are spread over the NUMA nodes that have CPUs.


def _cpu_nodes(snapshot: Snapshot) -> tuple[int, ...] | None:
    """Return the NUMA nodes that a CPU can be on; the memory of a Grace GPU is none of them."""
    nodes = snapshot.numa_nodes
    if nodes is None or not snapshot.gpus:
        return None
    return tuple(sorted(node.id for node in nodes if len(node.cpus)))


def _nodes_of_gpus(snapshot: Snapshot) -> Counter[int | None] | None:
    """Return how many GPUs each node has; ``None`` as a node is one that firmware did not name.

    On a machine with a single node there is nowhere else for a GPU to be.
    """
    nodes = _cpu_nodes(snapshot)
    if nodes is None:
        return None
    only = nodes[0] if len(nodes) == 1 else None
    return Counter(only if gpu.numa_node is None else gpu.numa_node for gpu in snapshot.gpus)


def _node_count(snapshot: Snapshot) -> int | None:
    nodes = _cpu_nodes(snapshot)
    return len(nodes) if nodes else None


def _gpu_node_count(snapshot: Snapshot) -> int | None:
    spread = _nodes_of_gpus(snapshot)
    return None if spread is None or spread[None] else len(spread)


def _spread(snapshot: Snapshot) -> str | None:
    nodes, spread = _cpu_nodes(snapshot), _nodes_of_gpus(snapshot)
    if not nodes or spread is None:
        return None
    if spread[None] and snapshot.pci_gpus is None:
        return None  # not read, which says nothing of the firmware
    placed = {node for node in spread if node is not None}
    counts = [str(spread[node]) for node in sorted(placed.union(nodes))]
    return "-".join([*counts, *([f"u{spread[None]}"] if spread[None] else [])])


_SOURCE = "sysfs `numa_node`, `/sys/devices/system/node`"


NUMA_ENTRIES: tuple[LabelEntry, ...] = (
    LabelEntry(
        key="gpu.topology/numa-nodes",
        meaning="NUMA nodes with CPUs.",
        source="`/sys/devices/system/node`",
        cardinality="a handful",
        value=lambda snapshot: number(_node_count(snapshot)),
    ),
    LabelEntry(
        key="gpu.topology/gpu-numa-nodes",
        meaning="NUMA nodes that have GPUs; absent where firmware does not place a GPU.",
        source=_SOURCE,
        cardinality="a handful",
        value=lambda snapshot: number(_gpu_node_count(snapshot)),
    ),
    LabelEntry(
        key="gpu.topology/gpus-per-numa",
        meaning="GPUs on each NUMA node in order of the nodes' numbers, e.g. `4-4`; at the end "
        "`u1` where firmware does not place one GPU.",
        source=_SOURCE,
        cardinality="one per machine type",
        value=_spread,
    ),
)


# The shape of a node: one value for all nodes that are built alike.

_HEX_DIGITS = 16
"""64 bits: a thousand shapes in one cluster share a value with odds of 3 in 10^14."""


def _shape(snapshot: Snapshot) -> str | None:
    if not _is_known(snapshot):
        return None
    # Compact and with sorted keys, so that the digest depends on nothing but the facts.
    canonical = json.dumps(_facts(snapshot), separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_HEX_DIGITS]


def _is_known(snapshot: Snapshot) -> bool:
    """Return whether nothing is missing that, once read, would give another value."""
    if not snapshot.gpus or None in (snapshot.pci_gpus, snapshot.hcas, snapshot.numa_nodes):
        return False
    if any(issue.probe == "nvml" for issue in snapshot.issues):
        return False
    is_whole = all(gpu.product is not None and not gpu.is_lost for gpu in snapshot.gpus)
    return is_whole and None not in nvlinks_between(snapshot).values()


def _facts(snapshot: Snapshot) -> dict[str, object]:
    """Return what is the same on every node of one build: places, never names or serials.

    GPUs come in NVML's order and HCAs in that of their addresses; the kernel's own order of
    HCAs varies from boot to boot. MIG mode is left out; where the driver hides the NVLinks of
    GPUs in that mode, it still tells.
    """
    gpus = [gpu.index for gpu in snapshot.gpus]
    distances = pci_closeness(snapshot)
    links = nvlinks_between(snapshot)
    hcas = snapshot.hcas or ()
    near = hca_closeness(snapshot)
    positions = sorted(job_hcas(snapshot), key=lambda position: hcas[position].pci_order)
    return {
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


SHAPE_ENTRIES: tuple[LabelEntry, ...] = (
    LabelEntry(
        key="gpu.topology/shape",
        meaning="Equal on nodes that are built alike: GPU models, NVLinks, PCIe distances, NUMA "
        "nodes and places of the HCAs. 16 hex digits; a dead NVLink makes another, and MIG may.",
        source="all of these, hashed",
        cardinality="one per machine type",
        value=_shape,
    ),
)


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
