"""The devices of an NCCL topology: what each ``pci`` and ``nic`` element is, and where."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from xml.parsers import expat

from agent.errors import DecodeError
from agent.model.gpu import C2c, Gpu
from agent.model.hca import DataDirect, Hca, HcaPort
from agent.model.numa import CpuSet
from agent.model.nvlink import NvLink, PeerKind
from agent.model.pci import (
    GT_S_TO_GENERATION,
    PciAddress,
    PciBridge,
    PcieLink,
    PciFunction,
    PciPath,
)

# XML from strangers as a tree of elements: no entities, no document type, bounded in all ways.
#
# The parser is expat, as Python brings it. A document type declaration is the only door to
# entities, inner and outer, so it is refused before anything behind it is read; NCCL's own
# parser knows neither.

MAX_BYTES = 1024 * 1024
"""Largest text accepted; an HGX node's dump is about 14 KiB."""


MAX_ELEMENTS = 4096
"""NCCL itself reads 256 elements for one host (topo.h, ``NCCL_TOPO_XML_MAX_NODES``)."""


MAX_DEPTH = 32
"""Deepest nesting accepted; four levels of switches are nine deep."""


CURE = "give the file that NCCL_TOPO_DUMP_FILE or NCCL_TOPO_FILE names"


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element; *at* is its place as a reader of the file would say it: ``cpu[0].pci[2]``."""

    tag: str
    at: str
    attributes: Mapping[str, str]
    children: list["Element"] = field(default_factory=list)

    def every(self, tag: str) -> Iterator["Element"]:
        """Yield the children of that *tag*, in order."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Element | None":
        """Return the first child of that *tag*."""
        return next(self.every(tag), None)


def read_tree(text: str) -> Element:
    """Return the root element of *text*; characters between elements and comments are dropped.

    Raises:
        DecodeError: too large, too deep, not XML, or with a document type declaration.
    """
    if len(text) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 10} KiB", CURE)
    builder = _Builder()
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


class _Builder:
    """What expat calls; an exception raised in here ends the parsing."""

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
        element = Element(tag=tag, at=self._place(tag), attributes=attributes)
        if self._open:
            self._open[-1][0].children.append(element)
        else:
            self.root = element
        self._open.append((element, Counter()))

    def end(self, _: str) -> None:
        self._open.pop()

    def _place(self, tag: str) -> str:
        if not self._open:
            return ""
        parent, counted = self._open[-1]
        own = f"{tag[:40]}[{counted[tag]}]"
        counted[tag] += 1
        return f"{parent.at}.{own}" if parent.at else own


# The attributes of an NCCL topology, read into the model's own types.

DATA_DIRECT_CLASS = "080100"
"""The Data Direct function of a ConnectX-8 (NCCL topo.cc, ``kvDictPciClass``)."""


HIDDEN_TARGET = "fffffff:ffff:ff"
"""NVLink target that NCCL writes for a switch that the driver hides (NCCL xml.cc)."""


MACHINES: Mapping[str, str] = MappingProxyType(
    {"x86_64": "x86_64", "arm64": "aarch64", "ppc64": "ppc64le"},
)
"""NCCL's ``arch`` (topo.cc, ``kvDictCpuArch``) to the kernel's ``uname -m``."""


_NUMBER = re.compile(r"-?[0-9]{1,12}")


_MASK_GROUP = re.compile(r"[0-9a-fA-F]{1,8}")


_MAX_MASK_GROUPS = 256


_GT_S = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) GT/s.*")


_HEX = re.compile(r"0x([0-9a-fA-F]{1,16})")


_PLACEHOLDERS = ("0000", "ffff")


_MAX_WIDTH = 32
"""Lanes; sysfs writes 0 or 255 where it does not know."""


_EXTENDED = 15
"""CPUID leaf 1: the extended family counts only where the family is 15 (AMD, Intel manuals)."""


_PEERS = (("0x068000", PeerKind.SWITCH), ("0x068001", PeerKind.CPU), ("0x03", PeerKind.GPU))
"""Class of an NVLink's far end to what it is (topo.cc, ``kvDictPciClass``)."""


def number(element: Element, name: str, low: int, high: int) -> int | None:
    """Return a decimal attribute; ``None`` where it is missing or empty.

    Raises:
        DecodeError: not a whole number from *low* to *high*.
    """
    text = element.attributes.get(name, "").strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise DecodeError(_place(element, name), f"not a number here: {text[:40]!r}", CURE)
    return int(text)


def read_address(element: Element, name: str) -> PciAddress:
    """Return a PCI address; invented ones (``ffff:ff:01.0``) are as good as others.

    Raises:
        DecodeError: missing, or none.
    """
    text = element.attributes.get(name)
    if text is None:
        raise DecodeError(_place(element, name), "missing", CURE)
    try:
        return PciAddress.parse(text)
    except ValueError:
        problem = f"not a PCI address: {text[:40]!r}"
        raise DecodeError(_place(element, name), problem, CURE) from None


