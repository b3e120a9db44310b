"""The health state as a saved document, and the part that a new process keeps."""

from collections.abc import Iterable, Mapping
from math import nextafter
from types import MappingProxyType

from msgspec.structs import replace

from nodetopo.components.gpus.health.reported import with_fault
from nodetopo.components.gpus.health.state import (
    MAX_GPUS,
    Fault,
    GpuRecord,
    Heal,
    HealthState,
    Window,
)
from nodetopo.errors import DecodeError
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.state_document import opened, sealed

SCHEMA = "nodetopo-health/v1"

IN_DOUBT = "HealthNotKnown"
"""The reason for a GPU whose earlier verdicts are not known."""


def encode(state: HealthState) -> str:
    """Return the JSON document of *state*; :func:`decode` gives it back exactly."""
    return sealed(SCHEMA, state)


def decode(text: str) -> HealthState:
    """Read what :func:`encode` wrote, of this version or a newer one of the same schema.

    Raises:
        DecodeError: it is no such document.
    """
    state = opened(HealthState, text, SCHEMA)
    assert state is not None, "it is about nothing else"
    if len(state.gpus) > MAX_GPUS:
        raise DecodeError("gpus", f"more than {MAX_GPUS}")
    return replace(state, gpus=MappingProxyType(dict(state.gpus)))


def resumed(state: HealthState, boot_id: str | None, now: float) -> HealthState:
    """Return the part of *state*, saved by an earlier process, that holds in a new one.

    In the same boot all of it does; evidence starts over, and NVML's trouble is left to the next
    scan. In another boot only faults that wait for an operator do: the boot ended the others, or
    they will be seen again.
    """
    is_other = boot_id is not None and state.boot_id is not None and boot_id != state.boot_id
    boot_id = boot_id or state.boot_id
    if is_other:
        kept = {name: _after_boot(record, now) for name, record in state.gpus.items()}
        gpus = {name: record for name, record in kept.items() if record.faults}
        return HealthState(boot_id=boot_id, gpus=MappingProxyType(gpus))
    gpus = {name: _after_restart(record, now) for name, record in state.gpus.items()}
    nvml = replace(
        state.nvml,
        trouble=None,
        trouble_since=None,
        since=_past(state.nvml.since, now),
        fresh_at=_past(state.nvml.fresh_at, now),
        back_since=None,
        failures=0,
        wants_fresh=False,
    )
    return HealthState(boot_id=boot_id, gpus=MappingProxyType(gpus), nvml=nvml)


def joined(late: HealthState, state: HealthState) -> HealthState:
    """Return *late*, resumed for the start of this process, with what *state* has seen since.

    The doubt of :func:`doubted` is over, as the verdicts are known.
    """
    gpus = dict(late.gpus)
    for name, now in state.gpus.items():
        record = gpus.get(name)
        if record is None:
            if len(gpus) >= MAX_GPUS:
                continue
            record = replace(now, faults=())
        for fault in now.faults:
            if fault.reason != IN_DOUBT:
                record = with_fault(record, fault)
        windows = {window.xid: window for window in (*record.windows, *now.windows)}
        gpus[name] = replace(
            record,
            name=now.name or record.name,
            pci=now.pci or record.pci,
            links=max(record.links, now.links),
            reset_at=record.reset_at if now.reset_at is None else now.reset_at,
            falls=tuple(sorted({*record.falls, *now.falls})),
            windows=tuple(windows[xid] for xid in sorted(windows)),
        )
    fresh_at = late.nvml.fresh_at if state.nvml.fresh_at is None else state.nvml.fresh_at
    nvml = replace(state.nvml, fresh_at=fresh_at)
    return replace(state, gpus=MappingProxyType(gpus), nvml=nvml)


def forgiven(state: HealthState) -> HealthState:
    """Return *state* without anything known of a GPU, as an operator requested."""
    return replace(state, gpus=MappingProxyType({}))


def doubted(state: HealthState, gpus: Iterable[str], now: float) -> HealthState:
    """Return *state* with *gpus* Unhealthy, as earlier verdicts on them are lost.

    A GPU that looks sound for ``recovery_s`` is given out again. That is weaker evidence than some
    lost verdicts required (a reset, another boot, an operator): no scan could give it, and what
    still is wrong shows again, as a lost GPU, a recovery action or the next XID does.
    """
    fault = Fault(
        reason=IN_DOUBT,
        said="the health file is not readable, and the earlier health of the GPU is not known",
        kind=HealthClass.RESET,
        heal=Heal.SIGHT,
        first=now,
        last=now,
    )
    records = {name: state.gpus.get(name, GpuRecord()) for name in gpus}
    in_doubt = {name: with_fault(record, fault) for name, record in records.items()}
    return replace(state, gpus=MappingProxyType({**state.gpus, **in_doubt}))


def verdicts(state: HealthState) -> Mapping[str, frozenset[str]]:
    """Return the reasons of each GPU's faults, by its id; without sound GPUs."""
    return {
        name: frozenset(fault.reason for fault in record.faults)
        for name, record in state.gpus.items()
        if record.faults
    }


def lasting(state: HealthState) -> object:
    """Return the part of *state* that a restart must not lose, for comparison."""
    gpus = [
        (
            name,
            record.falls,
            record.reset_at,
            record.volatile if record.faults else None,
            [
                (fault.reason, fault.said, fault.kind, fault.heal, fault.first)
                for fault in record.faults
            ],
        )
        for name, record in sorted(state.gpus.items())
        if record.faults or record.falls
    ]
    return gpus, (state.nvml.reason, state.nvml.since, state.nvml.fresh_at)


def _after_boot(record: GpuRecord, now: float) -> GpuRecord:
    faults = tuple(
        replace(fault, first=now, last=now, sound_since=None)
        for fault in record.faults
        if fault.heal is Heal.OPERATOR
    )
    return GpuRecord(name=record.name, pci=record.pci, faults=faults)


def _after_restart(record: GpuRecord, now: float) -> GpuRecord:
    """Return *record* with no time in the future, and every fault as if it had just happened.

    A fault that a reset followed keeps its time, so that it stays before the reset.
    """
    faults = []
    for fault in record.faults:
        last = fault.last if record.was_reset_after(fault) else now
        first = _bounded(fault.first, now)
        # Earlier than a reset of the meantime, which counts as one of this moment.
        last = _bounded(last, nextafter(now, 0.0))
        faults.append(replace(fault, first=min(first, last), last=last, sound_since=None))
    return replace(
        record,
        faults=tuple(faults),
        falls=tuple(_bounded(at, now) for at in record.falls),
        windows=tuple(
            Window(
                xid=window.xid,
                since=_bounded(window.since, now),
                repeats=tuple(_bounded(at, now) for at in window.repeats),
            )
            for window in record.windows
        ),
        shown_at=now,  # a reset in between came before all that this process will see
        reset_at=_past(record.reset_at, now),
    )


def _past(at: float | None, now: float) -> float | None:
    return None if at is None else _bounded(at, now)


def _bounded(at: float, now: float) -> float:
    return min(max(at, 0.0), now)
