"""HGX B200: 8 GPUs on NVSwitches that are no PCI functions, 2 sockets, 8 ConnectX-7 for jobs.

Sources: NVIDIA HGX B200 and DGX B200 User Guides (18 NVLinks, 2 x Xeon Platinum 8570, one
ConnectX-7 for each GPU); NVIDIA Fabric Manager User Guide (Fabric Manager reaches the NVSwitches
through ConnectX-7 functions whose VPD says ``SMDL=SW_MNG``; of a card's functions not all do);
`nvidia-smi -q` of a B200 in public: fabric completed, cluster UUID all zero, clique 0;
`nvidia-smi topo -m` in public: four functions PIX to each other before the eight for jobs, each
of which is PXB to its GPU.
"""

from msgspec.structs import replace

from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import PEX_GEN5, SAPPHIRE_RAPIDS_PORT
from tests.compose.gpus import B200, LOCAL_FABRIC, gpus
from tests.compose.hca_models import CONNECTX_7, MANAGEMENT_CONNECTX_7
from tests.compose.hcas import in_order, infiniband
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import compose, console
from tests.compose.pci_tree import Root, build, leaf, port, root, switch
from tests.compose.wiring import HIDDEN, fabric, pairs

ROOTS = (0x15, 0x3D, 0x4C, 0x5B, 0x97, 0xBD, 0xCB, 0xD9)
"""Bus of the host bridge above each GPU."""

MANAGEMENT_FUNCTIONS = 4
HEALTH = 2 << 6
"""Health mask: no access timeout recovery, everything else not supported (nvml.h
NVML_GPU_FABRIC_HEALTH_MASK_*: two bits each, 2 is false)."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.XEON_8570, sockets=2, memory_mib=1_031_000)
    management = (
        leaf(f"management{function}", MANAGEMENT_CONNECTX_7.card, function=function)
        for function in range(MANAGEMENT_FUNCTIONS)
    )
    tree = build(
        cpus,
        console(port(*management, device=0x1E, bus=5), model=SAPPHIRE_RAPIDS_PORT),
        *(_rail(index) for index in range(8)),
        iommu=IommuType.IDENTITY,
    )
    local = replace(LOCAL_FABRIC, health_mask=HEALTH)
    found = gpus(B200, tree, cpus, series=0xB200, fabric=local)
    nvlinks = fabric(found, (HIDDEN,), (18,), version=5)
    hcas = in_order(
        *(
            infiniband(f"mlx5_{at}", place, MANAGEMENT_CONNECTX_7, number=at)
            for at, place in enumerate(tree.named("management"))
        ),
        *(
            infiniband(f"mlx5_{at}", place, CONNECTX_7, number=at, netdev=f"ibp{place.pci.bus}s0")
            for at, place in enumerate(tree.named("nic"), MANAGEMENT_FUNCTIONS)
        ),
    )
    return compose(
        shape="b200x8-nvswitch-2numa-8cx7",
        name="hgx-b200",
        product_name="HGX B200",
        description="8x B200 SXM, NVSwitch, 2 sockets, 8 ConnectX-7",
        sources=(
            "NVIDIA DGX B200 User Guide: hardware overview",
            "NVIDIA Fabric Manager User Guide: NVIDIA HGX B200, LPFs and FC PFs",
            "`nvidia-smi -q` and `topo -m` of HGX B200 machines in public",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=hcas[MANAGEMENT_FUNCTIONS:],
        management_hcas=hcas[:MANAGEMENT_FUNCTIONS],
    )


def _rail(index: int) -> Root:
    """Return a host bridge with a switch: on it the NIC, and a second switch with the GPU."""
    gpu = switch(PEX_GEN5, leaf(f"gpu{index}", B200.card))
    below = port(switch(PEX_GEN5, leaf(f"nic{index}", CONNECTX_7.card), gpu))
    return root(ROOTS[index], below, model=SAPPHIRE_RAPIDS_PORT, node=index // 4)
