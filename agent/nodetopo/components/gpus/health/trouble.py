"""NVML as a whole: when its silence or its refusals make all GPUs Unhealthy.

A call that does not return means a driver that hangs: new work would hang in it too. Every
other trouble is more often the agent's own container than the GPUs: after
``systemctl daemon-reload`` a container loses access to its devices, and NVML answers 999 for
everything while jobs run on (NVIDIA/nvidia-container-toolkit #48). So GPUs keep
their state for a while, a fresh container is requested, and only then do they count as unusable.
"""

from msgspec.structs import replace

from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.state import NvmlRecord
from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble

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
    """Return *record* after an attempt to read NVML that ended with *status*.

    Args:
        shows_gpus: whether the PCI bus shows GPUs.
    """
    if status.trouble is None:
        back_since = now if record.back_since is None else record.back_since
        return NvmlRecord(
            reason=record.reason,
            cause=record.cause if record.reason else None,
            fresh_at=record.fresh_at,
            back_since=None if record.reason is None else back_since,
        )
    unanswered = 0
    if status.trouble is NvmlTrouble.NO_ANSWER:
        # With fewer failures than before there was a reading in between.
        is_new = status.failures < record.failures
        before = 0 if is_new else record.unanswered - record.failures
        unanswered = before + status.failures
    record = replace(
        record,
        trouble=status.trouble,
        code=status.code,
        cause=status.cause,
        since=now if record.since is None else record.since,
        trouble_since=record.trouble_since if record.trouble is status.trouble else now,
        unanswered=unanswered,
        failures=status.failures,
        shows_gpus=shows_gpus,
        back_since=None,
    )
    return with_time(record, now, rules)


def at_rest(record: NvmlRecord) -> NvmlRecord:
    """Return *record* while NVML is closed on request: a verdict stays, and no deadline passes.

    A trouble that outlasts the pause is a new one.
    """
    if record.trouble is None and record.back_since is None:
        return record
    return NvmlRecord(
        reason=record.reason,
        cause=record.cause if record.reason else None,
        failures=record.failures,
        fresh_at=record.fresh_at,
    )


def with_time(record: NvmlRecord, now: float, rules: HealthRules) -> NvmlRecord:
    """Return *record* at *now*, when deadlines may have passed."""
    if record.trouble is None:
        is_back = record.back_since is not None and now - record.back_since >= rules.back_s
        return NvmlRecord(fresh_at=record.fresh_at) if is_back else record
    assert record.since is not None
    assert record.trouble_since is not None
    has_waited = now - record.trouble_since >= rules.fresh_after_s
    is_unusable = now - record.since >= rules.no_reading_s
    if record.trouble is NvmlTrouble.NO_ANSWER:
        is_stuck = now - record.trouble_since >= rules.unresponsive_s
        is_unusable = is_stuck or record.unanswered >= rules.unanswered
    if record.reason is None and is_unusable:
        is_mismatch = record.code == _VERSION_MISMATCH
        reason = "NvmlVersionMismatch" if is_mismatch else _REASON[record.trouble]
        record = replace(record, reason=reason)

    may_help = record.code not in (_DRIVER_NOT_LOADED, _VERSION_MISMATCH)
    is_refused = record.trouble is NvmlTrouble.REFUSED and may_help and record.shows_gpus
    is_due = record.fresh_at is None or now - record.fresh_at >= rules.fresh_every_s
    if not record.wants_fresh and is_refused and is_due and has_waited:
        record = replace(record, wants_fresh=True, fresh_at=now)
    return record
