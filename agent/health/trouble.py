"""NVML as a whole: when its silence or its refusals make every GPU Unhealthy.

A call that does not return means a driver that hangs: new work would hang in it too. Every
other trouble is more often the agent's own container than the GPUs: after
``systemctl daemon-reload`` a container loses access to its devices, and NVML answers 999 for
everything while jobs run on (NVIDIA/nvidia-container-toolkit #48). So GPUs stay as they were
for a while, a fresh container is asked for, and only then they count as unusable.
"""

from dataclasses import replace

from agent.health.rules import HealthRules
from agent.health.state import NvmlRecord
from agent.model.nvml_event import NvmlStatus, NvmlTrouble

_DRIVER_NOT_LOADED, _VERSION_MISMATCH = 9, 18
"""``nvmlReturn_t`` (nvml.h) that no fresh container helps against: the driver is not loaded, and
kernel module and library are of different versions, as in the middle of a driver upgrade."""

UNRESPONSIVE = "NvmlUnresponsive"

_REASON = {
    NvmlTrouble.NO_ANSWER: UNRESPONSIVE,
    NvmlTrouble.REFUSED: "NvmlRefuses",
    NvmlTrouble.DIED: "NvmlDied",
    NvmlTrouble.NO_LIBRARY: "NvmlLibraryGone",
}


def with_status(
    record: NvmlRecord, status: NvmlStatus, now: float, rules: HealthRules, *, shows_gpus: bool
) -> NvmlRecord:
    """Return *record* after an attempt to read NVML ended as *status* says.

    Args:
        shows_gpus: whether the PCI bus shows GPUs.
    """
    if status.trouble is None:
        return NvmlRecord(
            reason=record.reason,
            cause=record.cause if record.reason else None,
            fresh_at=record.fresh_at,
            back_since=_back_since(record, now),
        )
    record = replace(
        record,
        trouble=status.trouble,
        code=status.code,
        cause=status.cause,
        since=now if record.since is None else record.since,
        trouble_since=record.trouble_since if record.trouble is status.trouble else now,
        unanswered=_unanswered(record, status),
        failures=status.failures,
        shows_gpus=shows_gpus,
        back_since=None,
    )
    return with_time(record, now, rules)


def with_time(record: NvmlRecord, now: float, rules: HealthRules) -> NvmlRecord:
    """Return *record* as the passing of time makes it."""
    if record.trouble is None:
        is_back = record.back_since is not None and now - record.back_since >= rules.back_s
        return NvmlRecord(fresh_at=record.fresh_at) if is_back else record
    if record.reason is None and _is_unusable(record, now, rules):
        is_mismatch = record.code == _VERSION_MISMATCH
        reason = "NvmlVersionMismatch" if is_mismatch else _REASON[record.trouble]
        record = replace(record, reason=reason)
    if not record.wants_fresh and _needs_fresh(record, now, rules):
        record = replace(record, wants_fresh=True, fresh_at=now)
    return record


def _back_since(record: NvmlRecord, now: float) -> float | None:
    if record.reason is None:
        return None
    return now if record.back_since is None else record.back_since


def _unanswered(record: NvmlRecord, status: NvmlStatus) -> int:
    if status.trouble is not NvmlTrouble.NO_ANSWER:
        return 0
    if status.failures < record.failures:  # there was a reading in between
        return status.failures
    return record.unanswered + status.failures - record.failures


def _is_unusable(record: NvmlRecord, now: float, rules: HealthRules) -> bool:
    assert record.since is not None
    assert record.trouble_since is not None
    if record.trouble is NvmlTrouble.NO_ANSWER:
        is_stuck = now - record.trouble_since >= rules.unresponsive_s
        return is_stuck or record.unanswered >= rules.unanswered
    return now - record.since >= rules.no_reading_s


def _needs_fresh(record: NvmlRecord, now: float, rules: HealthRules) -> bool:
    assert record.trouble_since is not None
    is_refused = record.trouble is NvmlTrouble.REFUSED
    if not is_refused or record.code in (_DRIVER_NOT_LOADED, _VERSION_MISMATCH):
        return False
    is_due = record.fresh_at is None or now - record.fresh_at >= rules.fresh_every_s
    return record.shows_gpus and is_due and now - record.trouble_since >= rules.fresh_after_s
