"""What `/proc/cpuinfo` says of the CPU model; its lines differ from architecture to architecture.

Kernel sources: arch/x86/kernel/cpu/proc.c, arch/arm64/kernel/cpuinfo.c,
arch/powerpc/kernel/setup-common.c.
"""

import re
from dataclasses import dataclass

_LINE = r"^{}[ \t]*:[ \t]*(.+)$"
_VENDOR = re.compile(_LINE.format("vendor_id"), re.MULTILINE)
_MODEL = re.compile(_LINE.format("model name"), re.MULTILINE)
_FAMILY = re.compile(r"^cpu family[ \t]*:[ \t]*([0-9]{1,6})$", re.MULTILINE)
_NUMBER = re.compile(r"^model[ \t]*:[ \t]*([0-9]{1,6})$", re.MULTILINE)
_FLAGS = re.compile(_LINE.format("flags"), re.MULTILINE)
_POWER = re.compile(_LINE.format("cpu"), re.MULTILINE)
_IMPLEMENTER = re.compile(r"^CPU implementer[ \t]*:[ \t]*0x([0-9a-f]{1,2})$", re.MULTILINE)
_PART = re.compile(r"^CPU part[ \t]*:[ \t]*0x([0-9a-f]{1,3})$", re.MULTILINE)

_ARM = 0x41
_IMPLEMENTERS = {_ARM: "ARM", 0x4E: "NVIDIA", 0xC0: "Ampere"}
_PARTS = {
    (_ARM, 0xD0C): "Neoverse-N1",
    (_ARM, 0xD40): "Neoverse-V1",
    (_ARM, 0xD49): "Neoverse-N2",
    (_ARM, 0xD4F): "Neoverse-V2",  # Grace
    (_ARM, 0xD85): "Cortex-X925",  # GB10
    (_ARM, 0xD87): "Cortex-A725",  # GB10
}
"""Fields of MIDR_EL1 (kernel arch/arm64/include/asm/cputype.h): arm64 prints no names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuModel:
    """The CPU's make; ``None`` is what the architecture does not print.

    Attributes:
        model: of arm64 the names of its kinds of core, joined by `` + ``; a part that we
            have no name for stays ``0xd4f``.
        family, model_number: of x86, decimal as printed there.
        is_virtual: of x86, whether the flag ``hypervisor`` is set.
    """

    vendor: str | None = None
    model: str | None = None
    family: int | None = None
    model_number: int | None = None
    is_virtual: bool | None = None


def parse_cpuinfo(text: str) -> CpuModel:
    """Return the make of the first CPU, and of every kind of core on arm64."""
    if _IMPLEMENTER.search(text):
        return _arm(text)
    flags = _first(_FLAGS, text)
    family = _first(_FAMILY, text)
    number = None if family is None else _first(_NUMBER, text)
    return CpuModel(
        vendor=_first(_VENDOR, text),
        model=_first(_MODEL, text) or _first(_POWER, text),
        family=None if family is None else int(family),
        model_number=None if number is None else int(number),
        is_virtual=None if flags is None else "hypervisor" in flags.split(),
    )


def _arm(text: str) -> CpuModel:
    implementers = [int(found, 16) for found in _IMPLEMENTER.findall(text)]
    parts = [int(found, 16) for found in _PART.findall(text)]
    kinds = dict.fromkeys(zip(implementers, parts, strict=False))
    vendor = implementers[0]
    return CpuModel(
        vendor=_IMPLEMENTERS.get(vendor, f"{vendor:#04x}"),
        model=" + ".join(_PARTS.get(kind, f"{kind[1]:#05x}") for kind in kinds) or None,
    )


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return (match[1].strip() or None) if match else None
