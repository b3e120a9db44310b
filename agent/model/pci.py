"""PCI functions: their addresses, their place in the tree, their links."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

_ADDRESS = re.compile(
    r"(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])",
    re.IGNORECASE,
)
GT_S_TO_GENERATION: Mapping[float, int] = MappingProxyType(
    {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7},
)
"""Transfer rate per lane (GT/s) to PCI Express generation (PCI-SIG base specifications)."""


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """Where a PCI function sits: domain, bus, device, function.

    ``str()`` gives the key that sysfs uses, ``0000:1b:00.0``; addresses sort in that order.
    """

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read sysfs's 4-digit or NVML's 8-digit domain form, in either case.

        Raises:
            ValueError: *text* is not a PCI address.
        """
        match = _ADDRESS.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a PCI address: {text!r}")
        return cls(*(int(part, 16) for part in match.groups()))

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PciPath:
    """The way from the host bridge down to a function, as sysfs's real path spells it.

    Attributes:
        root: the host bridge, e.g. ``pci0000:16`` (the value of DRA's ``pcieRoot``).
        hops: root port first, every bridge on the way, the function itself last.
    """

    root: str
    hops: tuple[PciAddress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    """What a PCI Express link runs at and what it could; generations and lane counts.

    The current generation drops when a GPU idles, so a low value alone is no fault;
    the width does not (NVIDIA NVML API reference, nvmlDeviceGetCurrPcieLinkGeneration).
    """

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PciBridge:
    """A bridge on the way to a GPU or an HCA: root port, or a switch's port.

    Attributes:
        vendor, device: PCI ids, four lower-case hex digits.
        numa_node: ``None`` where sysfs says −1.
        acs: whether Access Control Services redirect peer traffic through the root;
            ``None`` where the config space could not be read (it needs CAP_SYS_ADMIN).
    """

    address: PciAddress
    vendor: str | None = None
    device: str | None = None
    numa_node: int | None = None
    link: PcieLink | None = None
    acs: bool | None = None
