"""The elements of an NCCL topology: its tree, its devices and where each of them is.

XML from untrusted sources: no entities, no document type, limits on everything. The parser is
expat, as Python brings it. A document type declaration is the only door to entities, inner and
outer, so it is refused before anything behind it is read; NCCL's own parser knows neither.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from xml.parsers import expat

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.errors import DecodeError
from nodetopo.model.hca import DataDirect, Hca, HcaPort
from nodetopo.model.limits import MAX_GPUS, MAX_HCAS, MAX_PORTS, MAX_SPEED_MBPS
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import PeerKind
from nodetopo.model.pci import (
    GT_S_TO_GENERATION,
    PciAddress,
    PciBridge,
    PcieLink,
    PciFunction,
    PciPath,
)

CURE = "give the file that NCCL_TOPO_DUMP_FILE or NCCL_TOPO_FILE names"

MAX_BYTES = 1024 * 1024
"""Largest text accepted; an HGX node's dump is about 14 KiB."""

MAX_ELEMENTS = 4096
"""NCCL itself reads 256 elements for one host (topo.h, ``NCCL_TOPO_XML_MAX_NODES``)."""

MAX_DEPTH = 32
"""Deepest nesting accepted; four levels of switches are nine deep."""

DATA_DIRECT_CLASS = "080100"
"""The Data Direct function of a ConnectX-8 (NCCL topo.cc, ``kvDictPciClass``)."""

DATA_DIRECT_SUFFIX = "_dma"
"""NCCL's suffix of an HCA's name on its Data Direct function (net_ib, ``_dma``)."""

FUSED = "+"
"""Joins the names of HCAs that NCCL uses as one (``NCCL_NET_MERGE_LEVEL``)."""

_NUMBER = re.compile(r"-?[0-9]{1,12}")

_MASK_GROUP = re.compile(r"[0-9a-fA-F]{1,8}")

_MAX_MASK_GROUPS = 256

_GT_S = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) GT/s.*")

_HEX = re.compile(r"0x([0-9a-fA-F]{1,16})")

_PLACEHOLDERS = ("0000", "ffff")

_MAX_WIDTH = 32
"""Lanes; sysfs writes 0 or 255 where it does not know."""

_PEERS = (("0x068000", PeerKind.SWITCH), ("0x068001", PeerKind.CPU), ("0x03", PeerKind.GPU))
"""Class of an NVLink's far end to its kind (topo.cc, ``kvDictPciClass``)."""


class Element(Struct, frozen=True, kw_only=True):
    """One element; *at* is its place as a reader of the file would say it: ``cpu[0].pci[2]``."""

    tag: str
    at: str
    attributes: Mapping[str, str]
    children: list["Element"] = field(default_factory=list)

    def every(self, tag: str) -> Iterator["Element"]:
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Element | None":
        return next(self.every(tag), None)


class TreePlace(Struct, frozen=True, kw_only=True):
    """The place of an element: its NUMA node, that node's CPUs, the switches above it."""

    numa_node: int | None
    cpus: CpuSet | None
    hops: tuple[PciAddress, ...]

    def path(self, address: PciAddress) -> PciPath:
        """Return the path of a function here; the format names no root."""
        return PciPath(root=None, hops=(*self.hops, address), is_collapsed=True)


class FoundGpu(Struct, frozen=True, kw_only=True):
    """A GPU's ``pci`` element, and its ``gpu`` element where there is one."""

    address: PciAddress
    place: TreePlace
    pci: Element
    gpu: Element | None


class Devices(Struct):
    """The devices of a file, in its order."""

    gpus: dict[PciAddress, FoundGpu] = field(default_factory=dict)
    hcas: list[Hca] = field(default_factory=list)
    data_directs: list[DataDirect] = field(default_factory=list)
    bridges: list[PciBridge] = field(default_factory=list)
    seen: Counter[PciAddress] = field(default_factory=Counter)  # occurrences in the file
    # (subject, reason) → elements that were not kept
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)


def find_devices(parent: Element, place: TreePlace, devices: Devices) -> bool:
    """Add every device below *parent*, a ``cpu`` or ``pci``; return whether there was one."""
    has_devices = False
    for nic in parent.every("nic") if parent.tag == "cpu" else ():
        # NCCL puts non-PCI devices under the first CPU, which proves nothing about their place.
        hcas = list(_hcas(nic, None, replace(place, numa_node=None), devices))
        devices.hcas += hcas
        _check_hcas(nic, devices)
        has_devices = has_devices or bool(hcas)
    for pci in parent.every("pci"):
        address = read_address(pci, "busid")
        if address in place.hops:
            raise _error(pci, "busid", f"{address} lies below itself")
        devices.seen[address] += 1
        is_bridge = pci.first("pci") is not None
        is_device = _add_device(pci, address, place, devices, is_bridge=is_bridge)
        _check_hcas(pci, devices)
        is_used = is_bridge and find_devices(
            pci, replace(place, hops=(*place.hops, address)), devices
        )
        if is_used:
            function = read_function(pci)
            bridge = PciBridge(
                address=address,
                vendor=function.vendor,
                device=function.device,
                subsystem_vendor=function.subsystem_vendor,
                subsystem_device=function.subsystem_device,
                numa_node=place.numa_node,
                link=function.link,
            )
            devices.bridges.append(bridge)
        has_devices = has_devices or is_used or is_device
    return has_devices


