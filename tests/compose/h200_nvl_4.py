"""4 H200 NVL joined by a four-way NVLink bridge, 2 Turin sockets of four NUMA nodes each.

Sources: `nvidia-smi topo -m` of such a machine in public (2 x 64 cores, NPS4: nodes of 16 cores;
NV6 between any two; GPUs on nodes 1, 2, 6, 7, so nodes 0, 3, 4, 5 own none); NVIDIA H200 NVL
product brief (141 GB, 18 NVLinks, two- and four-way bridges); AMD EPYC 9005 BIOS tuning guide
(NPS4; distances 10, 12, 32).
"""

from itertools import combinations

from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import GENOA_PORT
from tests.compose.gpus import gpus
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, Software, compose, console
from tests.compose.pci_tree import build, leaf, port, root
from tests.compose.pcie_gpus import H200_NVL
from tests.compose.wiring import mesh, pairs

PLACES = ((0x00, 1), (0x40, 2), (0x80, 6), (0xC0, 7))
"""Bus of the host bridge above each GPU, and its NUMA node."""

NV6 = dict.fromkeys(combinations(range(4), 2), 6)


def machine() -> Machine:
    """Return the description."""
    cpus = host(
        processors.EPYC_9575F,
        sockets=2,
        nodes_per_socket=4,
        memory_mib=193_400,
        distances=(12, 32),
    )
    tree = build(
        cpus,
        *(
            root(bus, port(leaf(f"gpu{index}", H200_NVL.card)), model=GENOA_PORT, node=node)
            for index, (bus, node) in enumerate(PLACES)
        ),
        console(model=GENOA_PORT, bus=0x20),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(H200_NVL, tree, cpus, series=0x2004)
    nvlinks = mesh(found, NV6, version=4)
    return compose(
        shape="h200x4-nvbridge-8numa",
        name="h200-nvl-4",
        product_name="ThinkSystem SR675 V3",
        description="4x H200 NVL with a four-way bridge, 2 sockets in NPS4, no HCA",
        sources=(
            "`nvidia-smi topo -m` of such a machine in public",
            "NVIDIA H200 NVL product brief",
            "AMD EPYC 9005 BIOS and workload tuning guide",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        software=Software(modules=NVIDIA_MODULES),
    )
