"""The PCI tree: functions with their places, kinds, and the bridges above them.

Files: kernel Documentation/ABI/testing/sysfs-bus-pci. Nothing here calls a driver.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec import Struct

from nodetopo.model.digits import is_digits
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import NvSwitch
from nodetopo.model.pci import (
    GT_S_TO_GENERATION,
    BridgeKind,
    IommuType,
    PciAddress,
    PciBridge,
    PcieLink,
    PciFunction,
    PciPath,
    VgpuHost,
)
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.numa import node_cpus, node_ids
from nodetopo.probes.sysfs.pci_config import (
    STANDARD_BYTES,
    access_control,
    ats_enabled,
    bridge_kind,
    capability,
    express,
    has_ats,
    names_nvlink_management,
    parse_vpd,
)
from nodetopo.probes.sysfs.tree import Root

NVIDIA = "10de"
MELLANOX = "15b3"
"""PCI vendor ids (pci.ids)."""

GPU_CLASSES = ("0300", "0302")
"""VGA and 3D controller, the first four digits of the class (PCI-SIG class codes)."""

NVSWITCH_CLASS = "0680"
"""Bridge, other: the class of NVSwitches up to Hopper (pci.ids 10de:1ac2, 1af1, 22a3)."""

DATA_DIRECT_CLASS = "0801"
"""DMA controller: the function of a ConnectX-8 that NCCL calls Data Direct (class 080100)."""

BRIDGE_CLASS = "0604"
"""PCI-to-PCI bridge: root ports and the ports of switches (PCI-SIG class codes)."""

PCI_DEVICES = "bus/pci/devices"

_SUBTRACTIVE_BRIDGE = "060401"
"""A bridge of conventional PCI by its class already (PCI-SIG class codes)."""

_NO_IOMMU_TYPE = "unknown"
"""The kernel's text for a group without a default domain (iommu_group_show_type)."""

_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_SPEED = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,4})?) GT/s(?: PCIe)?")
_HEX = re.compile(r"[0-9a-f]+")

_NVIDIA_BYTES = b"\xde\x10"
"""Vendor 10de, as config space begins with it."""

_VENDOR_SPECIFIC = 0x09
_LENGTH, _SIGNATURE, _RECORDS = 2, 3, 5
"""Offsets from the start of the vendor-specific capability."""

_DRIVER_RECORD = 0
_TEXT_BYTES = 10


class PlacedFunction(Struct, frozen=True, kw_only=True):
    """One PCI function."""

    address: PciAddress
    path: PciPath | None  # ``None`` if its real path has no host bridge
    facts: PciFunction
    # Its own, else the nearest bridge's above, else the only node that holds all CPUs near it.
    numa_node: int | None = None


