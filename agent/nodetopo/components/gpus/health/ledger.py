"""The health of a node's GPUs: a state advanced by events, scans and time.

Every step is a function of a state and an observation; nothing here reads a clock or hardware.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from nodetopo.components.gpus.health.reported import with_event, with_fault
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.seen import look_at, with_look
from nodetopo.components.gpus.health.state import (
    MAX_GPUS,
    RANK,
    Fault,
    GpuRecord,
    Heal,
    HealthState,
)
from nodetopo.components.gpus.health.trouble import at_rest, with_status, with_time
from nodetopo.model.gpu_health import GpuHealth, HealthClass, HealthView
from nodetopo.model.nvml_event import NvmlEvent, NvmlStatus
from nodetopo.model.snapshot import Snapshot

__all__ = [
    "HealthRules",
    "HealthState",
    "after_events",
    "after_look",
    "after_time",
    "degraded_at_a_look",
    "view",
]

_CURE = MappingProxyType(
    {
        Heal.SIGHT: "it is allocatable again once scans have shown no fault for a while",
        Heal.RESET: "it needs a reset",
        Heal.QUIET: "it is allocated last",
        Heal.BOOT: "it needs a reboot of the node",
        Heal.OPERATOR: "it needs an operator",
    }
)


def after_events(
    state: HealthState, events: Iterable[NvmlEvent], now: float, rules: HealthRules
) -> HealthState:
    """Return *state* after *events*, whose order within one batch does not matter.

    A new GPU gets a record. An event without a GPU concerns all known GPUs, and counts as a fall of
    none: it came from an unknown one of them.
    """
    gpus, nameless = dict(state.gpus), []
    for event in events:
        if event.gpu is None:
            nameless.append(event)
            continue
        if event.gpu in gpus or len(gpus) < MAX_GPUS:
            record = gpus.get(event.gpu, GpuRecord())
            gpus[event.gpu] = with_event(record, event, now, rules)
    state = _with_gpus(state, gpus, now, rules)
    gpus = dict(state.gpus)
    for event in nameless:
        gpus = {name: with_event(record, event, now, rules) for name, record in gpus.items()}
    return replace(state, gpus=MappingProxyType(gpus))


def after_look(
    state: HealthState,
    snapshot: Snapshot,
    nvml: NvmlStatus,
    now: float,
    rules: HealthRules,
    *,
    began: float | None = None,
) -> HealthState:
    """Return *state* after a scan that gave *snapshot*, with NVML's status *nvml*.

    The scan began at *began*, ``None`` for *now*: it proves nothing about later errors.

    While NVML gives no reading the snapshot repeats the last good one, which proves nothing about
    the GPUs apart from their presence on the PCI bus.
    """
    is_fresh = nvml.trouble is None
    began = now if began is None else began
    listed = {gpu.id: gpu for gpu in snapshot.gpus if gpu.uuid is not None}
    gpus = dict(state.gpus)
    for name in listed:
        if len(gpus) < MAX_GPUS:
            gpus.setdefault(name, GpuRecord())
    for name, record in gpus.items():
        look = look_at(record, listed.get(name), snapshot, began=began, is_fresh=is_fresh)
        gpus[name] = with_look(record, look, now, rules)
    trouble = with_status(state.nvml, nvml, now, rules, shows_gpus=bool(snapshot.pci_gpus))
    return _with_gpus(replace(state, nvml=trouble), gpus, now, rules)


def after_time(
    state: HealthState, now: float, rules: HealthRules, *, is_paused: bool = False
) -> HealthState:
    """Return *state* at *now*, after NVML's deadlines; GPUs change only with a scan.

    No deadline passes while *is_paused*: NVML is closed on request.
    """
    nvml = at_rest(state.nvml) if is_paused else with_time(state.nvml, now, rules)
    return replace(state, nvml=nvml)


def view(state: HealthState) -> HealthView:
    """Return the verdicts that follow from *state*; a GPU without one is sound."""
    verdicts: dict[str, GpuHealth] = {}
    nvml = state.nvml
    for name, record in sorted(state.gpus.items()):
        fault = worst(record.faults)
        if nvml.reason is not None and (fault is None or not fault.is_fatal):
            verdicts[name] = GpuHealth(
                is_healthy=False,
                reason=nvml.reason,
                said=f"NVML gives no reading: {nvml.cause or 'no cause known'}",
                kind=HealthClass.RESET,
            )
        elif fault is not None:
            verdicts[name] = GpuHealth(
                is_healthy=not fault.is_fatal,
                is_degraded=not fault.is_fatal,
                reason=fault.reason,
                said=said(fault),
                kind=fault.kind,
            )
    return MappingProxyType(verdicts)


def degraded_at_a_look(snapshot: Snapshot) -> frozenset[str]:
    """Return the ids of the GPUs that are degraded by *snapshot* alone.

    Faults known only from events or earlier scans are missing.
    """
    state = after_look(HealthState(), snapshot, NvmlStatus(), 0.0, HealthRules())
    return frozenset(gpu for gpu, health in view(state).items() if health.is_degraded)


def worst(faults: Sequence[Fault]) -> Fault | None:
    """Return the fault that represents a GPU: the oldest of the worst class, an XID first."""
    ordered = sorted(faults, key=lambda it: (-RANK[it.kind], it.first, it.xid is None, it.reason))
    return ordered[0] if ordered else None


def said(fault: Fault) -> str:
    """Return *fault* and its way of healing as a sentence without its full stop."""
    if fault.heal is Heal.SIGHT and not fault.is_fatal:
        return f"{fault.said}; it is allocated last until scans have shown no fault for a while"
    return f"{fault.said}; {_CURE[fault.heal]}"


def _with_gpus(
    state: HealthState, gpus: Mapping[str, GpuRecord], now: float, rules: HealthRules
) -> HealthState:
    """Return *state* with *gpus*; GPUs that turned Unhealthy too often stay Unhealthy."""
    held: dict[str, GpuRecord] = {}
    for name, record in gpus.items():
        held[name] = record
        if record.is_healthy or not state.gpus.get(name, GpuRecord()).is_healthy:
            continue
        recent = [at for at in record.falls if now - at < rules.flap_s]
        falls = (*recent, now)[-max(1, rules.flaps) :]
        held[name] = replace(record, falls=falls)
        if len(falls) >= rules.flaps:
            fault = Fault(
                reason="Flapping",
                said=f"it turned Unhealthy {rules.flaps} times within {rules.flap_s / 3600:g} h",
                kind=HealthClass.REBOOT,
                heal=Heal.BOOT,
                first=now,
                last=now,
            )
            held[name] = with_fault(held[name], fault)
    return replace(state, gpus=MappingProxyType(held))
