"""A PCIe server with 8 RTX PRO 6000 in pairs below four switches, 2 sockets, no NVLink, no HCA.

Sources: `nvidia-smi topo -m` of an ASUS ESC8000A-E13P in public (2 x 64 cores; PIX inside a
pair, NODE between the pairs of a socket, SYS across); ASUS ESC8000A-E13P product page (EPYC
9005, eight dual-slot cards behind Broadcom PCIe 5 switches); RTX PRO 6000 Blackwell Server
Edition data sheet (96 GB, PCIe 5.0 x16, no NVLink). That capture lists the CPUs of socket 1
only up to 238, of 255; all are online here.
"""

from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import GENOA_PORT, PEX_GEN5
from tests.compose.gpus import gpus
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, Software, compose, console
from tests.compose.pci_tree import Root, build, leaf, port, root, switch
from tests.compose.pcie_gpus import RTX_PRO_6000
from tests.compose.wiring import pairs

ROOTS = (0x00, 0x40, 0x80, 0xC0)
"""Bus of the host bridge above each switch."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.EPYC_9575F, sockets=2, memory_mib=773_500, distances=(12, 32))
    tree = build(
        cpus,
        *(_pair(number) for number in range(4)),
        console(model=GENOA_PORT, bus=0x60),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(RTX_PRO_6000, tree, cpus, series=0x6008)
    return compose(
        shape="rtxpro6000x8-pcie-4switch-2numa",
        name="rtxpro6000-pcie-8",
        product_name="ESC8000A-E13P",
        description="8x RTX PRO 6000 Blackwell in pairs below 4 PCIe switches, 2 sockets, no HCA",
        sources=(
            "`nvidia-smi topo -m` of an ASUS ESC8000A-E13P in public",
            "ASUS ESC8000A-E13P product page",
            "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        pairs=pairs(found, ()),
        software=Software(modules=NVIDIA_MODULES),
    )


def _pair(number: int) -> Root:
    """Return a host bridge with a switch and two GPUs on it."""
    first, second = (leaf(f"gpu{2 * number + at}", RTX_PRO_6000.card) for at in range(2))
    below = port(switch(PEX_GEN5, first, second))
    return root(ROOTS[number], below, model=GENOA_PORT, node=number // 2)
