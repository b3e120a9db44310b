"""A VM with 8 V100 in a hybrid cube mesh, all on one PCI bus without a NUMA node.

Sources: `nvidia-smi topo -m` of such a VM (likejazz/likejazz.github.io, _wiki/NVIDIA.md): the
cube mesh of DGX-1, PHB for every other pair, CPU affinity 0-63 and NUMA affinity 0-1 for every
GPU, no column "GPU NUMA ID", so a driver before 535. The guest thus has two NUMA nodes, and its
firmware puts no PCI function on either: sysfs prints -1 and names every CPU as near (kernel
drivers/pci/pci-sysfs.c). "1numa" in the name counts what the GPUs show. QEMU numbers the threads
of a core in a row, and without a bridge each GPU is a device of bus 0.
"""

from msgspec.structs import replace

from nodetopo.model.gpu import Gpu, Virtualization
from nodetopo.model.nvlink import P2pStatus
from tests.compose import processors
from tests.compose.cards import SKYLAKE_PORT
from tests.compose.dgx_1v import LINKS
from tests.compose.gpus import V100_SXM2, gpus
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, PARAMETERS, Software, compose
from tests.compose.pci_tree import build, leaf, root
from tests.compose.wiring import mesh, pairs

FIRST_DEVICE = 5
BOTH_NODES = (0, 1)


def machine() -> Machine:
    """Return the description."""
    vcpus = replace(
        processors.XEON_8168, cores=16, threads=2, cores_per_l3=16, are_threads_adjacent=True
    )
    cpus = host(vcpus, sockets=2, memory_mib=257_600, governor=None, is_virtual=True)
    cards = (leaf(f"gpu{at}", V100_SXM2.card, device=FIRST_DEVICE + at) for at in range(8))
    tree = build(cpus, root(0, *cards, model=SKYLAKE_PORT, node=None))
    assigned = gpus(
        V100_SXM2,
        tree,
        cpus,
        series=0xF1B,
        affinity=dict.fromkeys(range(8), BOTH_NODES),
        virtualization=Virtualization.PASSTHROUGH,
    )
    found = tuple(_as_old_nvml_tells(gpu) for gpu in assigned)
    nvlinks = mesh(found, LINKS, version=2)
    return compose(
        shape="v100x8-vm-phb-2numa",
        name=None,
        product_name="Standard PC (i440FX + PIIX, 1996)",
        description="VM, 8x V100 SXM2 in a hybrid cube mesh on one PCI bus, NUMA node unknown",
        sources=(
            "`nvidia-smi topo -m` of a VM: likejazz/likejazz.github.io, _wiki/NVIDIA.md",
            "NVIDIA DGX-1 with Tesla V100 System Architecture whitepaper WP-08437-002",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks, far=P2pStatus.CHIPSET_NOT_SUPPORTED),
        software=Software(
            driver="470.57.02",
            nvml="11.470.57.02",
            cuda=(11, 4),
            is_open=False,
            kernel="5.4.0-80-generic",
            command_line="BOOT_IMAGE=/boot/vmlinuz-5.4.0-80-generic root=/dev/vda1 ro",
            modules=NVIDIA_MODULES,
            numa_balancing="1",
            parameters={name: PARAMETERS[name] for name in ("NvLinkDisable", "RegistryDwords")},
        ),
    )


def _as_old_nvml_tells(gpu: Gpu) -> Gpu:
    """Return *gpu* as driver 470 describes it.

    It knows no recovery action; the board's id counts the device, as `nvidia-smi -q` of GPUs on
    bus 0 in public shows (0x4 for 00:04.0), and tells GPUs of one bus apart.
    """
    assert gpu.pci is not None
    assert gpu.board_id is not None
    return replace(gpu, recovery_action=None, board_id=gpu.board_id | gpu.pci.device)
