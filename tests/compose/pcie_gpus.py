"""GPU models that are cards in PCIe slots.

Sources: NVIDIA product briefs of A100 PCIe (40 and 80 GB), L4, H200 NVL, and the RTX PRO 6000
Blackwell data sheets: memory, links; names and memory as `nvidia-smi` prints them in public;
PCI ids: the supported-products list of the driver's README.
"""

from msgspec.structs import replace

from tests.compose.cards import card, link
from tests.compose.gpus import CLASS_3D, L40S, GpuModel

A100_PCIE_80 = GpuModel(
    product="NVIDIA A100 80GB PCIe",
    architecture="ampere",
    compute_capability=(8, 0),
    memory_mib=81920,
    card=card("10de:20b5:10de:1533", CLASS_3D, link(4), driver="nvidia"),
    vbios="92.00.90.00.03",
    is_module=False,
)
A100_PCIE_40 = replace(
    A100_PCIE_80,
    product="NVIDIA A100-PCIE-40GB",
    memory_mib=40960,
    card=card("10de:20f1:10de:145f", CLASS_3D, link(4), driver="nvidia"),
    vbios="92.00.25.00.08",
)
A100_BRIDGE_LINKS = 12
"""NVLinks of a card, all used by the three bridges between it and its one neighbour."""

L4 = replace(
    L40S,
    product="NVIDIA L4",
    memory_mib=23034,
    card=card("10de:27b8:10de:16ca", CLASS_3D, link(4), driver="nvidia"),
    vbios="95.04.29.00.06",
)
H200_NVL = GpuModel(
    product="NVIDIA H200 NVL",
    architecture="hopper",
    compute_capability=(9, 0),
    memory_mib=143771,
    card=card("10de:233b:10de:1996", CLASS_3D, link(5), driver="nvidia"),
    vbios="96.00.CF.00.02",
    is_module=False,
)
RTX_PRO_6000 = GpuModel(
    product="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    architecture="blackwell",
    compute_capability=(12, 0),
    memory_mib=97887,
    card=card("10de:2bb5:10de:204e", CLASS_3D, link(5), driver="nvidia"),
    vbios="98.02.6D.00.03",
    is_module=False,
)
RTX_PRO_6000_MAX_Q = replace(
    RTX_PRO_6000,
    product="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    card=card("10de:2bb4:10de:204c", "030000", link(5), driver="nvidia"),
    vbios="98.02.52.00.02",
)
"""With display outputs: a VGA controller."""
