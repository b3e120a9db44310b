"""HGX H200 on AMD: 8 GPUs on 4 NVSwitches, 2 x 64 cores, 10 RoCE devices in shuffled order.

Sources: `nvidia-smi topo -m` of an 8x H200 machine with 2 x 64 cores (dw-flyingw/GLM-5.2-FP8,
topo.txt): the NICs nearest to GPU 0 … 7 are 3, 5, 4, 0 to 2, 7, 9, 8, 6, each PIX, and NODE to
the other GPUs of the socket; NVIDIA HGX H200 data sheet (18 NVLinks); AMD EPYC 9575F data sheet.
GPUs and NICs that share a switch have bus numbers in the same order, so the order in which
nvidia-smi lists NICs is that of the kernel's device numbers and not that of PCI. Invented: that
the first NIC is a dual-port card whose ports are one RDMA device (RoCE LAG), and that the names
mlx5_0 and mlx5_1, which the ports had before, stay unused.
"""

from msgspec.structs import replace

from nodetopo.model.hca import Hca, NetDevice
from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import GENOA_PORT, NVSWITCHES, PEX_GEN5, card, link
from tests.compose.gpus import H100, LOCAL_FABRIC, gpus
from tests.compose.h100_board import LINKS_TO_EACH
from tests.compose.hcas import (
    BLUEFIELD_3,
    CONNECTX_6,
    CONNECTX_7,
    ETHERNET,
    ROCE_MTU,
    in_order,
    on_ethernet,
    roce,
)
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import compose, console, nvswitch_addresses
from tests.compose.pci_tree import Leaf, PciTree, Port, Root, build, leaf, port, root, switch
from tests.compose.wiring import fabric, pairs

H200 = replace(
    H100,
    product="NVIDIA H200",
    memory_mib=143771,
    card=card("10de:2335:10de:18be", "030200", link(5), driver="nvidia"),
    vbios="96.00.A0.00.01",
)
CONNECTX_6_DX = replace(
    CONNECTX_6,
    card=card("15b3:101d:15b3:0016", ETHERNET, link(4), driver="mlx5_core", max_read_request=4096),
    hca_type="MT4125",
    board_id="MT_0000000359",
    firmware="22.39.1002",
    rate_gbps=100.0,
    oui="b83f:d203",
)

RAILS = (3, 5, 4, 2, 7, 9, 8, 6)
"""The NIC that shares the PCIe switch with each GPU; GPU3's holds NIC 0 and 1 as well."""

BOND, DPU, LAST = 0, 1, 9
NAMES = ("mlx5_bond_0", *(f"mlx5_{number}" for number in range(2, LAST + 2)))
"""RDMA devices in nvidia-smi's order: what was captured as NIC<n>."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.EPYC_9575F, sockets=2, memory_mib=1_160_000, distances=(12, 32))
    tree = build(
        cpus,
        console(_slots(0), model=GENOA_PORT),
        *(_root(index) for index in range(1, 8)),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(H200, tree, cpus, series=0xD200, fabric=LOCAL_FABRIC)
    nvlinks = fabric(found, nvswitch_addresses(tree), LINKS_TO_EACH, version=4)
    second = NetDevice(name="ens9f1np1", mtu=ROCE_MTU, state="up", master="bond0")
    return compose(
        shape="h200x8-nvswitch-2numa-10roce",
        name="hgx-h200",
        product_name="HGX H200",
        description="8x H200 SXM, 4 NVSwitch, 2 sockets, 10 RoCE devices in shuffled order",
        sources=(
            "`nvidia-smi topo -m` of an 8x H200 machine: dw-flyingw/GLM-5.2-FP8, topo.txt",
            "NVIDIA HGX H200 data sheet",
            "AMD EPYC 9575F data sheet",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=in_order(*(_hca(number, tree) for number in range(LAST + 1)), as_given=True),
        netdevs={"lag1": second},
    )


def _hca(number: int, tree: PciTree) -> Hca:
    name, place = NAMES[number], tree[f"nic{number}"]
    if number == BOND:
        port1 = "ens9f0np0"
        return roce(
            name, place, CONNECTX_6_DX, number=0, netdev=port1, address="10.0.0.9", bond="bond0"
        )
    model = BLUEFIELD_3 if number == DPU else CONNECTX_7
    netdev = f"enp{place.pci.bus}s0np0"
    return roce(name, place, model, number=number, netdev=netdev, address=f"10.0.{number}.9")


def _root(index: int) -> Root:
    """Return one of the four host bridges of each socket."""
    below = [_slots(index)]
    if index == 1:
        nvswitches = (leaf(f"nvswitch{at}", NVSWITCHES[3]) for at in range(4))
        below.append(port(switch(PEX_GEN5, *nvswitches)))
    return root(0x20 * index, *below, model=GENOA_PORT, node=index // 4)


def _slots(index: int) -> Port:
    """Return a root port with a switch: a GPU, its NIC, and at GPU3 two cards more."""
    cards: list[Port | Leaf] = []
    if index == RAILS.index(2):
        bonded = leaf("nic0", CONNECTX_6_DX.card), leaf("lag1", CONNECTX_6_DX.card, function=1)
        cards += [port(*bonded), leaf("nic1", on_ethernet(BLUEFIELD_3))]
    rail = leaf(f"nic{RAILS[index]}", on_ethernet(CONNECTX_7))
    gpu = leaf(f"gpu{index}", H200.card)
    return port(switch(PEX_GEN5, *cards, rail, gpu), device=1, bus=0x20 * index + 0x03)
