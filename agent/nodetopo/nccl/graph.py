"""The graph of a node that NCCL searches: CPUs, PCIe switches, GPUs, NICs, NVLink.

Facts: NVIDIA/nccl 2.30.7 ``src/graph/xml.cc`` (ncclTopoGetXmlFromSys: from sysfs to a tree) and
``src/graph/topo.cc`` (from the tree to a graph). NCCL 2.30 puts a node DEV above each GPU for
GPUs split in parts (MLOPart), which no snapshot knows; here the two are one.
"""

from collections.abc import Mapping
from enum import Enum, auto
from itertools import combinations

from msgspec import Struct, field

from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import PeerKind
from nodetopo.model.pci import PciAddress, PciBridge, PcieLink, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl import bandwidth
from nodetopo.nccl.net import Net, nets
from nodetopo.nccl.paths import NcclPath
from nodetopo.topology.links import direct_links, gpus_out_of_nvlink, nvlinks_between, switch_links

SWITCHES = "NVS"
"""All NVSwitches together, which NCCL keeps as one node (topo.cc, ncclTopoAddNvLinks)."""

_VIRTUAL_NIC = "NIC/virtual"

_SWITCH_STEP = 2
"""Levels of sysfs for one node of the tree: NCCL keeps a switch's upstream port and leaves
out the downstream port, and so leaves out root ports."""

_UNKNOWN_NODE = -1
"""The NUMA node of devices for which firmware names none."""

_NO_SPEED = PcieLink()
"""The end of a link of which sysfs was read and states no speed."""

_BROADCOM = "1000"
_GEN4, _GEN5 = "c010", "c030"
"""PEX880xx and PEX890xx (pci.ids, vendor 1000)."""

_GEN4_BASE_MODE = "a"
"""First hex digit of the subsystem device id of either level of a Gen4 switch."""

Bridges = Mapping[PciAddress, PciBridge]


class NodeKind(Enum):
    """The kind of a node (topo.h); NET is a network device, NIC the PCI device that carries it."""

    GPU = auto()
    PCI = auto()
    NVS = auto()
    CPU = auto()
    NIC = auto()
    NET = auto()


Links = dict[tuple[str, NcclPath], float]
"""Far end and kind of link → gigabytes per second. The kind is the type of a path of one step."""


class Graph(Struct):
    """Nodes by name with their links to neighbours."""

    kinds: dict[str, NodeKind] = field(default_factory=dict)
    links: dict[str, Links] = field(default_factory=dict)
    # The sort keys of GPUs and NETs in NCCL's list of nodes: in the order of its tree, CPUs as they
    # were added, functions below one switch by PCI address.
    keys: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    # gpus, nets: by node
    gpus: dict[str, Gpu] = field(default_factory=dict)
    nets: dict[str, Net] = field(default_factory=dict)

    def add(self, name: str, kind: NodeKind) -> bool:
        """Add a node; False if it is there already."""
        if name in self.kinds:
            return False
        self.kinds[name] = kind
        self.links[name] = {}
        return True

    def connect(self, a: str, b: str, kind: NcclPath, gbs: float) -> None:
        """Link two nodes both ways; links of one kind between the same two add up."""
        for here, there in ((a, b), (b, a)):
            self.links[here][there, kind] = self.links[here].get((there, kind), 0.0) + gbs

    def drop(self, name: str) -> None:
        """Remove a node and its links."""
        del self.kinds[name]
        for there, kind in self.links.pop(name):
            self.links[there].pop((name, kind), None)

    def of(self, kind: NodeKind) -> list[str]:
        """Return the nodes of a kind, GPUs and NETs as NCCL lists them, others as added."""
        names = [name for name, other in self.kinds.items() if other is kind]
        return sorted(names, key=lambda name: self.keys.get(name, ()))

    def tree(self, name: str) -> list[str]:
        """Return the switches and CPUs next to a node by PCIe, above it and below."""
        inner = (NodeKind.PCI, NodeKind.CPU)
        return [
            there
            for there, kind in self.links[name]
            if kind is NcclPath.PIX and self.kinds[there] in inner
        ]


