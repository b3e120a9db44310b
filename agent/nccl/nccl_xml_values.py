"""Values of the model as NCCL's topology file spells them."""

from collections.abc import Mapping
from types import MappingProxyType

from agent.model.numa import CpuSet
from agent.model.pci import GT_S_TO_GENERATION, PcieLink

MAX_VALUE = 254
"""Longest value of an attribute that NCCL reads (xml.h, ``MAX_STR_LEN``)."""

CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "bridge": "060400",
        "gpu": "030200",
        "nic": "020700",
        "data direct": "080100",
        "switch": "068000",
        "cpu": "068001",
    },
)
"""PCI classes by which NCCL tells elements apart (topo.cc, ``kvDictPciClass``)."""

_GT_S = MappingProxyType({generation: rate for rate, generation in GT_S_TO_GENERATION.items()})
_FASTEST = 64.0
"""GT/s; NCCL takes any speed it does not know for 8 GT/s (topo.cc, ``kvDictPciGen``)."""

_EXTENDED = 15
"""CPUID leaf 1: from family 15 on, the extended family is added (AMD, Intel manuals)."""


def cpu_mask(cpus: CpuSet, highest: int) -> str | None:
    """Return sysfs's ``cpumap`` form for a machine whose last CPU is *highest*.

    ``None`` where the value would be too long for NCCL, beyond 896 CPUs.
    """
    mask = sum(1 << cpu for cpu in cpus.cpus)
    groups = [f"{mask >> 32 * at & 0xFFFFFFFF:08x}" for at in range(highest // 32 + 1)]
    text = ",".join(reversed(groups))
    return text if len(text) <= MAX_VALUE else None


def cpu_family(family: int) -> int:
    """Return NCCL's family + 16 × extended family, from Linux's family + extended family."""
    if family <= _EXTENDED:
        return family
    return _EXTENDED + ((family - _EXTENDED) << 4)


def narrowest(one: PcieLink | None, other: PcieLink | None) -> PcieLink | None:
    """Return what two ends can do together at best, as far as it is known."""
    ends = [end for end in (one, other) if end is not None]
    generations = [value for end in ends if (value := end.max_generation or end.generation)]
    widths = [value for end in ends if (value := end.max_width or end.width)]
    if not generations and not widths:
        return None
    return PcieLink(generation=min(generations, default=None), width=min(widths, default=None))


def link_attributes(link: PcieLink | None) -> dict[str, str]:
    """Return ``link_speed`` per lane and ``link_width``, what is known of them."""
    attributes = {}
    rate = None if link is None or link.generation is None else _GT_S.get(link.generation)
    if rate is not None:
        attributes["link_speed"] = f"{min(rate, _FASTEST):.1f} GT/s PCIe"
    if link is not None and link.width is not None:
        attributes["link_width"] = str(link.width)
    return attributes


def net_guid(sys_image_guid: str | None) -> str | None:
    """Return NCCL's ``guid``: the bytes of sysfs's ``946d:ae03:0050:709a`` in reverse."""
    digits = (sys_image_guid or "").replace(":", "")
    try:
        number = int.from_bytes(bytes.fromhex(digits), "little")
    except ValueError:
        return None
    return f"0x{number:x}" if number and len(digits) == 16 else None
