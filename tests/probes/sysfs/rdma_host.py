"""A `/sys` with RDMA devices, written file by file: what a kernel would show of them."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodetopo.model.hca import Hca
from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.probes.sysfs.pcie import PciTree
from nodetopo.probes.sysfs.rdma import RdmaReading, read_rdma

ROOT = "devices/pci0000:40/0000:40:01.0"
"""Host bridge and root port above all PCI functions here."""

IB = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "InfiniBand",
}
ROCE = {**IB, "link_layer": "Ethernet"}


class RdmaHost:
    """Writes below *sysfs*; paths are relative to it, links are made to lead where they do."""

    def __init__(self, sysfs: Path) -> None:
        self.sysfs = sysfs
        (sysfs / "bus/pci/devices").mkdir(parents=True)

    def read(self, *, counters: bool = False) -> RdmaReading:
        """Return what a new reader makes of it now."""
        return read_rdma(self.sysfs, PciTree(self.sysfs), counters=counters)

    def only(self, *, counters: bool = False) -> Hca:
        """Return the one HCA that a new reader finds, without an issue."""
        reading = self.read(counters=counters)
        assert reading.hcas is not None
        assert reading.issues == ()
        (hca,) = reading.hcas
        return hca

    def write(self, place: str, files: Mapping[str, str | bytes]) -> None:
        """Write *files* into the directory *place*; each text gets the kernel's newline."""
        (self.sysfs / place).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            file = self.sysfs / place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())

    def link(self, place: str, target: str) -> None:
        """Make *place* a relative link to *target*; both are relative to `/sys`."""
        link = self.sysfs / place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.sysfs / target, link.parent))

    def function(self, bus: str, slot: str = "00.0", **files: str | bytes) -> str:
        """Add a PCI function, by default a ConnectX-7, and return its place."""
        place = f"{ROOT}/0000:{bus}:{slot}"
        ids = {"vendor": "0x15b3", "device": "0x1021", "class": "0x020700", "numa_node": "1"}
        self.write(place, {**ids, **files})
        self.link(f"bus/pci/devices/0000:{bus}:{slot}", place)
        return place

    def hca(self, name: str, parent: str | None, /, **files: str) -> str:
        """Add an RDMA device whose device is *parent*, and return its place."""
        place = f"{parent or 'devices/virtual'}/infiniband/{name}"
        self.write(place, files)
        if parent is not None:
            self.link(f"{place}/device", parent)
        self.link(f"class/infiniband/{name}", place)
        return place

    def port(self, hca: str, number: int, files: Mapping[str, str]) -> None:
        """Add a port to the RDMA device at *hca*."""
        self.write(f"{hca}/ports/{number}", files)

    def gid(self, hca: str, port: int, index: int, gid: str, **attrs: str) -> None:
        """Add an entry to a GID table; *attrs* are ``types`` and ``ndevs``."""
        self.write(f"{hca}/ports/{port}/gids", {str(index): gid})
        for name, value in attrs.items():
            self.write(f"{hca}/ports/{port}/gid_attrs/{name}", {str(index): value})

    def netdev(self, name: str, parent: str | None, /, **files: str) -> str:
        """Add a network interface whose device is *parent*, and return its place."""
        place = f"{parent or 'devices/virtual'}/net/{name}"
        self.write(place, files)
        if parent is not None:
            self.link(f"{place}/device", parent)
        self.link(f"class/net/{name}", place)
        return place

    def enslave(self, netdev: str, bond: str) -> None:
        """Put the interface at *netdev* below the one at *bond*."""
        (self.sysfs / bond / "bonding").mkdir(exist_ok=True)
        self.link(f"{netdev}/master", bond)
        self.link(f"{bond}/lower_{netdev.rpartition('/')[2]}", netdev)


def placed(bus: int, slot: int = 0) -> tuple[PciAddress, PciPath]:
    """Return the address and path that :meth:`RdmaHost.function` gives."""
    address = PciAddress(0, bus, 0, slot)
    return address, PciPath(root="pci0000:40", hops=(PciAddress(0, 0x40, 1, 0), address))


class Refusals:
    """Files that answer with EINVAL when they are opened, as sysfs does when they are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: tuple[str, ...] = ()
        self.asked: list[str] = []
        self._open = os.open
        monkeypatch.setattr(os, "open", self._refuse)

    def _refuse(self, path: Any, *args: Any, **more: Any) -> int:
        if self.ends and str(path).endswith(self.ends):
            self.asked.append(str(path))
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return self._open(path, *args, **more)


def vpd(**keywords: str) -> bytes:
    """Return Vital Product Data with a name and *keywords* in its read-only part."""
    fields = b"".join(
        name.encode() + bytes([len(value)]) + value.encode() for name, value in keywords.items()
    )
    name = b"NVIDIA ConnectX"
    return (
        b"\x82"
        + len(name).to_bytes(2, "little")
        + name
        + b"\x90"
        + len(fields).to_bytes(2, "little")
        + fields
        + b"\x78"
    )
