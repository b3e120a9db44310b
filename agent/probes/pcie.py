"""The PCI tree: where functions sit, what they are, what bridges stand above them.

Files: kernel Documentation/ABI/testing/sysfs-bus-pci. Nothing here asks a driver.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.model.numa import CpuSet
from agent.model.nvlink import NvSwitch
from agent.model.pci import GT_S_TO_GENERATION, PciAddress, PciBridge, PcieLink, PciPath
from agent.model.snapshot import ProbeIssue
from agent.probes.files import Files

NVIDIA = "10de"
"""PCI vendor id (pci.ids)."""

GPU_CLASSES = ("0300", "0302")
"""VGA and 3D controller, the first four digits of the class (PCI-SIG class codes)."""

NVSWITCH_CLASS = "0680"
"""Bridge, other: how NVSwitches up to Hopper show themselves (pci.ids 10de:1ac2, 1af1, 22a3)."""

STANDARD_CONFIG_BYTES = 256
"""Config space without extended capabilities; readers without CAP_SYS_ADMIN get 64 bytes."""

ACS_CAPABILITY = 0x000D
ACS_CONTROL_OFFSET = 6
"""From the capability's start (PCI Express Base Specification, ACS Extended Capability)."""

ACS_REDIRECT_BITS = 0x04 | 0x08 | 0x20
"""P2P Request Redirect, P2P Completion Redirect, P2P Egress Control (same place).

Source validation alone (bit 0) turns no peer traffic away.
"""

_DEVICES = "bus/pci/devices"
_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?) GT/s(?: PCIe)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """One PCI function.

    Attributes:
        pci_class: six lower-case hex digits.
        numa_node: its own, else that of the nearest bridge above that has one.
        local_cpus: the CPUs that the kernel calls near.
    """

    address: PciAddress
    path: PciPath
    vendor: str | None = None
    device: str | None = None
    pci_class: str | None = None
    numa_node: int | None = None
    local_cpus: CpuSet | None = None
    link: PcieLink | None = None


