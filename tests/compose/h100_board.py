"""The parts of an HGX H100 board that several machines have: rails and NVSwitches.

Sources: NVIDIA DGX H100/H200 User Guide, system topology: under each host bridge a PCIe switch
with the GPU's own ConnectX-7, and a second switch with the GPU.
"""

from nodetopo.model.pci import PciFunction
from tests.compose.cards import NVSWITCHES, PEX_GEN5, SAPPHIRE_RAPIDS_PORT
from tests.compose.gpus import H100
from tests.compose.hcas import CONNECTX_7
from tests.compose.pci_tree import Port, Root, leaf, port, root, switch

ROOTS = (0x15, 0x3D, 0x4C, 0x5B, 0x97, 0xBD, 0xCB, 0xD9)
"""Bus of the host bridge above each GPU."""

LINKS_TO_EACH = (5, 5, 4, 4)
"""NVLinks of a GPU to each NVSwitch (NCCL topology dumps of HGX H100 boards)."""


def rail(index: int, *, gpu: PciFunction = H100.card, acs: int = 0, has_node: bool = True) -> Root:
    """Return the host bridge of GPU *index*.

    Args:
        index: of the GPU.
        gpu: its PCI function.
        acs: the ACS control register of the first switch's downstream ports.
        has_node: whether firmware names the NUMA node of the host bridge.
    """
    nic = port(leaf(f"nic{index}", CONNECTX_7.card), acs=acs)
    second = port(switch(PEX_GEN5, leaf(f"gpu{index}", gpu)), acs=acs)
    below = port(switch(PEX_GEN5, nic, second))
    node = index // 4 if has_node else None
    return root(ROOTS[index], below, model=SAPPHIRE_RAPIDS_PORT, node=node)


def nvswitches() -> Port:
    """Return the port with the four NVSwitches, below the first host bridge."""
    slots = (port(leaf(f"nvswitch{at}", NVSWITCHES[3]), bus=7 + at) for at in range(4))
    return port(switch(PEX_GEN5, *slots), device=0x1D, bus=4)
