"""What a look at a GPU shows, and which faults it ends.

What the driver does not tell this time is as it last told: a call that fails is no news, good
or bad.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from agent.health.recovery import NONE, recovery_action
from agent.health.reported import kept
from agent.health.rules import HealthRules
from agent.health.state import Fault, GpuRecord, Heal
from agent.health.status import HealthClass
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot

_PENDING: Mapping[str, str] = MappingProxyType(
    {
        "RowRemapPending": "a memory row waits for a reset to be remapped",
        "PageRetirementPending": "memory pages wait for a reset to be retired",
    }
)
"""By reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One GPU in one snapshot.

    Attributes:
        gpu: what NVML says; ``None`` where this reading does not list it, or there is none.
        began: when the scan did. It says nothing of what happened later.
        is_fresh: the snapshot holds a reading of NVML made for it.
        on_bus: whether the PCI bus shows it; ``None`` where that is not known.
        links, down_links: its NVLinks that are active, and that are not; those whose state
            NVML would not tell are in neither. ``None`` where no links were read.
    """

    gpu: Gpu | None
    began: float
    is_fresh: bool
    on_bus: bool | None
    links: int | None = None
    down_links: int = 0

    @property
    def answers(self) -> bool:
        """Whether NVML just answered for it."""
        return self.is_fresh and self.gpu is not None and not self.gpu.is_lost

    @property
    def is_partitioned(self) -> bool:
        """Whether MIG is on, which may take the NVLinks down."""
        return self.gpu is not None and self.gpu.is_divided


def look_at(
    record: GpuRecord, gpu: Gpu | None, snapshot: Snapshot, *, began: float, is_fresh: bool
) -> Look:
    """Return what *snapshot* shows of the GPU that *record* is about.

    A census without any GPU is not believed against an NVML that answers: then `/sys` is not
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
    )


def with_look(record: GpuRecord, look: Look, now: float, rules: HealthRules) -> GpuRecord:
    """Return *record* after *look*: new faults, and without those that evidence ended."""
    record = _learnt(record, look)
    seen = {fault.reason: fault for fault in _seen(record, look, now)}
    is_sound = _is_sound(record, look) and all(
        fault.kind is HealthClass.RMA for fault in seen.values()
    )
    left = []
    for fault in record.faults:
        again = seen.pop(fault.reason, None)
        if again is not None:
            left.append(replace(again, first=fault.first))
            continue
        is_later = fault.last <= look.began
        has_evidence = is_sound and is_later and _is_evidence(look, fault, record)
        waiting = _waiting(fault, now, has_evidence=has_evidence)
        if not is_over(waiting, record, now, rules):
            left.append(waiting)
    return replace(record, faults=kept([*left, *seen.values()]))


def is_over(fault: Fault, record: GpuRecord, now: float, rules: HealthRules) -> bool:
    """Tell whether evidence, if it still holds, has ended *fault* of *record*."""
    if fault.sound_since is None or now - fault.sound_since < rules.recovery_s:
        return False
    is_quiet = now - fault.last >= rules.degraded_s or record.was_reset_after(fault)
    return fault.heal is not Heal.QUIET or is_quiet


def _learnt(record: GpuRecord, look: Look) -> GpuRecord:
    """Return *record* with what this look teaches for later ones."""
    record = replace(record, was_on_bus=record.was_on_bus or look.on_bus is True)
    gpu = look.gpu
    if gpu is None:
        return record
    record = replace(record, name=gpu.name, pci=gpu.pci or record.pci, is_listed=True)
    if gpu.is_lost:
        return record
    links = record.links if look.is_partitioned else max(record.links, look.links or 0)
    record = replace(record, links=links)
    if _was_reset(record, gpu):
        record = replace(record, reset_at=look.began, action=None, pending=())
    volatile, action, pending = _volatile(gpu), gpu.recovery_action, _pending(gpu)
    return replace(
        record,
        action=record.action if action is None else action,
        volatile=record.volatile if volatile is None else volatile,
        pending=tuple(
            reason
            for reason, told in pending.items()
            if told or (told is None and reason in record.pending)
        ),
    )


def _volatile(gpu: Gpu) -> int | None:
    return gpu.ecc_errors.volatile if gpu.ecc_errors else None


def _pending(gpu: Gpu) -> Mapping[str, bool | None]:
    """Return by reason whether that waits for a reset; ``None`` where NVML does not tell."""
    rows = gpu.remapped_rows
    told = (None if rows is None else rows.is_pending, gpu.retired_pages_pending)
    return dict(zip(_PENDING, told, strict=True))


def _was_reset(record: GpuRecord, gpu: Gpu) -> bool:
    """Tell whether something changed since the last look that only a reset changes.

    The driver asked for a recovery and asks no more; what waited for a reset waits no more
    (NVIDIA GPU Memory Error Management); errors since the driver was loaded became fewer.
    """
    volatile, pending = _volatile(gpu), _pending(gpu)
    asks_no_more = bool(record.action) and gpu.recovery_action == NONE
    waits_no_more = any(pending.get(reason) is False for reason in record.pending)
    fewer = volatile is not None and record.volatile is not None and volatile < record.volatile
    return asks_no_more or waits_no_more or fewer


def _is_sound(record: GpuRecord, look: Look) -> bool:
    """Tell whether nothing is known to be wrong, and the links are known to be up."""
    has_links = look.is_partitioned or record.links <= (look.links or 0)
    return look.answers and has_links


def _is_evidence(look: Look, fault: Fault, record: GpuRecord) -> bool:
    """Tell whether *look*, which shows a GPU that looks sound, says that *fault* is over."""
    match fault.heal:
        case Heal.SIGHT | Heal.QUIET:
            return True
        case Heal.RESET:
            asks_nothing = look.gpu is not None and look.gpu.recovery_action == NONE
            return asks_nothing or record.was_reset_after(fault)
        case _:
            return False


def _waiting(fault: Fault, now: float, *, has_evidence: bool) -> Fault:
    """Return *fault* with the time since when there is evidence that it is over."""
    if not has_evidence:
        return fault if fault.sound_since is None else replace(fault, sound_since=None)
    return fault if fault.sound_since is not None else replace(fault, sound_since=now)


def _seen(record: GpuRecord, look: Look, now: float) -> Iterator[Fault]:
    """Yield what is wrong with the GPU by this look."""
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
        yield from _told(record, look, gpu, now)


def _told(record: GpuRecord, look: Look, gpu: Gpu, now: float) -> Iterator[Fault]:
    """Yield what is wrong by what a GPU that answers tells, or told last."""
    if record.action:
        action = recovery_action(record.action)
        yield _fault(action.reason, f"the driver asks {action.said}", action.kind, now)
    if gpu.remapped_rows is not None and gpu.remapped_rows.has_failed:
        said = "a memory row could not be remapped"
        yield replace(_fault("RowRemapFailed", said, HealthClass.RMA, now), heal=Heal.OPERATOR)
    for reason in record.pending:
        yield _fault(reason, _PENDING[reason], HealthClass.DEGRADED, now)
    links = look.links or 0
    if not look.is_partitioned and links < record.links <= links + look.down_links:
        said = f"{links} of {record.links} NVLinks are up"
        yield _fault("NvLinksDown", said, HealthClass.DEGRADED, now)


def _fault(reason: str, said: str, kind: HealthClass, now: float) -> Fault:
    return Fault(reason=reason, said=said, kind=kind, heal=Heal.SIGHT, first=now, last=now)