class PciTree:
    """The PCI functions of one node; reads a function's files when it is asked for."""

    def __init__(self, sysfs: Path) -> None:
        self._files = Files("pcie", sysfs)
        names = self._files.names(_DEVICES)
        if names is None:
            self._files.report(_DEVICES, "no PCI bus here")
        self._addresses = tuple(sorted(filter(None, map(self._address, names or ()))))

    @property
    def is_readable(self) -> bool:
        """Whether there is a PCI bus to read at all."""
        return self._files.names(_DEVICES) is not None

    @property
    def issues(self) -> tuple[ProbeIssue, ...]:
        """What could not be read so far."""
        return self._files.issues

    def nvidia_gpus(self) -> tuple[PciAddress, ...]:
        """Return NVIDIA's display controllers by address, whatever driver they are bound to.

        The virtual functions that a vGPU host makes are parts of a GPU and left out.
        """
        return tuple(
            address
            for address in self._nvidia(GPU_CLASSES)
            if self._files.real(f"{_DEVICES}/{address}/physfn") is None
        )

    def nvswitches(self) -> tuple[NvSwitch, ...]:
        """Return the NVSwitches that are PCI functions, by address."""
        return tuple(NvSwitch(pci=address) for address in self._nvidia((NVSWITCH_CLASS,)))

    def function(self, address: PciAddress) -> PciFunction | None:
        """Return the function at *address*; ``None`` if it is not there or has no place."""
        path = self._path(address)
        if path is None:
            return None
        place = f"{_DEVICES}/{address}"
        return PciFunction(
            address=address,
            path=path,
            vendor=self._files.hex_id(f"{place}/vendor"),
            device=self._files.hex_id(f"{place}/device"),
            pci_class=self._files.hex_id(f"{place}/class"),
            numa_node=self._numa_node(path),
            local_cpus=self._files.cpus(f"{place}/local_cpulist"),
            link=self._link(place),
        )

    def bridges(self, paths: Iterable[PciPath]) -> tuple[PciBridge, ...]:
        """Return the bridges above the ends of *paths*, by address."""
        above = {
            hop: PciPath(root=path.root, hops=path.hops[:depth])
            for path in paths
            for depth, hop in enumerate(path.hops[:-1], 1)
        }
        return tuple(self._bridge(above[address]) for address in sorted(above))

    def _bridge(self, path: PciPath) -> PciBridge:
        address = path.hops[-1]
        place = f"{_DEVICES}/{address}"
        return PciBridge(
            address=address,
            vendor=self._files.hex_id(f"{place}/vendor"),
            device=self._files.hex_id(f"{place}/device"),
            numa_node=self._numa_node(path),
            link=self._link(place),
            acs=acs_redirects(self._files.content(f"{place}/config") or b""),
        )

    def _nvidia(self, classes: tuple[str, ...]) -> tuple[PciAddress, ...]:
        return tuple(
            address
            for address in self._addresses
            if (self._files.hex_id(f"{_DEVICES}/{address}/class") or "").startswith(classes)
            and self._files.hex_id(f"{_DEVICES}/{address}/vendor") == NVIDIA
        )

    def _address(self, name: str) -> PciAddress | None:
        try:
            return PciAddress.parse(name)
        except ValueError:
            self._files.report(f"{_DEVICES}/{name}", "not a PCI address")
            return None

    def _path(self, address: PciAddress) -> PciPath | None:
        place = self._files.real(f"{_DEVICES}/{address}")
        path = None if place is None else path_of(place)
        if place is not None and path is None:
            self._files.report(f"{_DEVICES}/{address}", f"no host bridge on its path {place}")
        return path

    def _numa_node(self, path: PciPath) -> int | None:
        # sysfs prints -1 where firmware gave no _PXM: unknown, not node 0. The kernel lets a
        # function inherit its bridge's node only at boot, so ask the bridges as well.
        for hop in reversed(path.hops):
            node = self._files.number(f"{_DEVICES}/{hop}/numa_node")
            if node is not None and node >= 0:
                return node
        return None

    def _link(self, place: str) -> PcieLink | None:
        link = PcieLink(
            generation=self._generation(f"{place}/current_link_speed"),
            width=self._width(f"{place}/current_link_width"),
            max_generation=self._generation(f"{place}/max_link_speed"),
            max_width=self._width(f"{place}/max_link_width"),
        )
        return None if link == PcieLink() else link

    def _generation(self, file: str) -> int | None:
        """Read ``32.0 GT/s PCIe``; kernels up to 5.6 wrote ``32 GT/s``, VMs say ``Unknown``."""
        match = _SPEED.fullmatch(self._files.text(file) or "")
        return GT_S_TO_GENERATION.get(float(match[1])) if match else None

    def _width(self, file: str) -> int | None:
        """Read a lane count; 0 and 255 are how the kernel prints a link that is not there."""
        width = self._files.number(file)
        return width if width not in (0, 255) else None


def path_of(place: str) -> PciPath | None:
    """Return the path that a real sysfs *place* goes through, up to its last PCI function.

    Host bridges nest (Intel VMD): the innermost counts. ``None`` when there is none, or
    nothing below it.
    """
    parts = place.split("/")
    roots = [at for at, part in enumerate(parts) if _ROOT.fullmatch(part)]
    if not roots:
        return None
    hops = []
    for part in parts[roots[-1] + 1 :]:
        try:
            hops.append(PciAddress.parse(part))
        except ValueError:
            break
    return PciPath(root=parts[roots[-1]], hops=tuple(hops)) if hops else None


def acs_redirects(config: bytes) -> bool | None:
    """Return whether a bridge's Access Control Services turn peer traffic upwards.

    *config* is its config space. ``None`` when the extended part could not be read; a bridge
    without the capability redirects nothing.
    """
    if len(config) <= STANDARD_CONFIG_BYTES:
        return None
    seen: set[int] = set()
    offset = STANDARD_CONFIG_BYTES
    while offset and offset not in seen and offset + 8 <= len(config):
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == ACS_CAPABILITY:
            start = offset + ACS_CONTROL_OFFSET
            control = int.from_bytes(config[start : start + 2], "little")
            return bool(control & ACS_REDIRECT_BITS)
        offset = header >> 20
    return False
