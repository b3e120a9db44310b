"""NVLink: single links, switches, and what the driver reports about a pair of devices."""

from enum import IntEnum, StrEnum
from typing import Annotated

from msgspec import Struct

from nodetopo.model.limits import MAX_PAIRED_LINKS, GpuIndex, LinkNumber, Range, SpeedMbps
from nodetopo.model.pci import PciAddress


class Closeness(IntEnum):
    """The distance of two devices on PCIe; ``min()`` is nearest.

    The values follow ``nvmlGpuTopologyLevel_t`` (nvml.h), the names ``nvidia-smi topo -m``. NVML's
    INTERNAL (two GPUs of one board) prints as PIX.
    """

    INTERNAL = 0
    PIX = 10
    PXB = 20
    PHB = 30
    NODE = 40
    SYS = 50


class PeerKind(StrEnum):
    """The device at the far end of an NVLink (``nvmlIntNvLinkDeviceType_t``)."""

    GPU = "gpu"
    SWITCH = "switch"
    CPU = "cpu"


class NvLink(Struct, frozen=True, kw_only=True):
    """One NVLink of one GPU. A *count* of links is ``len()``, never a field.

    How many the product has, connected or not, is :attr:`nodetopo.model.gpu.Gpu.nvlink_count`.
    """

    gpu: GpuIndex  # owns this end
    link: LinkNumber  # its number on that GPU
    is_active: bool | None  # None if NVML would not say
    version: int | None = None  # the generation: 1, 2, …
    # Of a switch: the switch, or None where the driver hides it behind ffffffff:ff:ff.f.
    peer: PciAddress | None = None
    peer_kind: PeerKind | None = None
    peer_link: LinkNumber | None = None  # the number at the far end, by its own count
    # Megabytes per second, one direction, as the driver reports it.
    speed_mbps: SpeedMbps | None = None
    # How often the link was retrained after errors (field `NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY`),
    # since its counters were cleared; from NVLink 5 on, which retrains routinely, how often that
    # failed (`NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS`). At the last whole scan.
    recoveries: int | None = None


class NvSwitch(Struct, frozen=True, kw_only=True):
    """An NVSwitch that shows itself as a PCI function (class 0680, vendor 10de)."""

    pci: PciAddress


class P2pStatus(StrEnum):
    """Whether the driver allows peer access (``nvmlGpuP2PStatus_t``, in its order)."""

    OK = "ok"
    CHIPSET_NOT_SUPPORTED = "chipset-not-supported"
    GPU_NOT_SUPPORTED = "gpu-not-supported"
    TOPOLOGY_NOT_SUPPORTED = "topology-not-supported"
    DISABLED_BY_REGKEY = "disabled-by-regkey"
    NOT_SUPPORTED = "not-supported"


class PeerAccess(Struct, frozen=True, kw_only=True):
    """One GPU's access to another's memory (``nvmlDeviceGetP2PStatus``), one direction."""

    # read, write: over any path
    read: P2pStatus | None = None
    write: P2pStatus | None = None
    nvlink: P2pStatus | None = None  # over NVLink alone


class ReportedPair(Struct, frozen=True, kw_only=True):
    """A report on two devices by NVML or a matrix text."""

    # a, b: row names of the matrix: GPU<index>, NIC<position>, or DD<position>
    a: str
    b: str
    closeness: Closeness | None = None  # by PCIe
    # Between both, where a text counts them; None: derive it from the links.
    nvlinks: Annotated[int, Range(0, MAX_PAIRED_LINKS)] | None = None
    # forward, backward: access of `a` to `b`'s memory, and of `b` to `a`'s
    forward: PeerAccess | None = None
    backward: PeerAccess | None = None

    @property
    def p2p_nvlink(self) -> bool | None:
        """Whether both directions are allowed over NVLink; ``None`` if neither is known.

        One refusal is enough for False: a pair is used both ways.
        """
        directions = [access for access in (self.forward, self.backward) if access is not None]
        known = [access.nvlink for access in directions if access.nvlink is not None]
        return all(status is P2pStatus.OK for status in known) if known else None
