"""DGX H100: 8 GPUs on 4 NVSwitches, 2 sockets, one ConnectX-7 under each GPU's PCIe switch.

Sources: NVIDIA DGX H100/H200 User Guide (hardware overview, system topology: each GPU's own
NIC is one PCIe switch away, which `topo -m` prints as PXB; 2 x Xeon 8480C, 2 TB); NVIDIA
H100 datasheet (18 NVLinks); the links per NVSwitch are those of real NCCL topology dumps of
HGX H100 boards (5, 5, 4, 4). Bus numbers are typical of such boards, UUIDs and GUIDs are
invented.
"""

from msgspec.structs import replace

from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import NVSWITCHES, PEX_GEN5, SAPPHIRE_RAPIDS_PORT
from tests.compose.gpus import H100, LOCAL_FABRIC, gpus
from tests.compose.hca_models import CONNECTX_7
from tests.compose.hcas import in_order, infiniband
from tests.compose.host import host
from tests.compose.kubelet import AS_INSTALLED, SYSTEM_MEMORY_MIB
from tests.compose.machine import Machine
from tests.compose.parts import Software, compose, console, nvswitch_addresses
from tests.compose.pci_tree import Port, Root, build, leaf, port, root, switch
from tests.compose.wiring import fabric, pairs

ROOTS = (0x15, 0x3D, 0x4C, 0x5B, 0x97, 0xBD, 0xCB, 0xD9)
"""Bus of the host bridge above each GPU."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.XEON_8480C, sockets=2, memory_mib=1_031_000)
    tree = build(
        cpus,
        console(_nvswitches(), model=SAPPHIRE_RAPIDS_PORT),
        *(_rail(index) for index in range(8)),
        iommu=IommuType.IDENTITY,
    )
    found = gpus(H100, tree, cpus, series=0xD6C1, fabric=LOCAL_FABRIC)
    nvlinks = fabric(found, nvswitch_addresses(tree), (5, 5, 4, 4), version=4)
    return compose(
        shape="h100x8-nvswitch-2numa-8cx7",
        name="dgx-h100",
        product_name="DGXH100",
        description="8x H100 SXM, 4 NVSwitch, 2 sockets, 8 ConnectX-7",
        sources=(
            "NVIDIA DGX H100/H200 User Guide: hardware overview and system topology",
            "NVIDIA H100 Tensor Core GPU datasheet",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=in_order(
            *(
                infiniband(
                    f"mlx5_{number}",
                    place,
                    CONNECTX_7,
                    number=number,
                    netdev=f"ibp{place.pci.bus}s0",
                )
                for number, place in enumerate(tree.named("nic"))
            ),
        ),
        software=Software(modules=(*Software().modules, "gdrdrv")),
        kubelet=replace(
            AS_INSTALLED,
            cpu_manager_policy="static",
            cpu_manager_options={"full-pcpus-only": "true", "strict-cpu-reservation": "true"},
            memory_manager_policy="Static",
            topology_manager_policy="single-numa-node",
            reserved_system_cpus="0,56,112,168",
            system_reserved={"memory": f"{SYSTEM_MEMORY_MIB}Mi"},
        ),
        has_whole_cpu_tree=True,
    )


def _rail(index: int) -> Root:
    """Return a host bridge with a switch: on it the NIC, and a second switch with the GPU."""
    nic = leaf(f"nic{index}", CONNECTX_7.card)
    gpu = switch(PEX_GEN5, leaf(f"gpu{index}", H100.card))
    below = port(switch(PEX_GEN5, nic, gpu))
    return root(ROOTS[index], below, model=SAPPHIRE_RAPIDS_PORT, node=index // 4)


def _nvswitches() -> Port:
    slots = (port(leaf(f"nvswitch{at}", NVSWITCHES[3]), bus=7 + at) for at in range(4))
    return port(switch(PEX_GEN5, *slots), device=0x1D, bus=4)