class PciTree:
    """The PCI functions of one node; reads a function's files on demand."""

    def __init__(self, sysfs: Root) -> None:
        self._files = Files("pcie", sysfs)
        names = self._files.names(PCI_DEVICES)
        if names is None:
            self._files.report(PCI_DEVICES, "no PCI bus here")
        addresses = []
        for name in names or ():
            address = PciAddress.parse_or_none(name)
            if address is None:
                self._files.report(f"{PCI_DEVICES}/{name}", "not a PCI address")
            else:
                addresses.append(address)
        self.addresses = tuple(sorted(addresses))  # of all functions, ascending

    @property
    def is_readable(self) -> bool:
        """Whether a PCI bus can be read."""
        return self._files.names(PCI_DEVICES) is not None

    @property
    def issues(self) -> tuple[ProbeIssue, ...]:
        """The read errors so far."""
        return self._files.issues

    def nvidia_gpus(self) -> tuple[PciAddress, ...]:
        """Return NVIDIA's display controllers by address, whatever driver they are bound to.

        The virtual functions that a vGPU host makes are parts of a GPU and left out.
        """
        gpus = self._of(NVIDIA, GPU_CLASSES)
        return tuple(address for address in gpus if not self._is_virtual(address))

    def nvswitches(self) -> tuple[NvSwitch, ...]:
        """Return the NVSwitches that are PCI functions, by address."""
        return tuple(NvSwitch(pci=address) for address in self._of(NVIDIA, (NVSWITCH_CLASS,)))

    def data_direct(self) -> tuple[PlacedFunction, ...]:
        """Return the Data Direct functions of ConnectX-8, by address."""
        functions = map(self.function, self._of(MELLANOX, (DATA_DIRECT_CLASS,)))
        return tuple(function for function in functions if function is not None)

    def driver(self, address: PciAddress) -> str | None:
        """Return the kernel driver of the function at *address*; ``None`` for no driver."""
        return self._files.link_name(f"{_place(address)}/driver")

    def function(self, address: PciAddress) -> PlacedFunction | None:
        """Return the function at *address*; ``None`` if it is not there."""
        place = _place(address)
        real = self._files.real(place)
        if real is None:
            return None
        path = path_of(real)
        if path is None:
            self._files.report(place, f"no host bridge on its path {real}")
        facts = self._facts(address)
        hops = (address,) if path is None else path.hops
        return PlacedFunction(
            address=address,
            path=path,
            facts=facts,
            numa_node=self._numa_node(hops, facts.local_cpus),
        )

    def bridges(self, paths: Iterable[PciPath]) -> tuple[PciBridge, ...]:
        """Return the bridges above the ends of *paths*, by address.

        Also the root ports of NVIDIA's CPUs and the ports of the switches inside Mellanox
        adapters, whatever is below them: ACS on all of them counts where GPUs and HCAs are wired
        through these (:mod:`nodetopo.topology.complexes`).
        """
        ends = {path: len(path.hops) - 1 for path in paths}
        for vendor in (NVIDIA, MELLANOX):
            for address in self._of(vendor, (BRIDGE_CLASS,)):
                real = self._files.real(_place(address))
                path = None if real is None else path_of(real)
                if path is not None:
                    ends[path] = len(path.hops)
        above = {
            hop: PciPath(root=path.root, hops=path.hops[:depth])
            for path, bridges in ends.items()
            for depth, hop in enumerate(path.hops[:bridges], 1)
        }
        return tuple(self._bridge(above[address]) for address in sorted(above))

    def vpd(self, address: PciAddress) -> Mapping[str, str] | None:
        """Return the read-only Vital Product Data by keyword.

        ``None`` without them, or if reading them is refused: only root can.
        """
        content = self._files.content(f"{_place(address)}/vpd")
        return None if content is None else parse_vpd(content)

    def is_nvlink_management(self, address: PciAddress) -> bool | None:
        """Return whether a function belongs to the NVLink fabric; ``None`` without its VPD.

        Only some functions of such a card are marked (NVIDIA Fabric Manager User Guide:
        the LPFs do, the FC PFs do not), so the others of its slot are read as well.
        """
        if self._id(f"{_place(address)}/vendor", 4) != MELLANOX or self._is_virtual(address):
            return False
        slot = (address.domain, address.bus, address.device)
        same_slot = [
            other for other in self.addresses if (other.domain, other.bus, other.device) == slot
        ]
        vpds = {other: self.vpd(other) for other in same_slot if not self._is_virtual(other)}
        if any(names_nvlink_management(keywords or {}) for keywords in vpds.values()):
            return True
        return None if vpds.get(address) is None else False

    def _facts(self, address: PciAddress) -> PciFunction:
        place = _place(address)
        config = self._files.content(f"{place}/config") or b""
        settings = express(config)
        return PciFunction(
            pci_class=self._id(f"{place}/class", 6),
            vendor=self._id(f"{place}/vendor", 4),
            device=self._id(f"{place}/device", 4),
            subsystem_vendor=self._id(f"{place}/subsystem_vendor", 4),
            subsystem_device=self._id(f"{place}/subsystem_device", 4),
            driver=self._files.link_name(f"{place}/driver"),
            link=self._link(place),
            local_cpus=self._near_cpus(place),
            iommu_group=self._iommu_group(place),
            iommu_type=self._files.read(f"{place}/iommu_group/type", _iommu_type),
            max_payload=None if settings is None else settings.max_payload,
            max_read_request=None if settings is None else settings.max_read_request,
            relaxed_ordering=None if settings is None else settings.relaxed_ordering,
            has_ats=has_ats(config),
            ats_enabled=ats_enabled(config),
            is_virtual=self._is_virtual(address),
            vgpu_host=vgpu_host(config),
        )

    def _bridge(self, path: PciPath) -> PciBridge:
        address = path.hops[-1]
        place = _place(address)
        config = self._files.content(f"{place}/config") or b""
        settings, acs = express(config), access_control(config)
        if len(config) >= STANDARD_BYTES or len(path.hops) > 1:
            kind = bridge_kind(config)
        else:  # hidden without CAP_SYS_ADMIN: decided by place and class
            is_subtractive = self._id(f"{place}/class", 6) == _SUBTRACTIVE_BRIDGE
            kind = BridgeKind.PCI_BRIDGE if is_subtractive else BridgeKind.ROOT_PORT
        return PciBridge(
            address=address,
            kind=kind,
            vendor=self._id(f"{place}/vendor", 4),
            device=self._id(f"{place}/device", 4),
            subsystem_vendor=self._id(f"{place}/subsystem_vendor", 4),
            subsystem_device=self._id(f"{place}/subsystem_device", 4),
            numa_node=self._numa_node(path.hops, self._near_cpus(place)),
            link=self._link(place),
            max_payload=None if settings is None else settings.max_payload,
            acs_capability=None if acs is None else acs.capability,
            acs_control=None if acs is None else acs.control,
        )

    def _of(self, vendor: str, classes: tuple[str, ...]) -> tuple[PciAddress, ...]:
        return tuple(
            address
            for address in self.addresses
            if (self._id(f"{_place(address)}/class", 6) or "").startswith(classes)
            and self._id(f"{_place(address)}/vendor", 4) == vendor
        )

    def _id(self, file: str, digits: int) -> str | None:
        text = self._files.hex_id(file)
        if text is None or (len(text) == digits and _HEX.fullmatch(text)):
            return text
        self._files.report(file, f"not {digits} hexadecimal digits: {text[:40]!r}")
        return None

    def _is_virtual(self, address: PciAddress) -> bool:
        return self._files.link_name(f"{_place(address)}/physfn") is not None

    def _numa_node(self, hops: tuple[PciAddress, ...], near: CpuSet | None) -> int | None:
        """Return the node of the last of *hops*, or of the nearest bridge above with one.

        Args:
            hops: as in a path. sysfs prints -1 if firmware gave no _PXM: unknown, not node 0. The
                kernel lets a function inherit its bridge's node only at boot, so the bridges are
                read as well.
            near: the CPUs near the function, which decide if no hop does: the node that holds them
                all. Without a node the kernel lists every CPU of the machine, so on more than one
                node they prove nothing.
        """
        for hop in reversed(hops):
            node = self._files.number(f"{_place(hop)}/numa_node")
            if node is not None and node >= 0:
                return node
        if not near:
            return None
        return next((node for node, cpus in self._cpus_by_node.items() if near <= cpus), None)

    def _near_cpus(self, place: str) -> CpuSet | None:
        """Return the CPUs that the kernel calls near a function."""
        cpus = self._files.cpus(f"{place}/local_cpulist")
        return cpus if cpus is not None else self._files.cpu_mask(f"{place}/local_cpus")

    @cached_property
    def _cpus_by_node(self) -> Mapping[int, CpuSet]:
        return {
            node: cpus
            for node in node_ids(self._files) or ()
            if (cpus := node_cpus(self._files, node))
        }

    def _iommu_group(self, place: str) -> int | None:
        name = self._files.link_name(f"{place}/iommu_group") or ""
        return int(name) if is_digits(name) else None

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
        """Read a lane count; the kernel prints 0 or 255 for a link that is not there."""
        width = self._files.number(file)
        return width if width not in (0, 255) else None