class _Place(Struct, frozen=True):
    """The place of a device: its path, its own end of the link above it, its NUMA node."""

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
        nic = _add_nic(built, net, snapshot, bridges)
        if nic is not None:
            name = f"NET/{position}"
            built.add(name, NodeKind.NET)
            built.nets[name] = net
            built.keys[name] = (*built.keys[nic], position)
            # NCCL counts no step from a NIC to its ports (paths.cc, LINK_NET).
            built.connect(nic, name, NcclPath.LOC, net.bandwidth_gbs)
    for gpu in placed[1:]:
        _add_gpu(built, gpu, bridges)
    _add_nvlinks(built, snapshot)
    _add_c2c(built)
    _flatten(built, bridges)
    machine = snapshot.kernel.machine if snapshot.kernel else None
    gbs = bandwidth.between_cpus(machine, snapshot.cpu)
    for a, b in combinations(built.of(NodeKind.CPU), 2):
        built.connect(a, b, NcclPath.SYS, gbs)
    return built


def _add_nvlinks(built: Graph, snapshot: Snapshot) -> None:
    """Link GPUs to each other, to the NVSwitches and (POWER9) to their CPU.

    A direct link counts as its weaker end reports it: NCCL refuses to start where only one end
    is up (topo.cc, ncclTopoAddNvLinks). Links that a text counts are taken as direct; the paths
    are the same.
    """
    out = gpus_out_of_nvlink(snapshot)
    names = {gpu.index: name for name, gpu in built.gpus.items() if gpu.index not in out}
    each = {gpu.index: bandwidth.nvlink(gpu) for gpu in built.gpus.values()}
    direct = direct_links(snapshot)
    counted = nvlinks_between(snapshot) if snapshot.nvlinks is None else {}
    for a, b in combinations([gpu.index for gpu in snapshot.gpus], 2):
        count = counted.get((a, b)) or min(direct[a, b], direct[b, a])
        if count and a in names and b in names:
            built.connect(names[a], names[b], NcclPath.NVL, count * min(each[a], each[b]))
    for index, count in switch_links(snapshot).items():
        if index in names:
            built.add(SWITCHES, NodeKind.NVS)
            built.connect(names[index], SWITCHES, NcclPath.NVL, count * each[index])
    for link in snapshot.nvlinks or ():
        if link.is_active and link.peer_kind is PeerKind.CPU and link.gpu in names:
            _connect_cpu(built, names[link.gpu], NcclPath.NVL, each[link.gpu])


def _add_c2c(built: Graph) -> None:
    """Link each GPU that has a chip-to-chip link to its CPU (topo.cc, ncclTopoAddC2c)."""
    for name, gpu in built.gpus.items():
        if gpu.c2c is not None and gpu.c2c.is_enabled:
            _connect_cpu(built, name, NcclPath.C2C, bandwidth.c2c(gpu.c2c))


def _flatten(built: Graph, bridges: Bridges) -> None:
    """Merge the second level of Broadcom switches into the first, from the CPU downwards.

    These switches show up as two levels and are one (topo.cc, getBcmGen,
    ncclTopoFlattenBcmSwitches). nvidia-smi does not do this: it says PXB where NCCL then says
    PIX. The ids come from the snapshot's bridges; where it has none, nothing is merged. A switch
    is merged once, so a third level stays.
    """
    by_name = {f"PCI/{address}": bridge for address, bridge in bridges.items()}
    ordered = level = built.of(NodeKind.CPU)
    while level:
        level = [
            there
            for name in level
            for there in built.tree(name)
            if built.kinds[there] is NodeKind.PCI and there not in ordered
        ]
        ordered = [*ordered, *level]
    switches = (name for name in ordered if built.kinds[name] is NodeKind.PCI)
    rank = {name: at for at, name in enumerate(switches)}
    for name, position in rank.items():
        generation = _broadcom_generation(by_name.get(name), level=0)
        if name not in built.kinds or generation is None:
            continue
        for sub in built.tree(name):
            is_below = rank.get(sub, -1) > position
            if is_below and generation == _broadcom_generation(by_name.get(sub), level=1):
                for (there, kind), gbs in list(built.links[sub].items()):
                    if there != name:
                        built.connect(there, name, kind, gbs)
                built.drop(sub)


