"""A PCIe server with 6 A100 40 GB whose NVLink bridges do not follow the sockets, and one HCA.

Sources: `nvidia-smi topo -m` of such a machine in public (2 x 28 cores; NV12 between GPU0 and
GPU3 across the sockets, GPU1 and GPU2, GPU4 and GPU5; NODE inside a socket; one HCA, NODE to
the GPUs of socket 0); NVIDIA A100 PCIe product brief (bridges join two cards). A rule that
looks at NUMA nodes before links picks a worse pair than the bridge here.
"""

from nodetopo.model.pci import IommuType
from tests.compose.gpus import gpus
from tests.compose.hcas import CONNECTX_6, in_order, infiniband
from tests.compose.host import host
from tests.compose.ice_lake import ICE_LAKE_PORT, XEON_6330
from tests.compose.machine import Machine
from tests.compose.parts import compose, console
from tests.compose.pci_tree import build, leaf, port, root
from tests.compose.pcie_gpus import A100_BRIDGE_LINKS, A100_PCIE_40
from tests.compose.wiring import mesh, pairs

ROOTS = (0x16, 0x30, 0x4A, 0x97, 0xB0, 0xC9)
"""Bus of the host bridge above each GPU."""

NIC_ROOT = 0x64
BRIDGED = dict.fromkeys(((0, 3), (1, 2), (4, 5)), A100_BRIDGE_LINKS)


def machine() -> Machine:
    """Return the description."""
    cpus = host(XEON_6330, sockets=2, memory_mib=257_500, distances=(10, 20))
    tree = build(
        cpus,
        console(model=ICE_LAKE_PORT),
        *(
            root(
                bus,
                port(leaf(f"gpu{index}", A100_PCIE_40.card), device=2),
                model=ICE_LAKE_PORT,
                node=index // 3,
            )
            for index, bus in enumerate(ROOTS)
        ),
        root(NIC_ROOT, port(leaf("nic0", CONNECTX_6.card), device=2), model=ICE_LAKE_PORT),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(A100_PCIE_40, tree, cpus, series=0xA106)
    nvlinks = mesh(found, BRIDGED, version=3)
    nic = infiniband("mlx5_0", tree["nic0"], CONNECTX_6, number=0, netdev="ibp101s0")
    return compose(
        shape="a100x6-pcie-bridged-crosssocket",
        name=None,
        product_name="SYS-420GP-TNR",
        description="6x A100 40 GB PCIe, a bridge of three across sockets, 1 ConnectX-6",
        sources=(
            "`nvidia-smi topo -m` of such a machine in public",
            "NVIDIA A100 PCIe GPU product brief",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=in_order(nic),
    )
