"""4 A100 PCIe without bridges on a machine with sub-NUMA clustering: 2 sockets, 4 NUMA nodes.

Sources: Dell PowerEdge R750xa technical guide (four double-width cards, two a socket, each on
its own root port); Intel Xeon Scalable, third generation: sub-NUMA clustering in two domains
(SNC2); Intel ARK for Xeon Gold 6338. The kernel's distances with SNC2 are 10 to the node itself,
12 inside the socket, 21 across (ACPI SLIT of such machines in public). The level-3 cache stays
one for each socket (kernel arch/x86/kernel/smpboot.c on SNC).
"""

from nodetopo.model.pci import IommuType
from tests.compose.gpus import gpus
from tests.compose.host import host
from tests.compose.ice_lake import ICE_LAKE_PORT, XEON_6338
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, Software, compose, console
from tests.compose.pci_tree import build, leaf, port, root
from tests.compose.pcie_gpus import A100_PCIE_80
from tests.compose.wiring import pairs

ROOTS = (0x16, 0x4A, 0x97, 0xC9)
"""Bus of the host bridge above each GPU; each is in another half of a socket."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(XEON_6338, sockets=2, nodes_per_socket=2, memory_mib=128_700, distances=(12, 21))
    tree = build(
        cpus,
        console(model=ICE_LAKE_PORT),
        *(
            root(
                bus,
                port(leaf(f"gpu{index}", A100_PCIE_80.card), device=2),
                model=ICE_LAKE_PORT,
                node=index,
            )
            for index, bus in enumerate(ROOTS)
        ),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(A100_PCIE_80, tree, cpus, series=0xA1C2)
    return compose(
        shape="a100x4-snc2-4numa",
        name=None,
        product_name="PowerEdge R750xa",
        description="4x A100 80 GB PCIe, no NVLink, 2 sockets in SNC2, no HCA",
        sources=(
            "Dell PowerEdge R750xa technical guide",
            "Intel Xeon Scalable, third generation: sub-NUMA clustering",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        pairs=pairs(found, ()),
        software=Software(modules=NVIDIA_MODULES),
    )
