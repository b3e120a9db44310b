"""Faults from events, which stay until evidence ends them."""

from collections.abc import Iterable

from msgspec.structs import replace

from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.state import MAX_FAULTS, RANK, Fault, GpuRecord, Heal, Window
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.nvml_event import EventKind, NvmlEvent
from nodetopo.model.xid import OTHER, REPEATED, counted_code, xid

_HEAL = {
    HealthClass.DEGRADED: Heal.QUIET,
    HealthClass.RESET: Heal.RESET,
    HealthClass.REBOOT: Heal.BOOT,
    HealthClass.RMA: Heal.OPERATOR,
}
"""The evidence that ends a fault reported by an XID, by its class."""


def with_event(record: GpuRecord, event: NvmlEvent, now: float, rules: HealthRules) -> GpuRecord:
    """Return *record* after *event*; an event of another kind changes nothing.

    Repeats in one delivery do not count: a delivery is one occurrence.
    """
    if event.kind is EventKind.UNAVAILABLE:
        fault = Fault(
            reason="GpuUnavailable",
            said="the driver reported the GPU as unavailable",
            kind=HealthClass.RESET,
            heal=Heal.SIGHT if event.gpu is None else Heal.RESET,
            first=now,
            last=now,
        )
        return with_fault(record, fault)
    if event.kind is EventKind.XID and event.xid is not None:
        return _with_xid(record, event, event.xid, now, rules)
    return record


def with_fault(record: GpuRecord, fault: Fault) -> GpuRecord:
    """Return *record* with *fault*, joined with an earlier one of the same reason.

    Of two, the stricter class and evidence hold, so that their order does not matter.
    """
    others = {earlier.reason: earlier for earlier in record.faults}
    before = others.get(fault.reason)
    if before is not None:
        is_worse = (RANK[before.kind], before.heal != Heal.SIGHT) > (
            RANK[fault.kind],
            fault.heal != Heal.SIGHT,
        )
        worse = before if is_worse else fault
        fault = replace(fault, first=before.first, kind=worse.kind, heal=worse.heal)
    return replace(record, faults=kept([*(others | {fault.reason: fault}).values()]))


def kept(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return *faults* by reason, only the worst ones beyond the limit."""
    worst = sorted(faults, key=lambda fault: (-RANK[fault.kind], fault.reason))
    return tuple(sorted(worst[:MAX_FAULTS], key=lambda fault: fault.reason))


def _with_xid(
    record: GpuRecord, event: NvmlEvent, code: int, now: float, rules: HealthRules
) -> GpuRecord:
    windows = {window.xid: window for window in record.windows}
    if counted_code(code, windows) == OTHER:
        windows = {
            window.xid: window for window in record.windows if now - window.since < rules.degraded_s
        }
    code = counted_code(code, windows)
    window = windows.get(code)
    if window is None or now - window.since >= rules.dedupe_s:
        earlier = () if window is None else window.repeats
        repeats = [at for at in earlier if now - at < rules.degraded_s]
        if code in REPEATED and code not in rules.classes:
            repeats.append(now)
        window = Window(xid=code, since=now, repeats=tuple(repeats[-max(1, rules.repeats) :]))
    windows[code] = window
    record = replace(record, windows=tuple(sorted(windows.values(), key=lambda it: it.xid)))

    kind = rules.kind_of(code)
    text = f"XID {code}, {xid(code).meaning}" if code != OTHER else "XIDs of many codes"
    reason = f"Xid{code}" if code != OTHER else "XidOther"
    if kind is HealthClass.APP:
        if len(window.repeats) < max(1, rules.repeats):
            return record
        kind, reason = HealthClass.DEGRADED, f"{reason}Repeated"
        text = f"{text}, {rules.repeats} times within {rules.degraded_s / 3600:g} h"
    heal = _HEAL[kind]
    if event.gpu is None and RANK[kind] > RANK[HealthClass.DEGRADED]:
        # An unknown GPU is affected: GPUs that look sound are presumed sound.
        kind, heal = min(kind, HealthClass.RESET, key=RANK.__getitem__), Heal.SIGHT
    fault = Fault(
        reason=reason, said=text, kind=kind, heal=heal, first=now, last=now, xid=code or None
    )
    return with_fault(record, fault)