def cpu_mask(element: Element) -> CpuSet | None:
    """Return ``affinity``: groups of 32 bits as in sysfs ``cpumap``, the highest first.

    ``None`` where it is missing or empty, which NCCL writes for a node that it cannot read.

    Raises:
        DecodeError: not such a mask.
    """
    text = element.attributes.get("affinity", "").strip()
    if not text:
        return None
    groups = text.split(",")
    if len(groups) > _MAX_MASK_GROUPS or not all(map(_MASK_GROUP.fullmatch, groups)):
        raise DecodeError(_place(element, "affinity"), f"not a CPU mask: {text[:40]!r}", CURE)
    mask = int("".join(group.zfill(8) for group in groups), 16)
    return CpuSet.of(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def cpu_family(number: int) -> int:
    """Return the family as Linux counts it, from NCCL's family + 16 × extended family.

    NCCL does not stop at 15 before it shifts (xml.cc), so that AMD's 25 becomes 175. A file
    written by hand may say 25, which no CPU gives NCCL, and is taken as it stands.
    """
    family, extended = number & 0xF, number >> 4
    return family + extended if family == _EXTENDED else number


def link(element: Element) -> PcieLink | None:
    """Return what the file calls the link: its speed per lane, and its width.

    NCCL dumps the best that both ends can do, or, for GPUs and since 2.30.7, what runs now
    (xml.cc); files by hand state the nominal link. So the best of it is not known apart.
    ``None`` where the file says nothing, as in virtual machines.
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
    """Return the class as it stands, without ``0x``: up to six digits, or an empty text."""
    text = element.attributes.get("class", "").strip().lower()
    return text.removeprefix("0x") if re.fullmatch(r"0x[0-9a-f]{2,6}", text) else ""


def read_function(element: Element) -> PciFunction:
    """Return what the element says of its PCI function.

    All ids are ``None`` where the vendor is one that no device has: files for virtual
    machines invent bridges with 0x0000 or 0xffff.
    """
    ids = [
        _id(element, name) for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")
    ]
    if ids[0] in _PLACEHOLDERS:
        ids = [None] * 4
    six = pci_class(element)
    return PciFunction(
        pci_class=six if len(six) == 6 else None,
        vendor=ids[0],
        device=ids[1],
        subsystem_vendor=ids[2],
        subsystem_device=ids[3],
        link=link(element),
    )


def _id(element: Element, name: str) -> str | None:
    text = element.attributes.get(name, "").strip()
    return text[2:].lower() if re.fullmatch(r"0x[0-9a-fA-F]{4}", text) else None


def peer_kind(element: Element) -> PeerKind | None:
    """Return what ``tclass`` says of an NVLink's far end."""
    text = element.attributes.get("tclass", "").strip().lower()
    return next((kind for prefix, kind in _PEERS if text.startswith(prefix)), None)


def system_image_guid(element: Element) -> str | None:
    """Return ``guid`` as sysfs prints ``sys_image_guid``: ``946d:ae03:0050:709a``.

    NCCL prints the bytes from the wire as a number of the host, and all its hosts are
    little-endian, so they stand in reverse: 0x9a70500003ae6d94. ``None`` for 0.
    """
    match = _HEX.fullmatch(element.attributes.get("guid", "").strip())
    if match is None or int(match[1], 16) == 0:
        return None
    digits = int(match[1], 16).to_bytes(8, "little").hex()
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def architecture(capability: tuple[int, int]) -> str | None:
    """Return NVIDIA's name for the compute capability's generation (CUDA programming guide)."""
    exact = {(7, 5): "turing", (8, 9): "ada-lovelace"}
    major = {5: "maxwell", 6: "pascal", 7: "volta", 8: "ampere", 9: "hopper"}
    major |= dict.fromkeys((10, 11, 12), "blackwell")
    return exact.get(capability) or major.get(capability[0])


def _place(element: Element, name: str) -> str:
    return f"{element.at}.{name}" if element.at else name


DATA_DIRECT_SUFFIX = "_dma"
"""What NCCL appends to an HCA's name on its Data Direct function (net_ib, ``_dma``)."""


FUSED = "+"
"""Joins the names of HCAs that NCCL uses as one (``NCCL_NET_MERGE_LEVEL``)."""


_MAX_LINKS = 64
"""More NVLinks than any GPU has; 18 is the most so far."""


_MAX_INDEX = 9999


_MAX_SPEED_MBPS = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an element stands: its NUMA node, that node's CPUs, the switches above it."""

    numa_node: int | None
    cpus: CpuSet | None
    hops: tuple[PciAddress, ...]

    def path(self, address: PciAddress) -> PciPath:
        """Return the path of a function here; the format names no root."""
        return PciPath(root=None, hops=(*self.hops, address), is_collapsed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """A GPU's ``pci`` element, and its ``gpu`` element where there is one."""

    address: PciAddress
    place: Place
    pci: Element
    gpu: Element | None


@dataclass(slots=True)
class Devices:
    """What has been found so far, in the order of the file.

    Attributes:
        seen: how often each PCI address stands in the file.
        left_out: how many elements of a kind were not kept, by (subject, reason).
    """

    gpus: dict[PciAddress, FoundGpu] = field(default_factory=dict)
    hcas: list[Hca] = field(default_factory=list)
    data_directs: list[DataDirect] = field(default_factory=list)
    bridges: list[PciBridge] = field(default_factory=list)
    seen: Counter[PciAddress] = field(default_factory=Counter)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)


def find_devices(parent: Element, place: Place, devices: Devices) -> bool:
    """Add every device below *parent*, a ``cpu`` or ``pci``; return whether there was one.

    Raises:
        DecodeError: an element has no PCI address, or a value that cannot be.
    """
    found = False
    for nic in parent.every("nic") if parent.tag == "cpu" else ():
        # NCCL hangs what is no PCI function under the first CPU, which tells no place.
        hcas = list(_hcas(nic, None, replace(place, numa_node=None), devices))
        devices.hcas += hcas
        found = found or bool(hcas)
    for pci in parent.every("pci"):
        found = _find_at(pci, place, devices) or found
    return found


def _find_at(pci: Element, place: Place, devices: Devices) -> bool:
    address = read_address(pci, "busid")
    devices.seen[address] += 1
    is_bridge = pci.first("pci") is not None
    is_device = _add_device(pci, address, place, devices, is_bridge=is_bridge)
    if is_bridge:
        below = replace(place, hops=(*place.hops, address))
        is_used = find_devices(pci, below, devices)
        if is_used:
            devices.bridges.append(_bridge(pci, address, place))
        return is_used or is_device
    return is_device


def _add_device(
    pci: Element,
    address: PciAddress,
    place: Place,
    devices: Devices,
    *,
    is_bridge: bool,
) -> bool:
    """Add what *pci* is besides a bridge, if anything."""
    kind = pci_class(pci)
    if pci.first("gpu") is not None or kind.startswith("03"):
        return _add_gpu(pci, address, place, devices)
    if kind == DATA_DIRECT_CLASS:
        devices.data_directs.append(_data_direct(pci, address, place))
        return True
    if pci.first("nic") is not None or kind.startswith("02"):
        devices.hcas += _nic(pci, address, place, devices)
        return True
    if not is_bridge:
        what = f"of class {kind}" if kind else "without a class"
        devices.left_out["pci", f"a function {what}, neither GPU nor NIC"] += 1
    return False


def _add_gpu(pci: Element, address: PciAddress, place: Place, devices: Devices) -> bool:
    gpu = pci.first("gpu")
    vendor = read_function(pci).vendor
    # RCCL writes an AMD GPU's instruction set as `gcn`, and its links as `xgmi`.
    is_other = gpu is not None and ("gcn" in gpu.attributes or gpu.first("xgmi") is not None)
    if is_other or vendor not in (None, "10de"):
        devices.left_out["gpu", "a GPU of another vendor"] += 1
        return False
    if address in devices.gpus:
        devices.left_out["gpu", "a second GPU of one PCI address"] += 1
        return False
    devices.gpus[address] = FoundGpu(address=address, place=place, pci=pci, gpu=gpu)
    return True


def _bridge(pci: Element, address: PciAddress, place: Place) -> PciBridge:
    function = read_function(pci)
    return PciBridge(
        address=address,
        vendor=function.vendor,
        device=function.device,
        subsystem_vendor=function.subsystem_vendor,
        subsystem_device=function.subsystem_device,
        numa_node=place.numa_node,
        link=function.link,
    )


def _data_direct(pci: Element, address: PciAddress, place: Place) -> DataDirect:
    names = [net.attributes.get("name", "") for nic in pci.every("nic") for net in nic.every("net")]
    return DataDirect(
        pci=address,
        path=place.path(address),
        function=read_function(pci),
        numa_node=place.numa_node,
        hcas=tuple(sorted({name.removesuffix(DATA_DIRECT_SUFFIX) for name in names if name})),
    )


def _nic(pci: Element, address: PciAddress, place: Place, devices: Devices) -> Iterator[Hca]:
    """Yield the HCAs of a function: as its nets name them, or one called by its address."""
    nic = pci.first("nic")
    if nic is not None and nic.first("net") is not None:
        yield from _hcas(nic, pci, place, devices)
    else:
        yield _hca(str(address), pci, place)


def _hcas(nic: Element, pci: Element | None, place: Place, devices: Devices) -> Iterator[Hca]:
    """Yield one HCA with one port for each net."""
    for net in nic.every("net"):
        name = net.attributes.get("name", "").strip()
        port = number(net, "port", 0, 255)
        if not name:
            devices.left_out["net", "an interface without a name"] += 1
        elif FUSED in name:
            devices.left_out["net", "HCAs fused into one"] += 1
        elif port == 0:
            # Ports of HCAs count from 1; the 0 is that of NCCL's socket transport.
            devices.left_out["net", "an interface without RDMA"] += 1
        else:
            yield _with_port(_hca(name, pci, place), net, port)


def _hca(name: str, pci: Element | None, place: Place) -> Hca:
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


def _with_port(hca: Hca, net: Element, port: int | None) -> Hca:
    """Return *hca* with what its net says: NCCL's speed is in Mb/s."""
    guid = system_image_guid(net)
    if port is None:
        return replace(hca, sys_image_guid=guid)
    speed = number(net, "speed", 0, _MAX_SPEED_MBPS)
    rate = speed / 1000 if speed else None
    return replace(hca, sys_image_guid=guid, ports=(HcaPort(number=port, rate_gbps=rate),))


def gpus_and_nvlinks(
    devices: Devices,
) -> tuple[tuple[Gpu, ...], tuple[NvLink, ...] | None, list[tuple[str, str]]]:
    """Return the GPUs by index, their NVLinks by (gpu, link), and what was wrong with them.

    Raises:
        DecodeError: a value that cannot be.
    """
    indices, issues = _indices(list(devices.gpus.values()))
    found = sorted(zip(indices, devices.gpus.values(), strict=True), key=lambda pair: pair[0])
    elements = [gpu.gpu for _, gpu in found]
    are_links_known = bool(elements) and all(element is not None for element in elements)
    if not are_links_known and any(element is not None for element in elements):
        issues.append(("nvlink", "not every GPU has a gpu element, so links are left out"))
    gpus = tuple(_gpu(index, gpu) for index, gpu in found)
    links = tuple(link for index, gpu in found for link in _nvlinks(index, gpu.gpu))
    return gpus, links if are_links_known else None, issues


def _indices(gpus: list[FoundGpu]) -> tuple[list[int], list[tuple[str, str]]]:
    """Return each GPU's index: its ``dev``, or its place among all by PCI address."""
    given = [_index(gpu) for gpu in gpus]
    known = [index for index in given if index is not None]
    if len(known) == len(gpus) and len(set(known)) == len(known):
        return known, []
    position = {address: at for at, address in enumerate(sorted(gpu.address for gpu in gpus))}
    issues = [("gpu", "dev is not given once for each, GPUs are counted by PCI address")]
    return [position[gpu.address] for gpu in gpus], issues if known else []


def _index(gpu: FoundGpu) -> int | None:
    return None if gpu.gpu is None else number(gpu.gpu, "dev", 0, _MAX_INDEX)


def _gpu(index: int, gpu: FoundGpu) -> Gpu:
    sm = None if gpu.gpu is None else number(gpu.gpu, "sm", 10, 999)
    capability = None if sm is None else divmod(sm, 10)
    return Gpu(
        index=index,
        pci=gpu.address,
        path=gpu.place.path(gpu.address),
        function=read_function(gpu.pci),
        architecture=None if capability is None else architecture(capability),
        compute_capability=capability,
        numa_node=gpu.place.numa_node,
        cpu_affinity=gpu.place.cpus or None,
        c2c=None if gpu.gpu is None else _c2c(gpu.gpu),
    )


def _c2c(gpu: Element) -> C2c | None:
    element = gpu.first("c2c")
    if element is None:
        return None
    return C2c(
        is_enabled=True,
        links=number(element, "count", 0, _MAX_LINKS),
        speed_mbps=number(element, "bw", 0, _MAX_SPEED_MBPS),
    )


def _nvlinks(index: int, gpu: Element | None) -> Iterator[NvLink]:
    """Yield as many links as the element counts; their numbers are ours, the file has none."""
    next_link = 0
    for element in gpu.every("nvlink") if gpu is not None else ():
        count = number(element, "count", 0, _MAX_LINKS)
        if count is None or next_link + count > _MAX_LINKS:
            raise DecodeError(f"{element.at}.count", "missing, or more than a GPU has", CURE)
        is_hidden = element.attributes.get("target") == HIDDEN_TARGET
        peer = None if is_hidden else read_address(element, "target")
        kind = PeerKind.SWITCH if is_hidden else peer_kind(element)
        for _ in range(count):
            yield NvLink(gpu=index, link=next_link, is_active=True, peer=peer, peer_kind=kind)
            next_link += 1
