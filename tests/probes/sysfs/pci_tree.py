"""A small PCI tree, and ways to make and ask others."""

from collections.abc import Mapping
from pathlib import Path

from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.probes.sysfs.pcie import PciTree, PlacedFunction

GPU = PciAddress.parse("0000:1b:00.0")
PORT = PciAddress.parse("0000:15:01.0")
PATH = PciPath(root="pci0000:15", hops=(PORT, GPU))
PORT_PLACE = "devices/pci0000:15/0000:15:01.0"
GPU_PLACE = f"{PORT_PLACE}/0000:1b:00.0"
TREE = """\
sys/bus/pci/devices/
  0000:15:01.0 -> ../../../devices/pci0000:15/0000:15:01.0
  0000:1b:00.0 -> ../../../devices/pci0000:15/0000:15:01.0/0000:1b:00.0
sys/devices/pci0000:15/0000:15:01.0/
  class = 0x060400
  vendor = 0x8086
  device = 0x352A
  subsystem_vendor = 0x15d9
  subsystem_device = 0x1D31
  numa_node = 1
  current_link_speed = 32.0 GT/s PCIe
  current_link_width = 16
sys/devices/pci0000:15/0000:15:01.0/0000:1b:00.0/
  class = 0x030200
  vendor = 0x10de
  device = 0x2330
  numa_node = -1
  local_cpulist = 0-3
  current_link_speed = 2.5 GT/s PCIe
  current_link_width = 16
  max_link_speed = 32 GT/s
  max_link_width = 16
"""


def placed(found: PciTree, address: PciAddress = GPU) -> PlacedFunction:
    """Return a function that is there."""
    function = found.function(address)
    assert function is not None
    return function


def functions(sys: Path, contents: Mapping[str, Mapping[str, bytes]]) -> PciTree:
    """Return a tree of functions below one host bridge, each with files of given bytes."""
    bus = sys / "bus/pci/devices"
    bus.mkdir(parents=True)
    for address, files in contents.items():
        place = sys / "devices/pci0000:15" / address
        place.mkdir(parents=True)
        (bus / address).symlink_to(f"../../../devices/pci0000:15/{address}")
        for name, content in files.items():
            (place / name).write_bytes(content)
    return PciTree(sys)
