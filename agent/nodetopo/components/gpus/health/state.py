"""What is remembered of the node's GPUs: records that survive a restart of the agent.

All times are seconds of the monotonic clock, which means something within one boot alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.nvml_event import NvmlTrouble
from nodetopo.model.pci import PciAddress

MAX_GPUS = 256
"""Most GPUs that are remembered; the largest node known to us has 16, its MIG devices apart."""

MAX_FAULTS = 64
"""Most faults kept of one GPU, the worst of them; more can only be noise."""

RANK: Mapping[HealthClass, int] = {kind: rank for rank, kind in enumerate(HealthClass)}
"""How bad a class is; members of :class:`HealthClass` stand from the mildest to the worst."""


class Heal(StrEnum):
    """The evidence that ends a fault; each has to hold for ``recovery_s``."""

    SIGHT = "sight"
    """The GPU looks sound: it answers, nothing is pending, its links are up, and the driver, where
    it says, asks for nothing."""
    RESET = "reset"
    """The same, and the driver says that it asks for nothing, or a reset was seen."""
    QUIET = "quiet"
    """The same as SIGHT, and it did not happen again for ``degraded_s``, or a reset was seen."""
    BOOT = "boot"
    """Another boot of the node."""
    OPERATOR = "operator"
    """An operator's word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a GPU.

    Attributes:
        reason: CamelCase, unique in its GPU.
        said: what happened, as a sentence without its full stop.
        first, last: when it was met.
        xid: the code, of a fault that an XID reported.
        sound_since: the first look of an unbroken row with evidence that it is over.
    """

    reason: str
    said: str
    kind: HealthClass
    heal: Heal
    first: float
    last: float
    xid: int | None = None
    sound_since: float | None = None

    @property
    def is_fatal(self) -> bool:
        """Whether the GPU must not be handed out."""
        return RANK[self.kind] > RANK[HealthClass.DEGRADED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The last occurrences of one XID on one GPU.

    Attributes:
        since: when the time began in which more of the same are no new occurrence.
        repeats: the occurrences that count as repeated, oldest first.
    """

    xid: int
    since: float
    repeats: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRecord:
    """One GPU.

    Attributes:
        name: ``GPU<index>``; ``None`` of one that only events told of.
        is_listed: NVML has listed it in this boot.
        was_on_bus: the PCI bus has shown it in this boot.
        links: most active NVLinks seen in this boot, MIG mode apart.
        action, volatile: recovery action and uncorrectable errors as the driver last told them.
        pending: the reasons of faults for what waited for a reset when the driver last told so.
        reset_at: when a reset was last seen to have happened.
        faults: by reason.
        falls: when it turned Unhealthy, oldest first.
        windows: by XID.
    """

    name: str | None = None
    pci: PciAddress | None = None
    is_listed: bool = False
    was_on_bus: bool = False
    links: int = 0
    action: int | None = None
    volatile: int | None = None
    pending: tuple[str, ...] = ()
    reset_at: float | None = None
    faults: tuple[Fault, ...] = ()
    falls: tuple[float, ...] = ()
    windows: tuple[Window, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether nothing of its own keeps it from being handed out."""
        return not any(fault.is_fatal for fault in self.faults)

    def was_reset_after(self, fault: Fault) -> bool:
        """Tell whether a reset was seen since *fault* was met last."""
        return self.reset_at is not None and self.reset_at > fault.last


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlRecord:
    """How NVML as a whole is doing.

    Attributes:
        trouble, code, since: what is wrong and since when no reading came; ``None`` if nothing.
        trouble_since: since when this process sees *trouble*, and no other.
        cause: for a person.
        unanswered: attempts in a row that were not answered.
        failures: the counter of the last look, to tell new attempts by.
        shows_gpus: the PCI bus shows GPUs, so that NVML should.
        reason: of the verdict that all GPUs are Unhealthy; ``None`` without one.
        back_since: the first reading after that verdict.
        fresh_at: when a fresh container was last asked for.
        wants_fresh: one is asked for now.
    """

    trouble: NvmlTrouble | None = None
    code: int | None = None
    since: float | None = None
    trouble_since: float | None = None
    cause: str | None = None
    unanswered: int = 0
    failures: int = 0
    shows_gpus: bool = False
    reason: str | None = None
    back_since: float | None = None
    fresh_at: float | None = None
    wants_fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthState:
    """Everything that verdicts rest on.

    Attributes:
        boot_id: the boot that the times belong to; ``None`` where the kernel did not say.
        gpus: by :attr:`nodetopo.model.gpu.Gpu.id`.
    """

    boot_id: str | None = None
    gpus: Mapping[str, GpuRecord] = field(default_factory=dict)
    nvml: NvmlRecord = NvmlRecord()
