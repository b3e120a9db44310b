"""An HGX A100 whose ConnectX-6 are cut up: virtual functions, subfunctions, and a two-port HCA.

Sources: NVIDIA HGX A100 data sheet and A100 whitepaper (6 NVSwitches, 12 NVLinks, two to each);
`nvidia-smi topo -m` of 8x A800 machines in public: two GPUs PIX to the NICs of their PCIe
switch, NODE to others of the socket; kernel Documentation/networking/device_drivers/ethernet/
mellanox/mlx5 (subfunctions are auxiliary devices of their function) and
Documentation/PCI/pci-iov-howto.rst; `ibstat` of ConnectX-3 in public (two ports of one RDMA
device, each of its own link layer, which no mlx5 has); rdma-system(8): in exclusive mode an RDMA
device is seen in one network namespace alone. Which functions are cut up is invented.
"""

from msgspec.structs import replace

from nodetopo.model.hca import Gid, Hca, HcaPort, LinkLayer, NetDevice
from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import NVSWITCHES, PEX_GEN4, ROME_PORT, card, link
from tests.compose.gpus import A100_SXM4_80, gpus
from tests.compose.hcas import (
    CONNECTX_6,
    INFINIBAND,
    HcaModel,
    in_order,
    infiniband,
    on_ethernet,
    roce,
    subfunction,
    virtual_function,
)
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import Software, compose, console, nvswitch_addresses
from tests.compose.pci_tree import PciTree, Port, Root, build, leaf, port, root, switch
from tests.compose.wiring import fabric, pairs

ROOTS = (0x20, 0x60, 0xA0, 0xE0)
VFS = 2
"""Virtual functions of each of the first two ConnectX-6."""

CUT_UP, SUBFUNCTIONS = 2, (88, 89)
"""The ConnectX-6 that has subfunctions, and their numbers."""

CONNECTX_6_VF = replace(
    CONNECTX_6,
    card=replace(on_ethernet(CONNECTX_6), device="101c", link=None, is_virtual=True),
    hca_type="MT4124",
)
CONNECTX_3_PRO = HcaModel(
    card=card("15b3:1007:15b3:0006", INFINIBAND, link(3, 8), driver="mlx4_core"),
    hca_type="MT4103",
    board_id="MT_1090111019",
    firmware="2.42.5000",
    rate_gbps=56.0,
    oui="f452:1403",
)


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.EPYC_7742, sockets=2, memory_mib=515_900, distances=(12, 32))
    storage = port(leaf("storage0", CONNECTX_3_PRO.card), device=1, bus=0x41)
    tree = build(
        cpus,
        console(model=ROME_PORT),
        *(_quarter(number) for number in range(4)),
        root(0x40, storage, model=ROME_PORT),
        root(0xC0, _nvswitches(), model=ROME_PORT, node=1),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(A100_SXM4_80, tree, cpus, series=0xA5F)
    nvlinks = fabric(found, nvswitch_addresses(tree), (2,) * 6, version=3)
    return compose(
        shape="a100x8-nvswitch-2numa-sfvf",
        name=None,
        product_name="HGX A100",
        description="8x A100 SXM4, 6 NVSwitch, 4 ConnectX-6 with 4 VFs and 2 SFs, a 2-port HCA",
        sources=(
            "NVIDIA HGX A100 data sheet",
            "NVIDIA A100 Tensor Core GPU architecture whitepaper",
            "`nvidia-smi topo -m` of 8x A800 machines in public",
            "kernel documentation of mlx5 subfunctions and of SR-IOV",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=in_order(_two_ports(tree), *_physical(tree), *_virtual(tree), *_subfunctions(tree)),
        software=Software(
            rdma_netns="exclusive",
            modules=(*Software().modules, "mlx4_core", "mlx4_ib"),
        ),
    )


def _quarter(number: int) -> Root:
    """Return a host bridge with a switch: two GPUs and a ConnectX-6."""
    pf = leaf(f"nic{number}", on_ethernet(CONNECTX_6))
    vfs = (
        leaf(f"vf{VFS * number + at}", CONNECTX_6_VF.card, function=1 + at)
        for at in range(VFS if number < CUT_UP else 0)
    )
    both = (leaf(f"gpu{2 * number + at}", A100_SXM4_80.card) for at in range(2))
    below = port(switch(PEX_GEN4, *both, port(pf, *vfs)))
    return root(ROOTS[number], below, model=ROME_PORT, node=number // 2)


def _nvswitches() -> Port:
    return port(switch(PEX_GEN4, *(leaf(f"nvswitch{at}", NVSWITCHES[2]) for at in range(6))))


def _physical(tree: PciTree) -> list[Hca]:
    return [
        roce(
            f"mlx5_{number}",
            place,
            CONNECTX_6,
            number=number,
            netdev=f"enp{place.pci.bus}s0f0np0",
            address=f"10.0.{number}.1",
        )
        for number, place in enumerate(tree.named("nic"))
    ]


def _virtual(tree: PciTree) -> list[Hca]:
    """Return the virtual functions, named behind the physical ones."""
    return [
        virtual_function(
            roce(
                f"mlx5_{4 + number}",
                place,
                CONNECTX_6_VF,
                number=0x10 + number,
                netdev=f"enp{place.pci.bus}s0f0v{number % VFS}",
                address=f"10.0.{number // VFS}.{10 + number % VFS}",
            ),
            place,
            tree[f"nic{number // VFS}"],
        )
        for number, place in enumerate(tree.named("vf"))
    ]


def _subfunctions(tree: PciTree) -> list[Hca]:
    parent = tree[f"nic{CUT_UP}"]
    return [
        subfunction(
            roce(
                f"mlx5_{8 + at}",
                parent,
                CONNECTX_6_VF,
                number=0x20 + at,
                netdev=f"enp{parent.pci.bus}s0f0s{number}",
                address=f"10.0.{CUT_UP}.{number}",
            ),
            parent,
            number,
        )
        for at, number in enumerate(SUBFUNCTIONS)
    ]


def _two_ports(tree: PciTree) -> Hca:
    """Return an HCA with an InfiniBand port, and an Ethernet port that has no cable."""
    first = infiniband("mlx4_0", tree["storage0"], CONNECTX_3_PRO, number=0x30, netdev="ib0")
    second = HcaPort(
        number=2,
        state="DOWN",
        physical_state="Disabled",
        layer=LinkLayer.ETHERNET,
        rate_gbps=40.0,
        gids=(
            Gid(
                index=0,
                gid="fe80:0000:0000:0000:f652:14ff:fe03:0031",
                type="IB/RoCE v1",
                netdev="enp65s0d1",
            ),
        ),
    )
    ethernet = NetDevice(name="enp65s0d1", port=2, mtu=1500, state="down")
    ipoib = NetDevice(name="ib0", port=1, mtu=2044, state="up")
    return replace(first, ports=(*first.ports, second), netdevs=(ethernet, ipoib))
