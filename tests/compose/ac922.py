"""IBM Power System AC922: 4 V100 linked in pairs and to their POWER9, 6 ports of RDMA.

Sources: lstopo of LLNL Lassen in public (PCI addresses and ids of GPUs, their PEX 8725, HCAs, the
Ethernet ports and the BMC); `nvidia-smi topo -m` of an AC922 with six HCAs in public (NV3 in
pairs, HCA ports PIX in pairs, 64 threads a socket, nodes 0 and 8); a sysfs capture of such a
machine among hwloc's tests (distances 10, 40, 80; each GPU's 15 GiB a node without CPUs, counted
down from 255); IBM AC922 Redpaper REDP-5494 (six NVLinks a GPU: three to the CPU, three to the
neighbour). Where the NVLinks end at the CPU is a PCI function of IBM, 1014:04ea.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.nvlink import NvLink, P2pStatus, PeerKind
from nodetopo.model.pci import PciAddress, PcieLink, PciFunction
from tests.compose import processors
from tests.compose.cards import BMC_DISPLAY, POWER9_PORT, card, link
from tests.compose.gpus import CLASS_3D, V100_SXM2, gpus
from tests.compose.hcas import CONNECTX_5, in_order, infiniband
from tests.compose.host import Host, host, with_memory_nodes
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, PARAMETERS, RDMA_MODULES, Software, compose
from tests.compose.pci_tree import BridgeModel, Leaf, PciTree, Root, build, leaf, port, root, switch
from tests.compose.wiring import NVLINK_MBPS, mesh, pairs

NARROW = PcieLink(generation=3, width=2, max_generation=3, max_width=16)
"""Two lanes are all that the board gives a GPU of PCIe."""

V100_16 = replace(
    V100_SXM2,
    product="Tesla V100-SXM2-16GB",
    memory_mib=16128,
    card=card("10de:1db1:10de:1212", CLASS_3D, NARROW, driver="nvidia"),
)
_IBM_CARD = replace(
    CONNECTX_5.card, subsystem_vendor="1014", subsystem_device="0617", link=link(4, 8)
)
DUAL_PORT = replace(CONNECTX_5, card=_IBM_CARD, board_id="IBM0000000002")
PEX_8725 = BridgeModel(
    vendor="10b5", device="8725", subsystem_vendor="10b5", subsystem_device="8725", link=link(3, 4)
)
TG3 = card("14e4:1657:14e4:1981", "020000", link(2, 4), driver="tg3")
NPU = PciFunction(pci_class="068000", vendor="1014", device="04ea")

LINKS = 3
"""Of a GPU to its neighbour, and as many to the CPU."""

CHIPS = (0, 8)
MEMORY_NODES = (255, 254, 253, 252)
UNKNOWN_TO_R535 = (
    "CoherentGPUMemoryMode",
    "CreateImexChannel0",
    "GrdmaPciTopoCheckOverride",
    "ImexChannelCount",
)
"""Module parameters of later drivers; R535 is of the last that NVIDIA built for POWER."""

ADAPTERS = ((0x03, 0), (0x30, 8), (0x33, 8))
"""PCI domain and NUMA node of each adapter."""


def machine() -> Machine:
    """Return the description."""
    cpus = _host()
    tree = build(
        cpus,
        _root(0x02, 0, leaf("bmc", BMC_DISPLAY)),
        *(_root(domain, node, *_adapter(at)) for at, (domain, node) in enumerate(ADAPTERS)),
        _gpus(0x04, 0, first=0, slots=(0x0A, 0x0B), bus=4),
        _root(0x05, 0, leaf("eth0", TG3)),
        root(0, *_npus(0), model=POWER9_PORT, node=0, domain=6),
        root(0, *_npus(2), model=POWER9_PORT, node=8, domain=7),
        _gpus(0x35, 8, first=2, slots=(0x04, 0x05), bus=3),
    )
    found = gpus(V100_16, tree, cpus, series=0x922, memory_nodes=MEMORY_NODES)
    between = mesh(found, {(0, 1): LINKS, (2, 3): LINKS}, version=2)
    nvlinks = (*between, *_to_cpu(found, tree))
    return compose(
        shape="v100x4-power9-sparse-6mlx5",
        name="ac922",
        product_name=None,
        description="IBM AC922: 4x V100, NVLink to each other and to POWER9, 6 ConnectX-5 ports",
        sources=(
            "lstopo of LLNL Lassen, `nvidia-smi topo -m` and sysfs of AC922 machines in public",
            "IBM Power System AC922 Technical Overview and Introduction, REDP-5494",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=tuple(sorted(nvlinks, key=lambda it: (it.gpu, it.link))),
        pairs=pairs(found, nvlinks, far=P2pStatus.TOPOLOGY_NOT_SUPPORTED),
        hcas=in_order(*_ports(tree)),
        software=Software(
            driver="535.161.08",
            nvml="12.535.161.08",
            cuda=(12, 2),
            is_open=False,
            machine="ppc64le",
            command_line="root=/dev/nvme0n1p2 ro",
            modules=(*NVIDIA_MODULES, *RDMA_MODULES),
            parameters={k: v for k, v in PARAMETERS.items() if k not in UNKNOWN_TO_R535},
        ),
    )


def _host() -> Host:
    """Return 2 sockets of 16 cores; nodes and sockets both have the chip's number, 0 and 8."""
    processor = replace(processors.POWER9, cores=16)
    base = host(processor, sockets=2, memory_mib=130_700, distances=(10, 40), ids=CHIPS)
    memory = dict.fromkeys(MEMORY_NODES, 15_360)
    whole = with_memory_nodes(base, memory_mib=memory, distance_to={}, default=80)
    sockets = zip(CHIPS, whole.cpu.sockets, strict=True)
    numbered = tuple(replace(socket, id=chip) for chip, socket in sockets)
    return replace(whole, cpu=replace(whole.cpu, sockets=numbered))


