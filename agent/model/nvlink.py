"""NVLink: single links, switches, and what the driver says of a pair of devices."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from agent.model.pci import PciAddress


class Closeness(IntEnum):
    """How far two devices are apart on PCIe; ``min()`` is nearest.

    The values are those of ``nvmlGpuTopologyLevel_t`` (nvml.h), the names those that
    ``nvidia-smi topo -m`` prints. NVML's INTERNAL (two GPUs of one board) prints as PIX.
    """

    INTERNAL = 0
    PIX = 10
    PXB = 20
    PHB = 30
    NODE = 40
    SYS = 50


class PeerKind(StrEnum):
    """What is at the far end of an NVLink (``nvmlIntNvLinkDeviceType_t``)."""

    GPU = "gpu"
    SWITCH = "switch"
    CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """One NVLink of one GPU. A *count* of links is ``len()``, never a field.

    Attributes:
        gpu: index of the GPU that owns this end.
        link: link number on that GPU.
        is_active: ``None`` if NVML would not say.
        peer: PCI address of the far end; for a switch it names the switch, or is ``None``
            where the driver hides it behind the sentinel ``ffffffff:ff:ff.f``.
        version: NVLink generation, 1…5.
        speed_mbps: megabytes per second, one direction, as the driver reports it.
    """

    gpu: int
    link: int
    is_active: bool | None
    version: int | None = None
    peer: PciAddress | None = None
    peer_kind: PeerKind | None = None
    speed_mbps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvSwitch:
    """An NVSwitch that shows itself as a PCI function (class 0680, vendor 10de)."""

    pci: PciAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPair:
    """What NVML or a matrix text says of two devices, order of the two without meaning.

    Attributes:
        a, b: row names, ``GPU<index>`` or ``NIC<position>``, as the matrix prints them.
        closeness: PCIe distance; ``None`` where the source does not say.
        nvlinks: NVLinks between the two, where the source counts them itself (text);
            ``None`` means: derive it from the links.
        p2p_nvlink: whether the driver allows peer access over NVLink.
    """

    a: str
    b: str
    closeness: Closeness | None = None
    nvlinks: int | None = None
    p2p_nvlink: bool | None = None
