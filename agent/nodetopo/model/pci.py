"""PCI functions: their addresses, paths, links and bridges."""

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Self

from msgspec import Struct

from nodetopo.model.limits import (
    MAX_HOPS,
    MAX_PCI_CONTROL,
    Count,
    Lanes,
    NumaId,
    PayloadBytes,
    Range,
)
from nodetopo.model.numa import CpuSet

_ADDRESS = re.compile(
    r"(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])",
    re.IGNORECASE,
)
GT_S_TO_GENERATION: Mapping[float, int] = MappingProxyType(
    {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7},
)
"""Transfer rate per lane (GT/s) to PCI Express generation (PCI-SIG base specifications)."""


class PciAddress(Struct, frozen=True, order=True):
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

    @classmethod
    def parse_or_none(cls, text: str) -> Self | None:
        """Read what :meth:`parse` reads; return ``None`` for anything else."""
        try:
            return cls.parse(text)
        except ValueError:
            return None

    @classmethod
    def as_written(cls, text: str) -> Self | None:
        """Read an address as nvidia-smi and lspci write it, domain 0 named or left out."""
        return cls.parse_or_none(text) or cls.parse_or_none(f"0000:{text}")

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


class PciPath(Struct, frozen=True, kw_only=True):
    """The path from the host bridge down to a function, as sysfs's real path spells it."""

    # Such as pci0000:16 (DRA's `pcieRoot`); None where the source names none (NCCL XML).
    root: str | None
    # Root port first, then each bridge, the function itself last.
    hops: Annotated[tuple[PciAddress, ...], Count(1, MAX_HOPS)]
    # The source writes one hop for each switch, its upstream port, and no root ports (NCCL's XML
    # does), so that hops count switches rather than ports.
    is_collapsed: bool = False


class PcieLink(Struct, frozen=True, kw_only=True):
    """The current and the highest generation and lane count of a PCI Express link.

    The current generation drops when a GPU idles, so a low value alone is not a fault;
    the width does not (NVIDIA NVML API reference, nvmlDeviceGetCurrPcieLinkGeneration).
    """

    generation: Lanes | None = None
    width: Lanes | None = None
    max_generation: Lanes | None = None
    max_width: Lanes | None = None


class IommuType(StrEnum):
    """How the IOMMU treats a group (sysfs ``iommu_groups/N/type``, kernel ABI documentation).

    ``identity`` passes addresses through; the two DMA types translate them, which sends peer
    traffic through the root complex; ``unmanaged`` is a group whose driver maps by itself
    (a virtual machine's), ``blocked`` one that no driver owns.
    """

    IDENTITY = "identity"
    DMA = "DMA"
    DMA_FQ = "DMA-FQ"
    BLOCKED = "blocked"
    UNMANAGED = "unmanaged"


class VgpuHost(Struct, frozen=True, kw_only=True):
    """The driver of the host that a virtual GPU comes from, as the GPU reports it to its guest."""

    # driver_version, driver_branch: such as 460.16 and r460_00; 10 characters at most
    driver_version: str
    driver_branch: str


class PciFunction(Struct, frozen=True, kw_only=True):
    """The PCI function of a GPU or an HCA as sysfs shows it, whatever its driver."""

    pci_class: str | None = None  # six lower-case hex digits
    # vendor, device, subsystem_vendor, subsystem_device: PCI ids, four lower-case hex digits
    vendor: str | None = None
    device: str | None = None
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    driver: str | None = None  # bound kernel driver: nvidia, mlx5_core, vfio-pci
    link: PcieLink | None = None  # the device's end; the other end is the last bridge of its path
    local_cpus: CpuSet | None = None  # those that the kernel calls near
    # iommu_group, iommu_type: None where the kernel uses no IOMMU
    iommu_group: int | None = None
    iommu_type: IommuType | None = None
    # max_payload, max_read_request: bytes (PCI Express device control, bits 7:5 and 14:12)
    max_payload: PayloadBytes | None = None
    max_read_request: PayloadBytes | None = None
    relaxed_ordering: bool | None = None  # allowed to ask for it (device control, bit 4)
    # It has Address Translation Services (extended capability 000F); None where config space could
    # not be read in full (it needs CAP_SYS_ADMIN).
    has_ats: bool | None = None
    ats_enabled: bool | None = None  # bit 15 of their control register; None without them
    is_virtual: bool = False  # an SR-IOV virtual function
    # None for anything but an NVIDIA vGPU, and where config space hides it.
    vgpu_host: VgpuHost | None = None


class BridgeKind(StrEnum):
    """What a bridge is (PCI Express capabilities register, device/port type)."""

    ROOT_PORT = "root-port"
    UPSTREAM = "switch-upstream"
    DOWNSTREAM = "switch-downstream"
    PCI_BRIDGE = "pci-bridge"


ACS_REDIRECT_BITS = 0x04 | 0x08 | 0x20
"""P2P Request Redirect, P2P Completion Redirect, P2P Egress Control (PCI Express Base
Specification, ACS Control Register). Source validation alone, bit 0, redirects nothing."""


class PciBridge(Struct, frozen=True, kw_only=True):
    """A bridge on the way to a GPU or an HCA: root port, or a switch's port."""

    address: PciAddress
    # None where config space could not be read and it is no root port.
    kind: BridgeKind | None = None
    # vendor, device, subsystem_vendor, subsystem_device: PCI ids, four lower-case hex digits
    vendor: str | None = None
    device: str | None = None
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    numa_node: NumaId | None = None  # None where sysfs says −1
    link: PcieLink | None = None  # of this port; for a downstream or root port, to the device below
    max_payload: PayloadBytes | None = None  # bytes (device control, bits 7:5)
    # What the bridge can do of Access Control Services, their capability register; 0 for a bridge
    # without them, None like `acs_control`.
    acs_capability: Annotated[int, Range(0, MAX_PCI_CONTROL)] | None = None
    # The Access Control Services control register, 0 for a bridge without them; None where config
    # space could not be read (it needs CAP_SYS_ADMIN).
    acs_control: Annotated[int, Range(0, MAX_PCI_CONTROL)] | None = None

    @property
    def has_acs(self) -> bool | None:
        """Whether the bridge has Access Control Services at all; ``None`` is unknown."""
        if self.acs_control:  # older files have no more
            return True
        return None if self.acs_capability is None else self.acs_capability > 0

    @property
    def redirects_peers(self) -> bool | None:
        """Whether ACS sends peer traffic up through the root complex; ``None`` is unknown."""
        return None if self.acs_control is None else bool(self.acs_control & ACS_REDIRECT_BITS)
