"""DGX A100: 8 GPUs on 6 NVSwitches, 2 EPYC with four NUMA nodes each, 10 ConnectX-6.

Sources: NVIDIA DGX A100 User Guide (2 x EPYC 7742, 1 TB; bus numbers of GPUs, NVSwitches and
network ports; eight single-port adapters for compute and two dual-port ones for storage);
`nvidia-smi topo -m` of such machines in public (NPS4: GPUs on nodes 3, 1, 7, 5 alone; two GPUs
and two NICs PXB to each other, storage SYS to all); NVIDIA A100 whitepaper (12 NVLinks, two to
each NVSwitch).
"""

from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import NVSWITCHES, PEX_GEN4, ROME_PORT
from tests.compose.gpus import A100_SXM4_40, gpus
from tests.compose.hca_models import CONNECTX_6, on_ethernet
from tests.compose.hcas import in_order, infiniband, roce
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import compose, console, nvswitch_addresses
from tests.compose.pci_tree import Leaf, Port, Root, build, leaf, port, root, switch
from tests.compose.wiring import fabric, pairs

QUARTERS = (
    (0x00, 3, (0x07, 0x0F), (0x0C, 0x12)),
    (0x40, 1, (0x47, 0x4E), (0x4B, 0x54)),
    (0x80, 7, (0x87, 0x90), (0x8D, 0x94)),
    (0xB0, 5, (0xB7, 0xBD), (0xBA, 0xCC)),
)
"""Host bridge, its NUMA node, two GPUs, two NICs."""

STORAGE = ((0x60, 0), (0xE0, 4))
"""Host bridge and NUMA node of each dual-port adapter."""

NVSWITCH_BUSES = range(0xC4, 0xCA)


def machine() -> Machine:
    """Return the description."""
    cpus = host(
        processors.EPYC_7742, sockets=2, nodes_per_socket=4, memory_mib=128_900, distances=(12, 32)
    )
    tree = build(
        cpus,
        console(model=ROME_PORT, bus=0x20, node=2),
        *(_quarter(number) for number in range(4)),
        *(_storage(at) for at in range(2)),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(A100_SXM4_40, tree, cpus, series=0xDA1)
    nvlinks = fabric(found, nvswitch_addresses(tree), (2,) * 6, version=3)
    compute, storage = (0, 1, 2, 3, 6, 7, 8, 9), (4, 5, 10, 11)
    return compose(
        shape="a100x8-nvswitch-8numa-10cx6",
        name="dgx-a100",
        product_name="DGXA100 920-23687-2530-000",
        description="8x A100 SXM4, 6 NVSwitch, 2 sockets in NPS4, 10 ConnectX-6",
        sources=(
            "NVIDIA DGX A100 User Guide: hardware overview, network connections",
            "NVIDIA A100 Tensor Core GPU architecture whitepaper",
            "`nvidia-smi topo -m` of DGX A100 machines in public",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=in_order(
            *(
                infiniband(
                    f"mlx5_{name}", place, CONNECTX_6, number=name, netdev=f"ibp{place.pci.bus}s0"
                )
                for name, place in zip(compute, tree.named("nic"), strict=True)
            ),
            *(
                roce(
                    f"mlx5_{name}",
                    place,
                    CONNECTX_6,
                    number=name,
                    netdev=f"enp{place.pci.bus}s0f{place.pci.function}np{place.pci.function}",
                    address=f"10.0.3.{name}",
                )
                for name, place in zip(storage, tree.named("storage"), strict=True)
            ),
        ),
    )


def _quarter(number: int) -> Root:
    """Return a host bridge whose switch has a switch for each of two GPUs and two NICs."""
    bus, node, gpu_buses, nic_buses = QUARTERS[number]
    slots = [
        _slot(leaf(f"gpu{2 * number}", A100_SXM4_40.card), gpu_buses[0]),
        _slot(leaf(f"nic{2 * number}", CONNECTX_6.card), nic_buses[0]),
        _slot(leaf(f"gpu{2 * number + 1}", A100_SXM4_40.card), gpu_buses[1]),
        _slot(leaf(f"nic{2 * number + 1}", CONNECTX_6.card), nic_buses[1]),
    ]
    ports = [port(switch(PEX_GEN4, *slots))]
    if number == 3:
        first = NVSWITCH_BUSES[0]
        nvswitches = (
            port(leaf(f"nvswitch{at}", NVSWITCHES[2]), bus=it)
            for at, it in enumerate(NVSWITCH_BUSES)
        )
        ports.append(port(switch(PEX_GEN4, *nvswitches, bus=first - 1), bus=first - 2))
    return root(bus, *ports, model=ROME_PORT, node=node)


def _slot(card: Leaf, bus: int) -> Port:
    return port(switch(PEX_GEN4, port(card, bus=bus), bus=bus - 1), bus=bus - 2)


def _storage(at: int) -> Root:
    bus, node = STORAGE[at]
    card = on_ethernet(CONNECTX_6)
    functions = (leaf(f"storage{2 * at + each}", card, function=each) for each in range(2))
    return root(bus, port(*functions), model=ROME_PORT, node=node)
