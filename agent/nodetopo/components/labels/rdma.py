"""The labels of the network cards that connect GPUs to other nodes.

They are the rails of :mod:`nodetopo.rdma.rails`.
"""

import re
from collections import Counter

from nodetopo.components.labels.label import Label, label
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.rails import (
    PROTOCOLS,
    job_hcas,
    layer_of,
    nearest_by_gpu,
    network_cards,
    rates,
)
from nodetopo.topology.affinity import hca_closeness
from nodetopo.topology.matrix import word

RATE_KEY = "gpu.topology/rdma-rate"
GDR_KEY = "gpu.topology/gdr"
SPREAD_KEY = "gpu.topology/rdma-nics-per-numa"
NETNS_KEY = "gpu.topology/rdma-netns"
DATA_DIRECT_KEY = "gpu.topology/data-direct"

_DMABUF_SINCE = (5, 12)
"""The first kernel whose RDMA drivers register dma-bufs (ibv_reg_dmabuf_mr, Linux 5.12)."""

_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


@label(
    "gpu.topology/rdma",
    "Protocol of the GPUs' HCAs: `ib`, `roce`, or `none` without HCAs.",
    "sysfs `link_layer` of `/sys/class/infiniband`",
    "3",
)
def _rdma(snapshot: Snapshot) -> str | None:
    positions = network_cards(snapshot)
    if positions is None:
        return None
    if not positions:
        return "none"
    hcas = snapshot.hcas or ()
    layers = {layer for at in positions if (layer := layer_of(hcas[at])) is not None}
    return PROTOCOLS[layers.pop()] if layers else None


@label(
    "gpu.topology/rdma-nics",
    "HCAs of the GPUs: each GPU's nearest RDMA devices, and of equally near ones only "
    "the fastest model. 0 without HCAs.",
    "`/sys/class/infiniband`, PCI tree",
    "a handful",
)
def _count(snapshot: Snapshot) -> int | None:
    positions = network_cards(snapshot)
    return None if positions is None else len(positions)


@label(
    RATE_KEY,
    "Rate of most of the GPUs' HCAs, Gb/s; absent while no port is up.",
    "sysfs `ports/<n>/rate`",
    "a handful",
)
def rate(snapshot: Snapshot) -> int | None:
    """Return the rate that most of the cards have, of equally many the lower."""
    hcas, positions = snapshot.hcas or (), network_cards(snapshot) or ()
    counts = Counter(rate for at in positions for rate in rates(hcas[at]))
    return min(counts, key=lambda rate: (-counts[rate], rate), default=None)


@label(
    "gpu.topology/gpu-nic",
    "Level between the worst-placed GPU and its nearest HCA, as in `nvidia-smi topo`: "
    "`pix`, `pxb`, `phb`, `node`, `sys`.",
    "PCI tree in sysfs, nvmlDeviceGetTopologyCommonAncestor",
    "5",
)
def _distance(snapshot: Snapshot) -> str | None:
    distances, ours = hca_closeness(snapshot), network_cards(snapshot) or ()
    worst: Closeness | None = None
    for gpu in snapshot.gpus:
        near = [distances[gpu.index, at] for at in ours if (gpu.index, at) in distances]
        if not near:
            return None
        worst = min(near) if worst is None else max(worst, min(near))
    return None if worst is None else word(worst).lower()


