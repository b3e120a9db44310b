"""Makes of bridges and of plain PCI functions, and how any card is described.

PCI ids: pci.ids of the PCI ID project, and public `lspci` listings of such machines.
"""

from collections.abc import Mapping
from types import MappingProxyType

from nodetopo.model.pci import PcieLink, PciFunction
from tests.compose.pci_tree import BridgeModel

NVIDIA, MELLANOX, AMAZON, INTEL = "10de", "15b3", "1d0f", "8086"
"""PCI vendor ids."""


def link(generation: int, width: int = 16) -> PcieLink:
    """Return a link that runs at all it can."""
    return PcieLink(generation=generation, width=width, max_generation=generation, max_width=width)


def card(
    ids: str,
    pci_class: str,
    pcie: PcieLink,
    *,
    driver: str | None = None,
    max_read_request: int = 512,
    relaxed_ordering: bool = True,
    is_virtual: bool = False,
) -> PciFunction:
    """Return a function; *ids* is ``vendor:device:subsystem_vendor:subsystem_device``."""
    vendor, device, subsystem_vendor, subsystem_device = ids.split(":")
    return PciFunction(
        pci_class=pci_class,
        vendor=vendor,
        device=device,
        subsystem_vendor=subsystem_vendor,
        subsystem_device=subsystem_device,
        driver=driver,
        link=pcie,
        max_payload=256,
        max_read_request=max_read_request,
        relaxed_ordering=relaxed_ordering,
        is_virtual=is_virtual,
    )


BROADWELL_PORT = BridgeModel(vendor=INTEL, device="6f04", link=link(3))
SKYLAKE_PORT = BridgeModel(vendor=INTEL, device="2030", link=link(3))
SAPPHIRE_RAPIDS_PORT = BridgeModel(vendor=INTEL, device="352a", link=link(5), max_payload=512)
"""Emerald Rapids has the same."""

ROME_PORT = BridgeModel(
    vendor="1022", device="1483", subsystem_vendor="1022", subsystem_device="1453", link=link(4)
)
"""Milan has the same."""

GENOA_PORT = BridgeModel(
    vendor="1022",
    device="14ab",
    subsystem_vendor="1022",
    subsystem_device="14a4",
    link=link(5),
    max_payload=512,
)
GRACE_PORT = BridgeModel(vendor=NVIDIA, device="22b1", link=link(5), max_payload=512)
POWER9_PORT = BridgeModel(vendor="1014", device="04c1", link=link(4), max_payload=512)

PEX_8796 = BridgeModel(
    vendor="10b5", device="8796", subsystem_vendor="10b5", subsystem_device="8796", link=link(3)
)
PEX_9781 = BridgeModel(
    vendor="10b5", device="9781", subsystem_vendor="10b5", subsystem_device="9781", link=link(3)
)
PEX_GEN4 = BridgeModel(
    vendor="1000", device="c010", subsystem_vendor="1000", subsystem_device="a096", link=link(4)
)
PEX_GEN5 = BridgeModel(
    vendor="1000",
    device="c030",
    subsystem_vendor="1000",
    subsystem_device="100b",
    link=link(5),
    max_payload=512,
)
"""Broadcom's, formerly PLX's, switches."""

NVSWITCHES: Mapping[int, PciFunction] = MappingProxyType(
    {
        1: card("10de:1ac2:10de:0000", "068000", link(2, 1), driver="nvidia-nvswitch"),
        2: card("10de:1af1:10de:1589", "068000", link(2, 1), driver="nvidia-nvswitch"),
        3: card("10de:22a3:10de:1796", "068000", link(2, 1), driver="nvidia-nvswitch"),
    },
)
"""By generation: DGX-2, A100, H100. The fourth is no PCI function."""

BMC_DISPLAY = card("1a03:2000:1a03:2000", "030000", link(2, 1), driver="ast")
"""ASPEED's graphics, the console of most servers."""

INTEL_X550 = card("8086:1563:8086:0001", "020000", link(3, 4), driver="ixgbe")
"""10GBASE-T Ethernet: a network interface that is no HCA."""