def _check_hcas(element: Element, devices: Devices) -> None:
    if len(devices.hcas) + len(devices.data_directs) > MAX_HCAS:
        problem = f"one network interface more than the {MAX_HCAS} that a node has"
        raise DecodeError(element.at, problem, CURE)


def _add_device(
    pci: Element, address: PciAddress, place: TreePlace, devices: Devices, *, is_bridge: bool
) -> bool:
    """Add the device that *pci* is, apart from a bridge; return whether it is a device."""
    kind = pci_class(pci)
    gpu, nic = pci.first("gpu"), pci.first("nic")
    if gpu is not None or kind.startswith("03"):
        vendor = read_function(pci).vendor
        # RCCL writes an AMD GPU's instruction set as `gcn`, and its links as `xgmi`.
        is_other = gpu is not None and ("gcn" in gpu.attributes or gpu.first("xgmi") is not None)
        if is_other or vendor not in (None, "10de"):
            devices.left_out["gpu", "a GPU of another vendor"] += 1
            return False
        if address in devices.gpus:
            devices.left_out["gpu", "a second GPU of one PCI address"] += 1
            return False
        if len(devices.gpus) == MAX_GPUS:
            raise DecodeError(pci.at, f"one GPU more than the {MAX_GPUS} that a node has", CURE)
        devices.gpus[address] = FoundGpu(address=address, place=place, pci=pci, gpu=gpu)
        return True
    if kind == DATA_DIRECT_CLASS:
        nets = (net for each in pci.every("nic") for net in each.every("net"))
        names = {net.attributes.get("name", "") for net in nets} - {""}
        direct = DataDirect(
            pci=address,
            path=place.path(address),
            function=read_function(pci),
            numa_node=place.numa_node,
            hcas=tuple(sorted({name.removesuffix(DATA_DIRECT_SUFFIX) for name in names})),
        )
        devices.data_directs.append(direct)
        return True
    if nic is not None and nic.first("net") is not None:
        devices.hcas += _hcas(nic, pci, place, devices)
        return True
    if nic is not None or kind.startswith("02"):
        devices.hcas.append(_hca(str(address), pci, place))
        return True
    if not is_bridge:
        what = f"of class {kind}" if kind else "without a class"
        devices.left_out["pci", f"a function {what}, neither GPU nor NIC"] += 1
    return False


def _hcas(nic: Element, pci: Element | None, place: TreePlace, devices: Devices) -> Iterator[Hca]:
    """Yield one HCA with one port for each net; NCCL's speed is in Mb/s."""
    for net in nic.every("net"):
        name = net.attributes.get("name", "").strip()
        port = number(net, "port", 0, MAX_PORTS)
        if not name:
            devices.left_out["net", "an interface without a name"] += 1
        elif FUSED in name:
            devices.left_out["net", "HCAs fused into one"] += 1
        elif port == 0:
            # Ports of HCAs count from 1; 0 is NCCL's socket transport.
            devices.left_out["net", "an interface without RDMA"] += 1
        else:
            hca = replace(_hca(name, pci, place), sys_image_guid=_system_image_guid(net))
            if port is not None:
                speed = number(net, "speed", 0, MAX_SPEED_MBPS)
                rate = speed / 1000 if speed else None
                hca = replace(hca, ports=(HcaPort(number=port, rate_gbps=rate),))
            yield hca


def _hca(name: str, pci: Element | None, place: TreePlace) -> Hca:
    if pci is None:
        return Hca(name=name, numa_node=place.numa_node)
    address = read_address(pci, "busid")
    return Hca(
        name=name,
        pci=address,
        path=place.path(address),
        function=read_function(pci),
        numa_node=place.numa_node,
    )


def _system_image_guid(element: Element) -> str | None:
    """Return ``guid`` as sysfs prints ``sys_image_guid``: ``946d:ae03:0050:709a``.

    NCCL prints the bytes from the wire as a number of the host, and all its hosts are
    little-endian, so they are in reverse: 0x9a70500003ae6d94. None for 0.
    """
    match = _HEX.fullmatch(element.attributes.get("guid", "").strip())
    if match is None or int(match[1], 16) == 0:
        return None
    digits = int(match[1], 16).to_bytes(8, "little").hex()
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def read_function(element: Element) -> PciFunction:
    """Return the PCI function of the element.

    All ids are None for an invalid vendor: files for virtual machines invent bridges with 0x0000 or
    0xffff.
    """
    ids: list[str | None] = []
    for name in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        text = element.attributes.get(name, "").strip()
        ids.append(text[2:].lower() if re.fullmatch(r"0x[0-9a-fA-F]{4}", text) else None)
    if ids[0] in _PLACEHOLDERS:
        ids = [None] * 4
    six = pci_class(element)
    return PciFunction(
        pci_class=six if len(six) == 6 else None,
        vendor=ids[0],
        device=ids[1],
        subsystem_vendor=ids[2],
        subsystem_device=ids[3],
        link=_link(element),
    )


