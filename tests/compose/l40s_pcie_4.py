"""A PCIe server with 4 L40S, each on a root port of its own, 2 sockets, no HCA, no NVLink.

Sources: NVIDIA L40S product brief (48 GB, PCIe Gen4 x16, no NVLink); Dell PowerEdge R760xa
technical guide (up to four double-width GPUs, two on each socket, attached without a PCIe
switch); Intel ARK for Xeon Gold 6448Y. Bus numbers are typical of that generation, UUIDs are
invented. ACS is on, as the kernel sets it where an IOMMU translates.
"""

from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import SAPPHIRE_RAPIDS_PORT
from tests.compose.gpus import L40S, gpus
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import NVIDIA_MODULES, Software, compose, console
from tests.compose.pci_tree import build, leaf, port, root
from tests.compose.wiring import pairs

BUSES = ((0x48, 0x4A), (0x5F, 0x61), (0xC8, 0xCA), (0xDF, 0xE1))
"""Of each host bridge and its GPU."""

REDIRECTS = 0x001D
"""ACS control: source validation, request and completion redirect, upstream forwarding, which
is what Linux turns on (drivers/pci/pci.c, pci_std_enable_acs)."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.XEON_6448Y, sockets=2, memory_mib=515_000)
    tree = build(
        cpus,
        console(model=SAPPHIRE_RAPIDS_PORT),
        *(
            root(
                bridge,
                port(leaf(f"gpu{index}", L40S.card), bus=gpu),
                model=SAPPHIRE_RAPIDS_PORT,
                node=index // 2,
            )
            for index, (bridge, gpu) in enumerate(BUSES)
        ),
        iommu=IommuType.DMA_FQ,
        acs=REDIRECTS,
    )
    found = gpus(L40S, tree, cpus, series=0x140)
    return compose(
        shape="l40sx4-pcie-2numa",
        name="l40s-pcie-4",
        product_name="PowerEdge R760xa",
        description="4x L40S on their own root ports, 2 sockets, no HCA",
        sources=(
            "NVIDIA L40S GPU Accelerator product brief",
            "Dell PowerEdge R760xa technical guide",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        pairs=pairs(found, ()),
        software=Software(
            command_line="BOOT_IMAGE=/vmlinuz-6.8.0-60-generic root=/dev/sda2 ro intel_iommu=on",
            modules=NVIDIA_MODULES,
            numa_balancing="1",
        ),
        has_whole_cpu_tree=True,
    )
