"""A PCIe server with 4 A100 80 GB, joined in pairs by NVLink bridges, 2 sockets, no HCA.

Sources: `nvidia-smi topo -m` of such a machine in public (2 x Xeon 8470 of 52 cores; NV12
between GPU0 and GPU1 on node 0 and between GPU2 and GPU3 on node 1, SYS else); NVIDIA A100 80GB
PCIe product brief (three bridges join two cards, 600 GB/s both ways); Dell PowerEdge R760xa
technical guide (two double-width cards a socket, each on its own root port).
"""

from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import SAPPHIRE_RAPIDS_PORT
from tests.compose.gpus import gpus
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, Software, compose, console
from tests.compose.pci_tree import build, leaf, port, root
from tests.compose.pcie_gpus import A100_BRIDGE_LINKS, A100_PCIE_80
from tests.compose.wiring import mesh, pairs

BUSES = ((0x48, 0x4A), (0x5F, 0x61), (0xC8, 0xCA), (0xDF, 0xE1))
"""Of each host bridge and its GPU."""

BRIDGED = {(0, 1): A100_BRIDGE_LINKS, (2, 3): A100_BRIDGE_LINKS}


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.XEON_8470, sockets=2, memory_mib=515_000)
    tree = build(
        cpus,
        console(model=SAPPHIRE_RAPIDS_PORT),
        *(
            root(
                bridge,
                port(leaf(f"gpu{index}", A100_PCIE_80.card), bus=gpu),
                model=SAPPHIRE_RAPIDS_PORT,
                node=index // 2,
            )
            for index, (bridge, gpu) in enumerate(BUSES)
        ),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(A100_PCIE_80, tree, cpus, series=0xA104)
    nvlinks = mesh(found, BRIDGED, version=3)
    return compose(
        shape="a100x4-pcie-bridged-2numa",
        name="a100-pcie-4",
        product_name="PowerEdge R760xa",
        description="4x A100 80 GB PCIe, NVLink bridges in pairs, 2 sockets, no HCA",
        sources=(
            "`nvidia-smi topo -m` of such a machine in public",
            "NVIDIA A100 80GB PCIe GPU product brief",
            "Dell PowerEdge R760xa technical guide",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        software=Software(modules=NVIDIA_MODULES),
    )