def _broadcom_generation(bridge: PciBridge | None, *, level: int) -> str | None:
    if bridge is None or bridge.vendor != _BROADCOM or bridge.subsystem_vendor != _BROADCOM:
        return None
    mode = (bridge.subsystem_device or "")[:1].lower()
    if bridge.device == _GEN4 and mode == _GEN4_BASE_MODE:
        return _GEN4
    if bridge.device == _GEN5 and mode == str(level):
        return _GEN5
    return None


def _connect_cpu(built: Graph, gpu: str, kind: NcclPath, gbs: float) -> None:
    """Link a GPU to the CPU above it in the PCIe tree (findLocalCpu)."""
    (cpu, *_) = built.keys[gpu]
    built.connect(gpu, built.of(NodeKind.CPU)[int(cpu)], kind, gbs)


def _add_gpu(built: Graph, gpu: Gpu, bridges: Bridges) -> None:
    built.add(gpu.name, NodeKind.GPU)
    built.gpus[gpu.name] = gpu
    link = gpu.pcie if gpu.function is None or gpu.function.link is None else gpu.function.link
    if link is None and gpu.function is not None:
        link = _NO_SPEED
    assert gpu.path is not None
    _attach(built, gpu.name, _Place(gpu.path, link, gpu.numa_node), bridges)


def _add_nic(built: Graph, net: Net, snapshot: Snapshot, bridges: Bridges) -> str | None:
    """Add the PCI device of *net*; ``None`` where a virtual device has no CPU to be under."""
    if net.nic is None or net.path is None:
        cpus = built.of(NodeKind.CPU)
        if cpus and built.add(_VIRTUAL_NIC, NodeKind.NIC):
            built.connect(cpus[0], _VIRTUAL_NIC, NcclPath.PIX, bandwidth.LOCAL)
            # Behind the PCI functions, which start with a digit.
            built.keys[_VIRTUAL_NIC] = (0, "virtual")
        return _VIRTUAL_NIC if cpus else None
    name = f"NIC/{net.nic}"
    if built.add(name, NodeKind.NIC):
        function = (snapshot.hcas or ())[net.hcas[0]].function
        for direct in snapshot.data_directs or ():
            if direct.path is not None and direct.path == net.path:
                function = direct.function
        link = None if function is None else function.link or _NO_SPEED
        _attach(built, name, _Place(net.path, link, net.numa_node), bridges)
    return name


def _attach(built: Graph, name: str, place: _Place, bridges: Bridges) -> None:
    """Link a device to what is above it, up to the CPU, adding what is not there yet."""
    hops, is_collapsed = place.path.hops, place.path.is_collapsed
    chain = list(range(len(hops) - 1, -1, -1 if is_collapsed else -_SWITCH_STEP))
    cpu = _cpu_of(built, hops[chain[-1]], place.numa_node, bridges)
    way = tuple(str(hops[at]) for at in reversed(chain))
    built.keys[name] = (built.of(NodeKind.CPU).index(cpu), *way)
    child, link = name, place.link
    for at, above in zip(chain, [*chain[1:], None], strict=True):
        port = None if is_collapsed or not at else _link(bridges.get(hops[at - 1]))
        parent = cpu if above is None else f"PCI/{hops[above]}"
        is_new = built.add(parent, NodeKind.PCI)
        built.connect(child, parent, NcclPath.PIX, bandwidth.pcie((link, port)))
        if above is None or not is_new:
            return
        child, link = parent, _link(bridges.get(hops[above]))


def _link(bridge: PciBridge | None) -> PcieLink | None:
    return None if bridge is None else bridge.link or _NO_SPEED


def _cpu_of(built: Graph, top: PciAddress, numa_node: int | None, bridges: Bridges) -> str:
    """Return the CPU node of *top*, the uppermost node of a device's chain.

    NCCL reads the NUMA node of the uppermost node and not of the device; where the snapshot has
    none for it, the device's own is taken. The first device decides for all below.
    """
    for there in built.tree(f"PCI/{top}") if f"PCI/{top}" in built.kinds else ():
        if built.kinds[there] is NodeKind.CPU:
            return there
    bridge = bridges.get(top)
    node = numa_node if bridge is None or bridge.numa_node is None else bridge.numa_node
    name = f"CPU/{_UNKNOWN_NODE if node is None else node}"
    built.add(name, NodeKind.CPU)
    return name
