"""Records of the node's GPUs, which survive a restart of the agent.

All times are seconds of the monotonic clock, valid only within one boot.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.nvml_event import NvmlTrouble
from nodetopo.model.pci import PciAddress

MAX_GPUS = 256
"""Most GPUs that are remembered; the largest node known to us has 16, its MIG devices apart."""

MAX_FAULTS = 64
"""Most faults kept of one GPU, the worst of them; more can only be noise."""

RANK: Mapping[HealthClass, int] = {kind: rank for rank, kind in enumerate(HealthClass)}
"""How bad a class is; members of :class:`HealthClass` are ordered from the mildest to the worst."""


class Heal(StrEnum):
    """The evidence that ends a fault; each must hold for ``recovery_s``."""

    SIGHT = "sight"
    """The GPU looks sound: it answers, nothing is pending, its links are up, and the driver, if it
    reports an action, requests none.
    """
    RESET = "reset"
    """The same, and the driver reports that no action is needed, or a reset was seen."""
    QUIET = "quiet"
    """The same as SIGHT, and it did not happen again for ``degraded_s``, or a reset was seen."""
    BOOT = "boot"
    """Another boot of the node."""
    OPERATOR = "operator"
    """An operator's word."""


class Fault(Struct, frozen=True, kw_only=True):
    """A fault of a GPU."""

    reason: str  # CamelCase, unique in its GPU
    said: str  # a description, as a sentence without its full stop
    kind: HealthClass
    heal: Heal
    # first, last: times of the first and the latest occurrence.
    first: float
    last: float
    xid: int | None = None  # the code, if an XID reported the fault
    # The first look of an unbroken series with evidence of recovery.
    sound_since: float | None = None

    @property
    def is_fatal(self) -> bool:
        """Whether the GPU must not be handed out."""
        return RANK[self.kind] > RANK[HealthClass.DEGRADED]


class Window(Struct, frozen=True, kw_only=True):
    """The last occurrences of one XID on one GPU."""

    xid: int
    since: float  # when the time began in which more of the same are no new occurrence
    repeats: tuple[float, ...] = ()  # the occurrences that count as repeated, oldest first


class GpuRecord(Struct, frozen=True, kw_only=True):
    """One GPU."""

    name: str | None = None  # ``GPU<index>``; ``None`` for a GPU known only from events
    pci: PciAddress | None = None
    is_listed: bool = False  # NVML has listed it in this boot
    was_on_bus: bool = False  # the PCI bus has shown it in this boot
    links: int = 0  # most active NVLinks seen in this boot, MIG mode apart
    # action, volatile: recovery action and uncorrectable errors last reported by the driver.
    action: int | None = None
    volatile: int | None = None
    # Reasons of faults for changes that awaited a reset in the driver's last report.
    pending: tuple[str, ...] = ()
    # The begin of the last scan that reported all of these, or of the process that took them from a
    # file; ``None`` before both.
    shown_at: float | None = None
    reset_at: float | None = None  # a time that the last reset followed
    faults: tuple[Fault, ...] = ()  # by reason
    falls: tuple[float, ...] = ()  # when it turned Unhealthy, oldest first
    windows: tuple[Window, ...] = ()  # by XID

    @property
    def is_healthy(self) -> bool:
        """Whether no fault of the GPU itself keeps it from pods."""
        return not any(fault.is_fatal for fault in self.faults)

    def was_reset_after(self, fault: Fault) -> bool:
        """Return whether a reset was seen since the latest occurrence of *fault*."""
        return self.reset_at is not None and self.reset_at > fault.last


class NvmlRecord(Struct, frozen=True, kw_only=True):
    """The state of NVML as a whole."""

    # trouble, code, since: the problem and the time without readings; ``None`` without one.
    trouble: NvmlTrouble | None = None
    code: int | None = None
    since: float | None = None
    trouble_since: float | None = None  # when this process first saw the current *trouble*
    cause: str | None = None  # for a person
    unanswered: int = 0  # consecutive unanswered attempts
    failures: int = 0  # the counter at the last look, to detect new attempts
    shows_gpus: bool = False  # the PCI bus shows GPUs, so that NVML should
    reason: str | None = None  # of the verdict that all GPUs are Unhealthy; ``None`` without one
    back_since: float | None = None  # the first reading after that verdict
    fresh_at: float | None = None  # when a container restart was last requested
    wants_fresh: bool = False  # a container restart is requested now


class HealthState(Struct, frozen=True, kw_only=True):
    """Everything that verdicts rest on."""

    # The boot that the times belong to; ``None`` where the kernel did not say.
    boot_id: str | None = None
    # By :attr:`nodetopo.model.gpu.Gpu.id`.
    gpus: Mapping[str, GpuRecord] = field(default_factory=dict)
    nvml: NvmlRecord = NvmlRecord()