@label(
    "gpu.topology/rdma-rails",
    "GPUs with a dedicated HCA: the number of rails if every GPU has one. 0 if all "
    "HCAs are shared; absent in a virtual machine that hides the wiring.",
    "PCI tree in sysfs",
    "a handful",
)
def rails(snapshot: Snapshot) -> int | None:
    """Return the number of GPUs with a dedicated card.

    A virtual machine's PCI tree can hide them.
    """
    machine = snapshot.host, snapshot.cpu
    is_vm = (machine[0] and machine[0].is_vm) or (machine[1] and machine[1].is_virtual)
    positions, nearest = network_cards(snapshot), nearest_by_gpu(snapshot)
    if positions == ():
        return 0
    if is_vm or positions is None or nearest is None:
        return None
    if any(gpu.index not in nearest for gpu in snapshot.gpus):
        return None
    distances = hca_closeness(snapshot)
    singles = {
        gpu: min(own) for gpu, group in nearest.items() if len(own := group & {*positions}) == 1
    }
    # A GPU far from all cards takes no card.
    nearest_gpu = {
        at: min(distance for (_, other), distance in distances.items() if other == at)
        for at in singles.values()
    }
    users = Counter(
        at
        for gpu, group in nearest.items()
        for at in group
        if distances[gpu, at] == nearest_gpu.get(at)
    )
    return sum(
        users[at] == 1 and distances[gpu, at] == nearest_gpu[at] for gpu, at in singles.items()
    )


@label(
    SPREAD_KEY,
    "The GPUs' HCAs on each NUMA node, in order of the nodes' numbers, for example "
    "`4-4`; `u1` at the end if firmware does not place one HCA.",
    "sysfs `numa_node`, `/sys/devices/system/node`",
    "one per machine type",
)
def spread(snapshot: Snapshot) -> str | None:
    """Return the cards of each NUMA node that has CPUs, in order of the nodes' numbers."""
    positions, nodes = network_cards(snapshot), snapshot.numa_nodes
    if not positions or not nodes or snapshot.pci_gpus is None:  # then cards have no places
        return None
    with_cpus = sorted(node.id for node in nodes if len(node.cpus))
    only = with_cpus[0] if len(with_cpus) == 1 else None
    places = ((snapshot.hcas or ())[at].numa_node for at in positions)
    counts = Counter(only if place is None else place for place in places)
    placed = {node for node in counts if node is not None}
    parts = [str(counts[node]) for node in sorted(placed.union(with_cpus))]
    return "-".join([*parts, *([f"u{counts[None]}"] if counts[None] else [])])


@label(
    NETNS_KEY,
    "`shared` if pods see all RDMA devices of the node, `exclusive` if a device must "
    "be moved into the pod's network namespace; absent without HCAs.",
    "`/sys/module/ib_core/parameters/netns_mode`",
    "2",
)
def _netns(snapshot: Snapshot) -> str | None:
    kernel = snapshot.kernel
    return kernel.rdma_netns if kernel is not None and _has_cards(snapshot) else None


@label(
    DATA_DIRECT_KEY,
    "Whether HCAs have a second PCI function to GPU memory (ConnectX-8 Data Direct); "
    "absent without HCAs.",
    "PCI functions in sysfs",
    "2",
)
def _data_direct(snapshot: Snapshot) -> bool | None:
    functions = snapshot.data_directs
    return bool(functions) if functions is not None and _has_cards(snapshot) else None


def _has_cards(snapshot: Snapshot) -> bool:
    """Return whether this node has GPUs and cards."""
    return bool(snapshot.gpus and job_hcas(snapshot))


@label(
    GDR_KEY,
    "Access of HCAs to GPU memory: `dmabuf` (open kernel module, Linux 5.12), else "
    "`peermem` (nvidia_peermem), else `none`; absent without HCAs.",
    "`/proc/driver/nvidia/version`, `/sys/module/nvidia_peermem`, kernel release",
    "3",
)
def _gpudirect(snapshot: Snapshot) -> str | None:
    driver = snapshot.nvidia
    if driver is None or not network_cards(snapshot):
        return None
    release = _RELEASE.match((snapshot.kernel.release if snapshot.kernel else None) or "")
    # A kernel of unknown release counts as new.
    has_dmabuf = release is None or (int(release[1]), int(release[2])) >= _DMABUF_SINCE
    if driver.is_open and has_dmabuf:
        return "dmabuf"
    if driver.peer_memory:
        return "peermem"
    return None if driver.is_open is None or driver.peer_memory is None else "none"


ENTRIES: tuple[Label, ...] = (
    _rdma,
    _count,
    rate,
    _distance,
    rails,
    spread,
    _netns,
    _data_direct,
    _gpudirect,
)
