"""The attributes of an NCCL topology, read into the model's own types."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from agent.errors import DecodeError
from agent.model.numa import CpuSet
from agent.model.nvlink import PeerKind
from agent.model.pci import GT_S_TO_GENERATION, PciAddress, PcieLink, PciFunction
from agent.probes.importers.nccl_xml_tree import CURE, Element

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


def address(element: Element, name: str) -> PciAddress:
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


def function(element: Element) -> PciFunction:
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
