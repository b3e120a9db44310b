"""A compute tray of GB200 NVL72: 2 Grace, 4 GPUs of a 72-GPU NVLink domain, 4 ConnectX-7.

Sources: NVIDIA GB200 NVL72 user guide and `nvidia-smi -q` of a tray in public (product, memory,
module numbers, fabric completed in a clique of a real cluster, C2C enabled); `nvidia-smi topo
-m` of one in public (34 NUMA ids: two with CPUs, eight for each GPU of which the first is its
memory, 2, 10, 18, 26; every NIC SYS to every GPU; the ports of each BlueField-3 PIX to each
other); NVIDIA Grace tuning guide (pages of 64 KiB, PCI domains); public listings of such trays
(GPUs at 0008:01, 0009:01, 0018:01, 0019:01; NICs at 0000:03, 0002:03, 0010:03, 0012:03).
"""

from msgspec.structs import replace

from nodetopo.model.gpu import C2c, Fabric, FabricState
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import GRACE_PORT, link
from tests.compose.gpus import GB200, gpus
from tests.compose.hca_models import BLUEFIELD_3, on_ethernet
from tests.compose.hca_models import CONNECTX_7 as ANY_CONNECTX_7
from tests.compose.hcas import in_order, infiniband, roce
from tests.compose.host import Host, host, with_memory_nodes
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, RDMA_MODULES, Software, compose
from tests.compose.pci_tree import BridgeModel, Leaf, Root, build, leaf, port, root, switch
from tests.compose.wiring import HIDDEN, fabric, pairs

NODES_PER_GPU = 8
"""One for the GPU's memory, the others for MIG instances (driver README, GPU memory as NUMA)."""

MEMORY_NODES = (2, 10, 18, 26)
OWN, OTHERS, BETWEEN = 80, 120, 255
"""Distances from a CPU node to the memory of its own GPUs and to that of the other Grace's, and
between GPUs."""

ADAPTER_SWITCH = BridgeModel(vendor="15b3", device="197b", link=link(5))
"""The switch inside a ConnectX-7 or BlueField-3."""

CONNECTX_7 = replace(ANY_CONNECTX_7, card=replace(ANY_CONNECTX_7.card, has_ats=False))
"""Without address translation, as rdma-core's `rdma_topo` demands of Grace."""

FULL_HEALTH = 2 | 2 << 2 | 2 << 4 | 2 << 6
"""Health mask: bandwidth not degraded, no route recovery, no unhealthy route, no access timeout
recovery (nvml.h NVML_GPU_FABRIC_HEALTH_MASK_*: two bits each, 2 is false)."""

CLIQUE = Fabric(
    state=FabricState.COMPLETED,
    status=0,
    cluster_uuid="6b0e1b2c-0000-4000-8000-000000000072",
    clique_id=2,
    health_mask=FULL_HEALTH,
)
C2C = C2c(is_enabled=True, links=5, speed_mbps=89_424)


def machine() -> Machine:
    """Return the description."""
    cpus = _host()
    tree = build(
        cpus,
        _adapter(0x0000, 0, leaf("nic0", CONNECTX_7.card)),
        _adapter(0x0002, 0, leaf("nic1", CONNECTX_7.card)),
        _adapter(0x0006, 0, *_bluefield(0)),
        _gpu(0x0008, 0),
        _gpu(0x0009, 1),
        _adapter(0x0010, 1, leaf("nic2", CONNECTX_7.card)),
        _adapter(0x0012, 1, leaf("nic3", CONNECTX_7.card)),
        _adapter(0x0016, 1, *_bluefield(1)),
        _gpu(0x0018, 2),
        _gpu(0x0019, 3),
        iommu=IommuType.IDENTITY,
    )
    affinity = {gpu: _affinity(gpu // 2) for gpu in range(4)}
    found = gpus(
        GB200,
        tree,
        cpus,
        series=0xB272,
        fabric=CLIQUE,
        c2c=C2C,
        memory_nodes=MEMORY_NODES,
        affinity=affinity,
        modules=(2, 1, 4, 3),
    )
    nvlinks = fabric(found, (HIDDEN,), (18,), version=5)
    return compose(
        shape="gb200x4-nvl72-34numa-4cx7",
        name="gb200-nvl72",
        product_name="GB200 NVL",
        description="4x GB200 of an NVL72 rack, 2 Grace, 4 ConnectX-7, 2 BlueField-3",
        sources=(
            "NVIDIA GB200 NVL72: product documentation and Grace performance tuning guide",
            "`nvidia-smi -q` and `topo -m` of GB200 trays in public",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks, all_are=Closeness.SYS),
        hcas=in_order(
            *(
                infiniband(
                    f"mlx5_{name}",
                    place,
                    CONNECTX_7,
                    number=name,
                    netdev=f"ibP{place.pci.domain}p3s0",
                )
                for name, place in zip((0, 1, 4, 5), tree.named("nic"), strict=True)
            ),
            *(
                roce(
                    f"mlx5_{name}",
                    place,
                    BLUEFIELD_3,
                    number=name,
                    netdev=f"enP{place.pci.domain}p3s0f{name % 2}np{name % 2}",
                    address=f"10.0.4.{name}",
                )
                for name, place in zip((2, 3, 6, 7), tree.named("storage"), strict=True)
            ),
        ),
        software=Software(
            kernel="6.8.0-1028-nvidia-64k",
            machine="aarch64",
            command_line="BOOT_IMAGE=/boot/vmlinuz-6.8.0-1028-nvidia-64k root=/dev/md0 ro"
            " iommu.passthrough=1 init_on_alloc=0 numa_balancing=disable",
            modules=(*NVIDIA_MODULES, *RDMA_MODULES),
            imex_channels=(0,),
        ),
    )


def _host() -> Host:
    """Return two CPU nodes and 32 without CPUs, of which four have a GPU's memory."""
    base = host(processors.GRACE, sockets=2, memory_mib=489_600, distances=(LOCAL, 40))
    empty = range(2, 2 + 4 * NODES_PER_GPU)
    memory = {node: GB200.memory_mib if node in MEMORY_NODES else 0 for node in empty}
    near = {
        (cpu, node): OWN if (node - 2) // (2 * NODES_PER_GPU) == cpu else OTHERS
        for cpu in range(2)
        for node in empty
    }
    return with_memory_nodes(base, memory_mib=memory, distance_to=near, default=BETWEEN)


LOCAL = 10


def _affinity(cpu: int) -> tuple[int, ...]:
    """Return the CPU node, and those of its two GPUs that no memory is in."""
    first = 2 + cpu * 2 * NODES_PER_GPU
    own = range(first, first + 2 * NODES_PER_GPU)
    return cpu, *(node for node in own if node not in MEMORY_NODES)


def _gpu(domain: int, index: int) -> Root:
    below = port(leaf(f"gpu{index}", GB200.card), device=0)
    return root(0, below, model=GRACE_PORT, node=index // 2, domain=domain)


def _adapter(domain: int, node: int, *functions: Leaf) -> Root:
    """Return a root complex with an adapter behind the switch that is a part of it."""
    below = port(switch(ADAPTER_SWITCH, port(*functions)), device=0)
    return root(0, below, model=GRACE_PORT, node=node, domain=domain)


def _bluefield(number: int) -> tuple[Leaf, ...]:
    card = on_ethernet(BLUEFIELD_3)
    return tuple(
        leaf(f"storage{2 * number + function}", card, function=function) for function in range(2)
    )
