"""Ends verdicts on single GPUs at an operator's request: who is meant, and what changes.

A request carries no evidence. It takes effect together with a scan that began after it, so that a
fault that the GPU still reports never disappears, not even for a moment.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.gpus.health.ledger import after_look, said, view, worst
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.state import MAX_GPUS, Fault, GpuRecord, HealthState
from nodetopo.errors import InputError, UnreadableError, closest
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.limits import Count
from nodetopo.model.notice import Notice
from nodetopo.model.nvml_event import NvmlStatus
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot

EVERY = "all"
"""Stands for every GPU that is not sound; it needs a confirmation."""

_PREFIX = "gpu-"

LEAST_PREFIX = 4
"""Characters of a UUID after ``GPU-`` that a name has at least; ``GPU-1`` is more likely a typing
error for ``GPU1``."""


class ClearRequest(Struct, frozen=True, kw_only=True):
    """A request to end the verdicts on GPUs."""

    # Names: index, ``GPU3``, UUID or its beginning, PCI address, or :data:`EVERY`.
    gpus: Annotated[tuple[str, ...], Count(1, MAX_GPUS)]
    is_dry_run: bool = False  # change nothing, and answer what would change
    is_confirmed: bool = False  # the operator confirmed what a mistake would make expensive


class SaidFault(Struct, frozen=True, kw_only=True):
    """A fault for a person."""

    reason: str
    kind: HealthClass
    said: str  # with its way of healing, as a sentence without its full stop


class ClearedGpu(Struct, frozen=True, kw_only=True):
    """One GPU before and after a request."""

    uuid: str  # :attr:`nodetopo.model.gpu.Gpu.id`
    name: str | None  # ``GPU<index>``; ``None`` for a GPU that was never listed in this boot
    pci: PciAddress | None
    faults: tuple[SaidFault, ...]  # before the request
    left: tuple[SaidFault, ...]  # those that the GPU still reports
    is_healthy: bool  # whether the kubelet may hand it out afterwards

    @property
    def label(self) -> str:
        """The GPU as messages name it: ``GPU3 (GPU-…)``."""
        return self.uuid if self.name is None else f"{self.name} ({self.uuid})"


class Clearing(Struct, frozen=True, kw_only=True):
    """The effect of one request."""

    state: HealthState  # the state to go on with, before the scan counts
    gpus: tuple[ClearedGpu, ...]  # the GPUs that the request named, in its order


def clearing(
    state: HealthState,
    request: ClearRequest,
    snapshot: Snapshot,
    nvml: NvmlStatus,
    *,
    now: float,
    began: float,
    rules: HealthRules,
) -> Clearing:
    """Return the effect of *request* on *state*, given the scan that began at *began*.

    Raises:
        InputError: a name fits no GPU or several, or a confirmation is missing.
        UnreadableError: NVML gave no reading, so that nothing shows whether a GPU is sound.
    """
    if nvml.trouble is not None:
        cause = f"NVML gives no reading ({nvml.cause or 'no cause known'}): nothing was cleared"
        raise UnreadableError(cause, "see /readyz for what is wrong, and repeat once NVML answers")
    known = _known(state, snapshot)
    chosen = _chosen(request, known)
    cleared = without_verdicts(state, chosen)
    after = after_look(cleared, snapshot, nvml, now, rules, began=began)
    verdicts = view(after)
    gpus = []
    for gpu in chosen:
        health = verdicts.get(gpu)
        gpus.append(
            replace(
                described(gpu, known[gpu]),
                left=_said(after.gpus.get(gpu, GpuRecord()).faults),
                is_healthy=health is None or health.is_healthy,
            )
        )
    return Clearing(state=state if request.is_dry_run else cleared, gpus=tuple(gpus))


def saved_clearing(state: HealthState, request: ClearRequest) -> Clearing:
    """Return the effect of *request* on a saved *state* that no daemon holds.

    Raises:
        InputError: as :func:`clearing`.
    """
    chosen = _chosen(request, state.gpus)
    cleared = without_verdicts(state, chosen)
    return Clearing(
        state=state if request.is_dry_run else cleared,
        gpus=tuple(described(gpu, state.gpus[gpu]) for gpu in chosen),
    )


def without_verdicts(state: HealthState, gpus: Iterable[str]) -> HealthState:
    """Return *state* in which nothing is held against *gpus*.

    The facts that later scans are compared with stay: the GPU was on the bus, so many NVLinks were
    up, the driver last asked for this action.
    """
    records = dict(state.gpus)
    for gpu in gpus:
        if gpu in records:
            records[gpu] = replace(records[gpu], faults=(), falls=(), windows=())
    return replace(state, gpus=MappingProxyType(records))


def cleared_notices(gpus: Iterable[ClearedGpu]) -> tuple[Notice, ...]:
    """Return the record for people of what a request ended, one notice for each GPU."""
    notices = []
    for gpu in gpus:
        if not gpu.faults:
            continue
        reasons = ", ".join(fault.reason for fault in gpu.faults)
        message = f"{gpu.label}: an operator cleared {reasons}"
        if gpu.left:
            message += f"; the GPU still reports {', '.join(fault.reason for fault in gpu.left)}"
        reason = "HealthCleared"
        notices.append(
            Notice(
                reason=reason,
                message=message,
                is_warning=False,
                gpu=gpu.uuid,
                key=f"{gpu.uuid} {reason}",
            )
        )
    return tuple(notices)


def described(gpu: str, record: GpuRecord) -> ClearedGpu:
    """Return *gpu* with the faults of *record*, as if nothing of them were left."""
    return ClearedGpu(
        uuid=gpu,
        name=record.name,
        pci=record.pci,
        faults=_said(record.faults),
        left=(),
        is_healthy=True,
    )


def _said(faults: Iterable[Fault]) -> tuple[SaidFault, ...]:
    return tuple(SaidFault(reason=it.reason, kind=it.kind, said=said(it)) for it in faults)


def _known(state: HealthState, snapshot: Snapshot) -> dict[str, GpuRecord]:
    """Return every GPU with a record or in *snapshot*, those of the snapshot first."""
    listed = {}
    for gpu in snapshot.gpus:
        if gpu.uuid is not None:
            record = state.gpus.get(gpu.id, GpuRecord())
            listed[gpu.id] = replace(record, name=gpu.name, pci=gpu.pci or record.pci)
    return listed | {gpu: record for gpu, record in state.gpus.items() if gpu not in listed}


def _chosen(request: ClearRequest, known: Mapping[str, GpuRecord]) -> tuple[str, ...]:
    """Return the GPUs that *request* names."""
    is_free = request.is_confirmed or request.is_dry_run
    if EVERY in request.gpus:
        if not is_free:
            cause = f"{EVERY} clears the verdicts on every GPU of the node"
            raise InputError(cause, "look first with --dry-run, or confirm with --yes")
        return tuple(sorted(gpu for gpu, record in known.items() if record.faults))
    chosen = tuple(dict.fromkeys(_named(name, known) for name in request.gpus))
    for gpu in chosen:
        fault = worst(known[gpu].faults)
        if fault is not None and fault.kind is HealthClass.RMA and not is_free:
            cause = f"{described(gpu, known[gpu]).label} is due for replacement: {fault.said}"
            raise InputError(cause, "replace it, or confirm with --yes that it is to be used again")
    return chosen


def _named(name: str, known: Mapping[str, GpuRecord]) -> str:
    wanted = name.strip().lower()
    address = PciAddress.as_written(wanted)
    exact = [gpu for gpu, record in known.items() if wanted in _names(gpu, record)]
    exact += [gpu for gpu, record in known.items() if address and record.pci == address]
    if exact:  # a GPU that was replaced can have had the same index; the listed one comes first
        return exact[0]
    begins = [gpu for gpu in known if gpu.lower().startswith(wanted)]
    is_long = wanted.startswith(_PREFIX) and len(wanted) >= len(_PREFIX) + LEAST_PREFIX
    if is_long and len(begins) == 1:
        return begins[0]
    if is_long and begins:
        raise InputError(f"{name!r} may be any of {', '.join(begins)}", "name one of them")
    if wanted.startswith("mig-"):
        raise InputError(f"{name!r} is a MIG device", "name its GPU: health is a GPU's")
    labels = [record.name or gpu for gpu, record in known.items()]
    close = closest(name.strip(), [*labels, *known])
    hint = f"did you mean {close!r}? " if close else ""
    raise InputError(f"unknown GPU {name!r}", f"{hint}known are: {', '.join(labels) or 'none'}")


def _names(gpu: str, record: GpuRecord) -> tuple[str, ...]:
    if record.name is None:
        return (gpu.lower(),)
    return gpu.lower(), record.name.lower(), record.name.lower().removeprefix("gpu")
