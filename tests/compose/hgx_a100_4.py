"""HGX A100 4-GPU ("Redstone"): 4 GPUs linked directly, one EPYC with four NUMA nodes, 2 NICs.

Sources: ALCF Polaris documentation (HPE Apollo 6500 Gen10 Plus: EPYC 7543P, 512 GB, 4 A100,
two network adapters; GPU bus numbers 07, 46, 85, c7); `nvidia-smi topo -m` of such machines in
public: NV4 between all, GPU0 on NUMA node 3 and GPU3 on node 0, each NIC PHB to one GPU.
The adapters here are InfiniBand ones, as in other machines with this board.
"""

from itertools import combinations

from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import ROME_PORT
from tests.compose.gpus import A100_SXM4_40, gpus
from tests.compose.hca_models import CONNECTX_6
from tests.compose.hcas import in_order, infiniband
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import compose, console
from tests.compose.pci_tree import build, leaf, port, root
from tests.compose.wiring import mesh, pairs

NV4 = dict.fromkeys(combinations(range(4), 2), 4)


def machine() -> Machine:
    """Return the description."""
    cpus = host(
        processors.EPYC_7543P, sockets=1, nodes_per_socket=4, memory_mib=128_800, distances=(12, 32)
    )
    card, nic = A100_SXM4_40.card, CONNECTX_6.card
    tree = build(
        cpus,
        root(0x00, port(leaf("gpu0", card), bus=0x07), model=ROME_PORT, node=3),
        root(
            0x40,
            port(leaf("nic0", nic), bus=0x41),
            port(leaf("gpu1", card), device=3, bus=0x46),
            model=ROME_PORT,
            node=2,
        ),
        console(port(leaf("gpu2", card), device=1, bus=0x85), model=ROME_PORT, bus=0x80, node=1),
        root(
            0xC0,
            port(leaf("nic1", nic), bus=0xC1),
            port(leaf("gpu3", card), device=3, bus=0xC7),
            model=ROME_PORT,
            node=0,
        ),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(A100_SXM4_40, tree, cpus, series=0xDA4)
    nvlinks = mesh(found, NV4, version=3)
    return compose(
        shape="a100x4-nv4-4numa-2cx",
        name="hgx-a100-4",
        product_name="ProLiant XL645d Gen10 Plus",
        description="4x A100 SXM4 with 4 NVLinks between any two, 1 socket in NPS4, 2 ConnectX-6",
        sources=(
            "ALCF Polaris documentation: hardware overview, GPU and NUMA affinity",
            "NVIDIA HGX A100 4-GPU: NVIDIA A100 whitepaper",
            "`nvidia-smi topo -m` of such machines in public",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=in_order(
            *(
                infiniband(f"mlx5_{at}", place, CONNECTX_6, number=at, netdev=f"ib{at}")
                for at, place in enumerate(tree.named("nic"))
            ),
        ),
    )
