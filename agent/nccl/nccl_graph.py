"""The graph of a node that NCCL would search: CPUs, PCIe switches, GPUs, NICs, NVLink.

Facts: NVIDIA/nccl 2.30.7 ``src/graph/xml.cc`` (ncclTopoGetXmlFromSys: from sysfs to a tree) and
``src/graph/topo.cc`` (from the tree to a graph). NCCL 2.30 puts a node DEV above each GPU for
GPUs split in parts (MLOPart), which no snapshot knows; here the two are one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from agent.model.gpu import Gpu
from agent.model.pci import PciAddress, PciBridge, PcieLink, PciPath
from agent.model.snapshot import Snapshot
from agent.nccl import bandwidth
from agent.nccl.graph import Graph, Kind
from agent.nccl.nccl_flatten import flatten
from agent.nccl.nccl_links import add_c2c, add_nvlinks
from agent.nccl.net import Net, nets
from agent.nccl.paths import NcclPath

_STEP = 2
"""Levels of sysfs for one node of the tree: NCCL keeps a switch's upstream port and leaves
out the downstream port, and so leaves out root ports."""

_UNKNOWN_NODE = -1
"""The NUMA node of devices for which firmware names none."""

_NO_SPEED = PcieLink()
"""The end of a link of which sysfs was read and states no speed."""

_VIRTUAL = "NIC/virtual"

Bridges = Mapping[PciAddress, PciBridge]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a device hangs: its path, its own end of the link above it, its NUMA node."""

    path: PciPath
    link: PcieLink | None
    numa_node: int | None


def graph(snapshot: Snapshot) -> Graph:
    """Return the graph, without lost GPUs and devices of unknown place in the PCI tree."""
    bridges = {bridge.address: bridge for bridge in snapshot.bridges or ()}
    placed = [gpu for gpu in snapshot.gpus if gpu.path and gpu.path.hops and not gpu.is_lost]
    built = Graph()
    # Rank 0 adds its GPU, then every NIC; the other GPUs come from the other ranks.
    for gpu in placed[:1]:
        _add_gpu(built, gpu, bridges)
    for position, net in enumerate(nets(snapshot)):
        _add_net(built, position, net, snapshot, bridges)
    for gpu in placed[1:]:
        _add_gpu(built, gpu, bridges)
    add_nvlinks(built, snapshot)
    add_c2c(built)
    flatten(built, bridges)
    _join_cpus(built, snapshot)
    return built


def _add_gpu(built: Graph, gpu: Gpu, bridges: Bridges) -> None:
    built.add(gpu.name, Kind.GPU)
    built.gpus[gpu.name] = gpu
    link = gpu.pcie if gpu.function is None or gpu.function.link is None else gpu.function.link
    if link is None and gpu.function is not None:
        link = _NO_SPEED
    assert gpu.path is not None
    _hang(built, gpu.name, _Place(gpu.path, link, gpu.numa_node), bridges)


def _add_net(built: Graph, position: int, net: Net, snapshot: Snapshot, bridges: Bridges) -> None:
    nic = _add_nic(built, net, snapshot, bridges)
    if nic is None:
        return
    name = f"NET/{position}"
    built.add(name, Kind.NET)
    built.nets[name] = net
    built.keys[name] = (*built.keys[nic], position)
    # NCCL counts the step from a NIC to its ports as none (paths.cc, LINK_NET).
    built.connect(nic, name, NcclPath.LOC, net.bandwidth_gbs)


def _add_nic(built: Graph, net: Net, snapshot: Snapshot, bridges: Bridges) -> str | None:
    if net.nic is None or net.path is None:
        return _add_virtual_nic(built)
    name = f"NIC/{net.nic}"
    if built.add(name, Kind.NIC):
        place = _Place(net.path, _nic_link(net, snapshot), net.numa_node)
        _hang(built, name, place, bridges)
    return name


def _add_virtual_nic(built: Graph) -> str | None:
    cpus = built.of(Kind.CPU)
    if not cpus:
        return None
    if built.add(_VIRTUAL, Kind.NIC):
        built.connect(cpus[0], _VIRTUAL, NcclPath.PIX, bandwidth.LOCAL)
        built.keys[_VIRTUAL] = (0, "virtual")  # behind the PCI functions, which start with a digit
    return _VIRTUAL


def _nic_link(net: Net, snapshot: Snapshot) -> PcieLink | None:
    function = (snapshot.hcas or ())[net.hcas[0]].function
    for direct in snapshot.data_directs or ():
        if direct.path is not None and direct.path == net.path:
            function = direct.function
    return None if function is None else function.link or _NO_SPEED


def _hang(built: Graph, name: str, place: _Place, bridges: Bridges) -> None:
    """Link a device to what is above it, up to the CPU, adding what is not there yet."""
    hops, is_collapsed = place.path.hops, place.path.is_collapsed
    chain = list(range(len(hops) - 1, -1, -1 if is_collapsed else -_STEP))
    cpu = _cpu(built, hops[chain[-1]], place.numa_node, bridges)
    way = tuple(str(hops[at]) for at in reversed(chain))
    built.keys[name] = (built.of(Kind.CPU).index(cpu), *way)
    child, link = name, place.link
    for at, above in zip(chain, [*chain[1:], None], strict=True):
        port = None if is_collapsed or not at else _link(bridges.get(hops[at - 1]))
        parent = cpu if above is None else f"PCI/{hops[above]}"
        is_new = built.add(parent, Kind.PCI)
        built.connect(child, parent, NcclPath.PIX, bandwidth.pcie((link, port)))
        if above is None or not is_new:
            return
        child, link = parent, _link(bridges.get(hops[above]))


def _link(bridge: PciBridge | None) -> PcieLink | None:
    return None if bridge is None else bridge.link or _NO_SPEED


def _cpu(built: Graph, top: PciAddress, numa_node: int | None, bridges: Bridges) -> str:
    """Return the CPU node of *top*, the uppermost node of a device's chain.

    NCCL asks the uppermost node for its NUMA node and not the device; where the snapshot has
    none for that, the device's own is taken. What is met first decides for all below.
    """
    for there in built.tree(f"PCI/{top}") if f"PCI/{top}" in built.kinds else ():
        if built.kinds[there] is Kind.CPU:
            return there
    bridge = bridges.get(top)
    node = numa_node if bridge is None or bridge.numa_node is None else bridge.numa_node
    name = f"CPU/{_UNKNOWN_NODE if node is None else node}"
    built.add(name, Kind.CPU)
    return name


def _join_cpus(built: Graph, snapshot: Snapshot) -> None:
    machine = snapshot.kernel.machine if snapshot.kernel else None
    gbs = bandwidth.between_cpus(machine, snapshot.cpu)
    for a, b in combinations(built.of(Kind.CPU), 2):
        built.connect(a, b, NcclPath.SYS, gbs)
