"""An edge box: one L4, one socket, one NUMA node, no HCA.

Sources: Lenovo ThinkEdge SE450 product guide (one third-generation Xeon Scalable, up to 1 TB,
L4 supported); NVIDIA L4 product brief; `nvidia-smi topo -m` of machines with one GPU (one cell,
NUMA affinity 0, GPU NUMA ID N/A).
"""

from tests.compose.gpus import gpus
from tests.compose.host import host
from tests.compose.ice_lake import ICE_LAKE_PORT, XEON_4314
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, Software, compose, console
from tests.compose.pci_tree import build, leaf, port, root
from tests.compose.pcie_gpus import L4


def machine() -> Machine:
    """Return the description."""
    cpus = host(XEON_4314, sockets=1, memory_mib=128_500, governor="schedutil")
    tree = build(
        cpus,
        console(model=ICE_LAKE_PORT),
        root(0x89, port(leaf("gpu0", L4.card), device=2), model=ICE_LAKE_PORT),
    )
    return compose(
        shape="l4x1-1numa",
        name=None,
        product_name="ThinkEdge SE450",
        description="1x L4, 1 socket, no HCA",
        sources=(
            "Lenovo ThinkEdge SE450 product guide",
            "NVIDIA L4 GPU product brief",
        ),
        host=cpus,
        tree=tree,
        gpus=gpus(L4, tree, cpus, series=0x401),
        software=Software(
            command_line="BOOT_IMAGE=/vmlinuz-6.8.0-60-generic root=/dev/sda2 ro",
            modules=NVIDIA_MODULES,
            transparent_hugepages="always",
        ),
    )