def _root(domain: int, node: int, *functions: Leaf) -> Root:
    """Return a host bridge of POWER9: each is a PCI domain and has one root port, number 0."""
    return root(0, port(*functions, device=0), model=POWER9_PORT, node=node, domain=domain)


def _gpus(domain: int, node: int, *, first: int, slots: tuple[int, int], bus: int) -> Root:
    """Return a host bridge with the two GPUs of a socket on one switch."""
    below = (
        port(leaf(f"gpu{first + at}", V100_16.card), device=slot, bus=bus + at, link=link(3, 2))
        for at, slot in enumerate(slots)
    )
    plugged = port(switch(PEX_8725, *below), device=0)
    return root(0, plugged, model=POWER9_PORT, node=node, domain=domain)


def _adapter(at: int) -> tuple[Leaf, ...]:
    return tuple(leaf(f"nic{2 * at + port}", DUAL_PORT.card, function=port) for port in range(2))


def _npus(first: int) -> tuple[Leaf, ...]:
    """Return a function for each NVLink of a CPU: a device for each GPU."""
    return tuple(
        leaf(f"npu{LINKS * (first + gpu) + number}", NPU, device=gpu, function=number)
        for gpu in range(2)
        for number in range(LINKS)
    )


def _to_cpu(found: tuple[Gpu, ...], tree: PciTree) -> Iterator[NvLink]:
    ends: list[PciAddress] = [place.pci for place in tree.named("npu")]
    for at, peer in enumerate(ends):
        yield NvLink(
            gpu=found[at // LINKS].index,
            link=LINKS + at % LINKS,
            is_active=True,
            version=2,
            peer=peer,
            peer_kind=PeerKind.CPU,
            speed_mbps=NVLINK_MBPS[2],
            recoveries=0,
        )


def _ports(tree: PciTree) -> Iterator[Hca]:
    """Yield a device for each function; the two of a card share its system image GUID."""
    for at, place in enumerate(tree.named("nic")):
        own = infiniband(f"mlx5_{at}", place, DUAL_PORT, number=at, netdev=f"hsi{at}")
        card_guid = infiniband("", place, DUAL_PORT, number=at - at % 2).node_guid
        yield replace(own, sys_image_guid=card_guid)
