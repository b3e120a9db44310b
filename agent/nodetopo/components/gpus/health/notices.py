"""Notices for people about changes between two health states."""

from collections.abc import Iterator

from nodetopo.components.gpus.health.ledger import said, worst
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.state import GpuRecord, HealthState, NvmlRecord
from nodetopo.components.gpus.health.trouble import UNRESPONSIVE
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.notice import Notice
from nodetopo.model.xid import SILENT, xid


def notices(before: HealthState, after: HealthState, rules: HealthRules) -> tuple[Notice, ...]:
    """Return the changes in *after*: first NVML, then GPU by GPU."""
    by_gpu = [
        notice
        for gpu, record in sorted(after.gpus.items())
        if record is not (was := before.gpus.get(gpu, GpuRecord()))
        for notice in (
            *_of_applications(gpu, was, record, rules),
            *_of_faults(gpu, was, record),
        )
    ]
    return (*_of_nvml(before.nvml, after.nvml), *by_gpu)


def _of_nvml(was: NvmlRecord, now: NvmlRecord) -> Iterator[Notice]:
    if now.reason is not None and now.reason != was.reason:
        hint = "the driver hangs" if now.reason == UNRESPONSIVE else "new pods would not start"
        message = f"all GPUs are Unhealthy, {hint}: {now.cause or 'NVML gives no reading'}"
        yield Notice(reason=now.reason, message=message, is_warning=True, gpu=None, key="nvml")
    if now.reason is None and was.reason is not None:
        message, reason = "NVML gives readings again", "NvmlAnswers"
        yield Notice(reason=reason, message=message, is_warning=False, gpu=None, key="nvml")
    if now.wants_fresh and not was.wants_fresh:
        message = f"PCI shows GPUs that NVML refuses to read ({now.cause}): a fresh container"
        reason = "FreshContainerWanted"
        yield Notice(reason=reason, message=message, is_warning=True, gpu=None, key="nvml")


def _of_applications(
    gpu: str, was: GpuRecord, record: GpuRecord, rules: HealthRules
) -> Iterator[Notice]:
    """Yield the application faults that are no repetition."""
    windows = {window.xid: window.since for window in was.windows}
    for window in record.windows:
        code = window.xid
        is_new = windows.get(code) != window.since
        if is_new and code not in SILENT and rules.kind_of(code) is HealthClass.APP:
            message = f"{_named(gpu, record)}: XID {code}, {xid(code).meaning}"
            yield Notice(
                reason="GpuXid", message=message, is_warning=False, gpu=gpu, key=f"{gpu} Xid{code}"
            )


def _of_faults(gpu: str, was: GpuRecord, record: GpuRecord) -> Iterator[Notice]:
    earlier = {fault.reason for fault in was.faults}
    for fault in record.faults:
        if fault.reason not in earlier:
            yield Notice(
                reason="GpuUnhealthy" if fault.is_fatal else "GpuDegraded",
                message=f"{_named(gpu, record)}: {said(fault)}",
                is_warning=True,
                gpu=gpu,
                key=f"{gpu} {fault.reason}",
            )
    left = worst(record.faults)
    is_recovered = bool(was.faults) and left is None
    if is_recovered or (record.is_healthy and not was.is_healthy):
        rest = "" if left is None else f", and allocated last: {said(left)}"
        yield Notice(
            reason="GpuRecovered",
            message=f"{_named(gpu, record)}: Healthy{rest}",
            is_warning=False,
            gpu=gpu,
            key=f"{gpu} recovered",
        )


def _named(gpu: str, record: GpuRecord) -> str:
    return gpu if record.name is None else f"{record.name} ({gpu})"
