"""DGX Station GB300: one Grace, its GPU and an RTX PRO beside it, a ConnectX-8 with Data Direct.

Sources: `nvidia-smi topo -m` of such a machine in public (72 CPUs; NUMA affinity 0,2-8 of both
GPUs; GPU NUMA ID N/A and 1; the two ports of the adapter PIX to each other; Data Direct PXB to
the GB300, SYS to the rest); NVIDIA DGX Station page (252 GB HBM3e, 496 GB LPDDR5X, ConnectX-8) and
development guide (memory of the GB300 is a node, that of the RTX PRO is not); rdma-core's
`rdma_topo` (ACS flags; one IOMMU group below the root port of the GPU); `nvidia-smi -q` of
GB300 in public (PCI ids, PCIe 6 x16, bus 06 of its domain).
"""

from msgspec.structs import replace

from nodetopo.model.gpu import C2c, Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.nvlink import Closeness, P2pStatus
from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import GRACE_PORT, card, link
from tests.compose.gpus import CLASS_3D, GpuModel, gpus, uuid
from tests.compose.hcas import CONNECTX_8, DATA_DIRECT, data_direct, in_order, on_ethernet, roce
from tests.compose.host import Host, host, with_memory_nodes
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, RDMA_MODULES, Software, compose
from tests.compose.pci_tree import BridgeModel, PciTree, Root, build, leaf, port, root, switch
from tests.compose.pcie_gpus import RTX_PRO_6000_MAX_Q
from tests.compose.wiring import pairs

SERIES = 0x6B3
GB300 = GpuModel(
    product="NVIDIA GB300",
    architecture="blackwell",
    compute_capability=(10, 3),
    memory_mib=252 * 1024,
    card=card("10de:31c2:10de:21f1", CLASS_3D, link(6), driver="nvidia"),
    vbios="97.10.4A.00.1A",
)
PORT = replace(CONNECTX_8, card=on_ethernet(CONNECTX_8), rate_gbps=400.0)
ADAPTER_SWITCH = BridgeModel(vendor="15b3", device="197c", link=link(6))
"""The switch inside a ConnectX-8."""

ISOLATED, ABOVE_BOTH, TO_DATA_DIRECT, TO_GPU = 0x1D, 0x1C, 0x19, 0x15
"""ACS control registers: what Linux sets, and what Data Direct needs (rdma-core, rdma_topo)."""

AFFINITY = (0, *range(2, 9))
"""The CPU's node, and those for MIG instances of the GB300, which are empty; 1 is its memory."""

C2C = C2c(is_enabled=True, links=5, speed_mbps=89_424)


def machine() -> Machine:
    """Return the description."""
    cpus = _host()
    tree = build(cpus, _nic(), _rtx(), _gb300(), iommu=IommuType.IDENTITY, acs=ISOLATED)
    tree = tree.in_one_group("dd0", "gb0")
    found = _both(tree, cpus)
    hcas = _ports(tree)
    return compose(
        shape="gb300x2-station-1grace-datadirect",
        name=None,
        product_name="NVIDIA DGX Station GB300",
        description="DGX Station: GB300 on Grace, RTX PRO 6000, ConnectX-8 with Data Direct",
        sources=(
            "`nvidia-smi topo -m` of such a machine, and `nvidia-smi -q` of GB300, in public",
            "NVIDIA DGX Station product page and development guide",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        pairs=pairs(found, (), all_are=Closeness.SYS, far=P2pStatus.NOT_SUPPORTED),
        hcas=hcas,
        data_directs=(data_direct(tree["dd0"], *(hca.name for hca in hcas)),),
        software=Software(
            kernel="6.14.0-1012-nvidia-64k",
            machine="aarch64",
            command_line="BOOT_IMAGE=/boot/vmlinuz-6.14.0-1012-nvidia-64k root=/dev/nvme0n1p2 ro"
            " iommu.passthrough=1 init_on_alloc=0",
            modules=(*NVIDIA_MODULES, *RDMA_MODULES),
        ),
    )


def _host() -> Host:
    base = host(processors.GRACE, sockets=1, memory_mib=489_600)
    memory = {node: GB300.memory_mib if node == 1 else 0 for node in range(1, 9)}
    near = {(0, node): 80 for node in memory}
    return with_memory_nodes(base, memory_mib=memory, distance_to=near, default=255)


def _nic() -> Root:
    ports = (leaf(f"nic{at}", PORT.card, function=at) for at in range(2))
    below = port(switch(ADAPTER_SWITCH, port(*ports)), device=0)
    return root(0, below, model=GRACE_PORT, domain=0)


def _rtx() -> Root:
    below = port(leaf("rtx0", RTX_PRO_6000_MAX_Q.card), device=0)
    return root(0, below, model=GRACE_PORT, domain=5)


def _gb300() -> Root:
    """Return the root of the GPU: it and Data Direct hang on the adapter's switch."""
    gpu = port(switch(ADAPTER_SWITCH, leaf("gb0", GB300.card)), acs=TO_GPU)
    direct = port(leaf("dd0", DATA_DIRECT), acs=TO_DATA_DIRECT)
    below = port(switch(ADAPTER_SWITCH, direct, gpu), device=0, acs=ABOVE_BOTH)
    return root(0, below, model=GRACE_PORT, domain=8)


def _both(tree: PciTree, cpus: Host) -> tuple[Gpu, Gpu]:
    (rtx,) = gpus(
        RTX_PRO_6000_MAX_Q, tree, cpus, series=SERIES, prefix="rtx", affinity={0: AFFINITY}
    )
    (gb300,) = gpus(
        GB300,
        tree,
        cpus,
        series=SERIES,
        prefix="gb",
        affinity={0: AFFINITY},
        memory_nodes=(1,),
        c2c=C2C,
    )
    serial = f"{gb300.serial}1"
    return rtx, replace(gb300, index=1, minor=1, uuid=uuid(SERIES, 1), serial=serial)


def _ports(tree: PciTree) -> tuple[Hca, ...]:
    """Return both ports, whose system image GUID is the card's."""
    first, second = (
        roce(
            f"mlx5_{at}",
            place,
            PORT,
            number=at,
            netdev=f"enp3s0f{at}np{at}",
            address=f"10.8.0.{at + 1}",
        )
        for at, place in enumerate(tree.named("nic"))
    )
    return in_order(first, replace(second, sys_image_guid=first.sys_image_guid))