def path_of(place: str) -> PciPath | None:
    """Return the PCI path of a real sysfs *place*, up to its last PCI function.

    Host bridges nest (Intel VMD): the innermost counts. ``None`` without one, or without a function
    below it.
    """
    parts = place.split("/")
    roots = [at for at, part in enumerate(parts) if _ROOT.fullmatch(part)]
    if not roots:
        return None
    hops = []
    for part in parts[roots[-1] + 1 :]:
        if (hop := PciAddress.parse_or_none(part)) is None:
            break
        hops.append(hop)
    return PciPath(root=parts[roots[-1]], hops=tuple(hops)) if hops else None


def vgpu_host(config: bytes) -> VgpuHost | None:
    """Return the host's driver, from a virtual GPU's vendor-specific PCI capability.

    ``None`` for other functions, or without a name. Layout: NVIDIA/k8s-device-plugin v0.19.0,
    ``internal/vgpu``: id, next, length, ``VF``, then records of id, length and data; record 0 is
    the host's driver, its version in 10 bytes and its branch in 10, each filled up with zeros. The
    capability's frame: PCI Local Bus Specification 3.0, 6.7 and appendix H. The bytes are a
    hypervisor's, so none of them is trusted.
    """
    start = capability(config, _VENDOR_SPECIFIC)
    if start is None or config[:2] != _NVIDIA_BYTES or start + _RECORDS > len(config):
        return None
    whole = config[start : start + config[start + _LENGTH]]
    if whole[_SIGNATURE:_RECORDS] != b"VF":
        return None
    at = _RECORDS
    while at + 2 <= len(whole):
        record, length = whole[at : at + 2]
        if record == _DRIVER_RECORD:
            data = whole[at + 2 : at + 2 + 2 * _TEXT_BYTES]
            if len(data) < 2 * _TEXT_BYTES:  # cut short
                return None
            version, branch = (
                part.strip(b"\0").decode("ascii", "replace")
                for part in (data[:_TEXT_BYTES], data[_TEXT_BYTES:])
            )
            return VgpuHost(driver_version=version, driver_branch=branch) if version else None
        if length == 0:
            return None
        at += length
    return None


def _place(address: PciAddress) -> str:
    return f"{PCI_DEVICES}/{address}"


def _iommu_type(text: str) -> IommuType | None:
    if text == _NO_IOMMU_TYPE:
        return None
    if text not in tuple(IommuType):
        raise ValueError(f"not known to us: {text[:40]!r}")
    return IommuType(text)
