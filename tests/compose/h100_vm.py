"""A cloud VM with 8 H100: every GPU and every InfiniBand function in a PCI domain of its own.

Sources: Microsoft's page of the ND H100 v5 series (96 vCPUs, 1900 GiB, 8 H100, 8 x 400 Gb/s
InfiniBand) and its NCCL topology file in Azure/azhpc-images, ndv5-topo.xml: the PCI addresses,
48 vCPUs and four GPUs on each of two NUMA nodes. `ibstat` of such VMs in public: MT4126, the
type of a ConnectX-7 virtual function. A guest sees no bridges and no `physfn`, so a virtual
function looks like a physical one; hypervisors hide link speeds ("Unknown"), and NVSwitches
behind the sentinel address. GPU and NIC pairs that share a switch of the host are not to be
told from others: `topo -m` prints NODE and SYS only.
"""

from msgspec.structs import replace

from nodetopo.model.gpu import Gpu, Virtualization
from nodetopo.model.pci import PcieLink
from tests.compose import processors
from tests.compose.cards import SAPPHIRE_RAPIDS_PORT, link
from tests.compose.gpus import H100, LOCAL_FABRIC, gpus
from tests.compose.hcas import CONNECTX_7, INFINIBAND, VIRTUAL_FUNCTION, in_order, infiniband
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, RDMA_MODULES, Software, compose
from tests.compose.pci_tree import Root, build, leaf, root
from tests.compose.wiring import HIDDEN, fabric, pairs

GPU_DOMAINS = (0x1, 0x2, 0x3, 0x8, 0x9, 0xA, 0xB, 0xC)
HCA_DOMAINS = range(0x101, 0x109)

SPEEDS_UNKNOWN = PcieLink(width=16, max_width=16)
GPU_CARD = replace(H100.card, link=SPEEDS_UNKNOWN)
VF = replace(
    CONNECTX_7,
    card=replace(VIRTUAL_FUNCTION, pci_class=INFINIBAND, link=SPEEDS_UNKNOWN, is_virtual=False),
    hca_type="MT4126",
    board_id="MSF0000000000",
    firmware="28.37.1014",
    oui="0015:5dff",
)


def machine() -> Machine:
    """Return the description."""
    vcpus = replace(processors.XEON_8480C, cores=48, threads=1, cores_per_l3=48)
    cpus = host(vcpus, sockets=2, memory_mib=950_000, governor=None, is_virtual=True)
    tree = build(cpus, *(_gpu(index) for index in range(8)), *(_hca(at) for at in range(8)))
    assigned = gpus(
        H100,
        tree,
        cpus,
        series=0xD5,
        fabric=LOCAL_FABRIC,
        virtualization=Virtualization.PASSTHROUGH,
    )
    found = tuple(_as_nvml_sees(gpu) for gpu in assigned)
    nvlinks = fabric(found, (HIDDEN,), (18,), version=4)
    return compose(
        shape="h100x8-vm-2numa-8vf",
        name="h100-vm-8",
        product_name="Virtual Machine",
        description="cloud VM, 8x H100 SXM, 2 NUMA nodes, 8 InfiniBand virtual functions",
        sources=(
            "Microsoft Learn: ND H100 v5 series",
            "Azure/azhpc-images topology/ndv5-topo.xml",
            "`ibstat` of Azure VMs: leptonai/gpud, infiniband/testdata",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=in_order(
            *(
                infiniband(f"mlx5_ib{at}", place, VF, number=at, netdev=f"ib{at}")
                for at, place in enumerate(tree.named("nic"))
            ),
        ),
        software=Software(
            kernel="6.8.0-1025-azure",
            command_line="BOOT_IMAGE=/boot/vmlinuz-6.8.0-1025-azure root=/dev/sda1 ro",
            modules=(*NVIDIA_MODULES, *RDMA_MODULES, "hv_vmbus", "nvidia_peermem", "pci_hyperv"),
            numa_balancing="1",
        ),
    )


def _gpu(index: int) -> Root:
    """Return the host bridge that the hypervisor makes for one GPU."""
    gpu = leaf(f"gpu{index}", GPU_CARD)
    return root(0, gpu, model=SAPPHIRE_RAPIDS_PORT, node=index // 4, domain=GPU_DOMAINS[index])


def _hca(at: int) -> Root:
    nic = leaf(f"nic{at}", VF.card)
    return root(0, nic, model=SAPPHIRE_RAPIDS_PORT, node=at // 4, domain=HCA_DOMAINS[at])


def _as_nvml_sees(gpu: Gpu) -> Gpu:
    """Return *gpu* with the link that it reports itself, which no hypervisor filters."""
    return replace(gpu, pcie=link(5))