def _link(element: Element) -> PcieLink | None:
    """Return the link's speed per lane and its width.

    NCCL dumps the best common link, or, for GPUs and since 2.30.7, the current one (xml.cc); files
    by hand state the nominal link. So the maximum is not known separately. None if the file lacks
    it, as in virtual machines.
    """
    speed = _GT_S.fullmatch(element.attributes.get("link_speed", "").strip())
    generation = GT_S_TO_GENERATION.get(float(speed[1])) if speed else None
    text = element.attributes.get("link_width", "").strip()
    lanes = int(text) if _NUMBER.fullmatch(text) else 0
    width = lanes if 0 < lanes <= _MAX_WIDTH else None
    if generation is None and width is None:
        return None
    return PcieLink(generation=generation, width=width)


def pci_class(element: Element) -> str:
    """Return the class as written, without ``0x``: up to six digits, or an empty text."""
    text = element.attributes.get("class", "").strip().lower()
    return text.removeprefix("0x") if re.fullmatch(r"0x[0-9a-f]{2,6}", text) else ""


def peer_kind(element: Element) -> PeerKind | None:
    """Return the kind of an NVLink's far end, from its ``tclass``."""
    text = element.attributes.get("tclass", "").strip().lower()
    return next((kind for prefix, kind in _PEERS if text.startswith(prefix)), None)


def number(element: Element, name: str, low: int, high: int) -> int | None:
    """Return a decimal attribute; None where it is missing or empty."""
    text = element.attributes.get(name, "").strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise _error(element, name, f"not a number here: {text[:40]!r}")
    return int(text)


def read_address(element: Element, name: str) -> PciAddress:
    """Return a PCI address; invented ones (``ffff:ff:01.0``) are as good as others."""
    text = element.attributes.get(name)
    if text is None:
        raise _error(element, name, "missing")
    try:
        return PciAddress.parse(text)
    except ValueError:
        raise _error(element, name, f"not a PCI address: {text[:40]!r}") from None


def cpu_mask(element: Element) -> CpuSet | None:
    """Return ``affinity``: groups of 32 bits as in sysfs ``cpumap``, the highest first.

    None where it is missing or empty, which NCCL writes for a node that it cannot read.
    """
    text = element.attributes.get("affinity", "").strip()
    if not text:
        return None
    groups = text.split(",")
    if len(groups) > _MAX_MASK_GROUPS or not all(map(_MASK_GROUP.fullmatch, groups)):
        raise _error(element, "affinity", f"not a CPU mask: {text[:40]!r}")
    mask = int("".join(group.zfill(8) for group in groups), 16)
    return CpuSet.of(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _error(element: Element, name: str, problem: str) -> DecodeError:
    return DecodeError(f"{element.at}.{name}" if element.at else name, problem, CURE)


def read_tree(text: str) -> Element:
    """Return the root element of *text*; characters between elements and comments are dropped."""
    if len(text) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 10} KiB", CURE)
    builder = _TreeBuilder()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    try:
        # A declared encoding does not count: the text has been decoded already.
        parser.Parse(text.lstrip("\ufeff \t\r\n"), True)
    except expat.ExpatError as error:
        raise DecodeError("", f"not XML: {error}", CURE) from None
    except UnicodeEncodeError:
        raise DecodeError("", "not XML: holds half of a surrogate pair", CURE) from None
    assert builder.root is not None  # expat demands a root
    return builder.root


class _TreeBuilder:
    """expat's handlers; an exception raised in here ends the parsing."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[tuple[Element, Counter[str]]] = []
        self._count = 0

    def doctype(self, name: str, *_: object) -> None:
        problem = f"has a document type ({name[:40]}), which no NCCL topology has"
        raise DecodeError("", problem, CURE)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS or len(self._open) >= MAX_DEPTH:
            problem = f"more than {MAX_ELEMENTS} elements, or deeper than {MAX_DEPTH}"
            raise DecodeError("", problem, CURE)
        if self._open:
            parent, counted = self._open[-1]
            name = f"{tag[:40]}[{counted[tag]}]"
            counted[tag] += 1
            at = f"{parent.at}.{name}" if parent.at else name
            element = Element(tag=tag, at=at, attributes=attributes)
            parent.children.append(element)
        else:
            element = self.root = Element(tag=tag, at="", attributes=attributes)
        self._open.append((element, Counter()))

    def end(self, _: str) -> None:
        self._open.pop()
