"""A scan's evidence about a GPU, and the faults that it ends.

A value that the driver does not report this time counts as last reported: a failed call is no news,
good or bad.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.gpus.health.recovery import NONE, recovery_action
from nodetopo.components.gpus.health.reported import kept
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.state import Fault, GpuRecord, Heal, HealthState
from nodetopo.model.gpu import Gpu
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.lanes import missing_lanes

_PENDING: Mapping[str, str] = MappingProxyType(
    {
        "RowRemapPending": "a memory row waits for a reset to be remapped",
        "PageRetirementPending": "memory pages wait for a reset to be retired",
    }
)
"""By reason."""


LANES = "PcieLanesMissing"
"""The reason for a link that trained to fewer lanes. It can last as long as the GPU is in its slot,
and says nothing about other faults: they heal meanwhile."""


class Look(Struct, frozen=True, kw_only=True):
    """A GPU in one snapshot."""

    gpu: Gpu | None  # NVML's facts; ``None`` without a reading that lists the GPU
    began: float  # the start of the scan, which proves nothing about later events
    is_fresh: bool  # the snapshot holds a reading of NVML made for it
    on_bus: bool | None  # whether the PCI bus shows the GPU; ``None`` if unknown
    # links, down_links: numbers of its active and inactive NVLinks, without those of unknown state.
    # ``None`` where no links were read.
    links: int | None = None
    down_links: int = 0
    # The lanes of its PCIe link and how many it could have, where these are more.
    missing_lanes: tuple[int, int] | None = None

    @property
    def answers(self) -> bool:
        """Whether NVML just returned facts about the GPU."""
        return self.is_fresh and self.gpu is not None and not self.gpu.is_lost

    @property
    def is_partitioned(self) -> bool:
        """Whether MIG is on, which can take the NVLinks down."""
        return self.gpu is not None and self.gpu.is_divided


def look_at(
    record: GpuRecord, gpu: Gpu | None, snapshot: Snapshot, *, began: float, is_fresh: bool
) -> Look:
    """Return what *snapshot* shows of the GPU that *record* is about.

    A PCI census without any GPU does not count against an NVML that answers: then `/sys` is not
    this node's.
    """
    address = gpu.pci if gpu is not None and gpu.pci is not None else record.pci
    on_bus = None if None in (address, snapshot.pci_gpus) else address in (snapshot.pci_gpus or ())
    if not snapshot.pci_gpus and is_fresh and gpu is not None and not gpu.is_lost:
        on_bus = None
    links = snapshot.nvlinks
    states = [link.is_active for link in links or () if gpu and link.gpu == gpu.index]
    return Look(
        gpu=gpu if is_fresh else None,
        began=began,
        is_fresh=is_fresh,
        on_bus=on_bus,
        links=None if links is None else states.count(True),
        down_links=states.count(False),
        missing_lanes=missing_lanes(snapshot).get(gpu.index) if gpu else None,
    )


def with_look(record: GpuRecord, look: Look, now: float, rules: HealthRules) -> GpuRecord:
    """Return *record* after *look*: with new faults, without those that evidence has ended."""
    record = _with_facts(record, look)
    seen = {fault.reason: fault for fault in _seen(record, look, now)}
    has_links = look.is_partitioned or record.links <= (look.links or 0)
    lasting = [f for f in seen.values() if f.kind is HealthClass.RMA or f.reason == LANES]
    is_sound = look.answers and has_links and len(lasting) == len(seen)
    left = []
    for fault in record.faults:
        again = seen.pop(fault.reason, None)
        if again is not None:
            left.append(replace(again, first=fault.first))
            continue
        is_later = fault.last <= look.began
        if is_sound and is_later and _ends(look, fault, record):
            since = now if fault.sound_since is None else fault.sound_since
        else:
            since = None
        if since != fault.sound_since:
            fault = replace(fault, sound_since=since)  # noqa: PLW2901 - the same, with evidence
        if not is_over(fault, record, now, rules):
            left.append(fault)
    return replace(record, faults=kept([*left, *seen.values()]))


def is_over(fault: Fault, record: GpuRecord, now: float, rules: HealthRules) -> bool:
    """Return whether lasting evidence has ended *fault* of *record*."""
    if fault.sound_since is None or now - fault.sound_since < rules.recovery_s:
        return False
    is_quiet = now - fault.last >= rules.degraded_s or record.was_reset_after(fault)
    return fault.heal is not Heal.QUIET or is_quiet


def waits_for_a_reset(state: HealthState, now: float) -> bool:
    """Return whether a fault of *now* ends by a reset that only two scans can show.

    They show it where the driver reports no recovery action: one scan between error and reset, and
    one after both.
    """
    return any(
        fault.last == now and fault.heal is Heal.RESET and record.action is None
        for record in state.gpus.values()
        for fault in record.faults
    )


def _with_facts(record: GpuRecord, look: Look) -> GpuRecord:
    """Return *record* with the facts of this look that later ones are compared with."""
    record = replace(record, was_on_bus=record.was_on_bus or look.on_bus is True)
    gpu = look.gpu
    if gpu is None:
        return record
    record = replace(record, name=gpu.name, pci=gpu.pci or record.pci, is_listed=True)
    if gpu.is_lost:
        return record
    links = record.links if look.is_partitioned else max(record.links, look.links or 0)
    volatile, action = gpu.ecc_errors.volatile if gpu.ecc_errors else None, gpu.recovery_action
    # By reason: whether a reset is pending; None if NVML does not report it.
    pending = {
        "RowRemapPending": None if gpu.remapped_rows is None else gpu.remapped_rows.is_pending,
        "PageRetirementPending": gpu.retired_pages_pending,
    }

    # Only a reset changes these: the driver no longer asks for a recovery, what waited for a reset
    # waits no longer (NVIDIA GPU Memory Error Management), errors since its start became fewer.
    asks_no_more = bool(record.action) and action == NONE
    waits_no_more = any(pending.get(reason) is False for reason in record.pending)
    fewer = volatile is not None and record.volatile is not None and volatile < record.volatile
    if asks_no_more or waits_no_more or fewer:
        # Since the scan that still showed the need: an error in between can have followed it.
        reset_at = look.began if record.shown_at is None else record.shown_at
        record = replace(record, reset_at=reset_at, action=None, pending=())
    is_untold = (record.action is not None and action is None) or (
        record.volatile is not None and volatile is None
    )
    if not is_untold and None not in [pending.get(reason) for reason in record.pending]:
        record = replace(record, shown_at=look.began)
    return replace(
        record,
        links=links,
        action=record.action if action is None else action,
        volatile=record.volatile if volatile is None else volatile,
        pending=tuple(
            reason
            for reason, waits in pending.items()
            if waits or (waits is None and reason in record.pending)
        ),
    )


def _ends(look: Look, fault: Fault, record: GpuRecord) -> bool:
    """Return whether *look*, at a GPU that looks sound, is evidence that *fault* is over."""
    match fault.heal:
        case Heal.SIGHT | Heal.QUIET:
            return True
        case Heal.RESET:
            asks_nothing = look.gpu is not None and look.gpu.recovery_action == NONE
            return asks_nothing or record.was_reset_after(fault)
        case _:
            return False


def _seen(record: GpuRecord, look: Look, now: float) -> Iterator[Fault]:
    """Yield the faults that this look shows."""
    if look.on_bus is False and record.was_on_bus:
        yield _fault("GpuOffBus", "the GPU is gone from the PCI bus", HealthClass.RESET, now)
    if not look.is_fresh:
        return
    gpu = look.gpu
    if gpu is None:
        if record.is_listed:
            yield _fault("GpuMissing", "NVML lists the GPU no more", HealthClass.RESET, now)
    elif gpu.is_lost:
        yield _fault("GpuLost", "the driver lost the GPU", HealthClass.RESET, now)
    else:
        # What an answering GPU reports now, or reported last.
        if record.action:
            action = recovery_action(record.action)
            yield _fault(action.reason, f"the driver asks {action.said}", action.kind, now)
        if gpu.remapped_rows is not None and gpu.remapped_rows.has_failed:
            text = "a memory row could not be remapped"
            yield replace(_fault("RowRemapFailed", text, HealthClass.RMA, now), heal=Heal.OPERATOR)
        if gpu.is_over_sram_threshold:
            # The criterion for an RMA, as a failed remap (NVIDIA GPU Memory Error Management, "RMA
            # Policy").
            text = "its SRAM had more uncorrectable errors than NVIDIA's threshold"
            fault = _fault("SramThresholdExceeded", text, HealthClass.RMA, now)
            yield replace(fault, heal=Heal.OPERATOR)
        for reason in record.pending:
            yield _fault(reason, _PENDING[reason], HealthClass.DEGRADED, now)
        links = look.links or 0
        if not look.is_partitioned and links < record.links <= links + look.down_links:
            text = f"{links} of {record.links} NVLinks are up"
            yield _fault("NvLinksDown", text, HealthClass.DEGRADED, now)
        if look.missing_lanes is not None:
            width, full = look.missing_lanes
            text = f"its PCIe link has {width} of {full} lanes"
            yield _fault(LANES, text, HealthClass.DEGRADED, now)


def _fault(reason: str, said: str, kind: HealthClass, now: float) -> Fault:
    return Fault(reason=reason, said=said, kind=kind, heal=Heal.SIGHT, first=now, last=now)
