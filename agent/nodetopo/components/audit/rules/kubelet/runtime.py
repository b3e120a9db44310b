"""Rules on the running kubelet: limits, rejections, rights, and settings that are not in force."""

from collections.abc import Mapping
from typing import Any

from nodetopo.checks.inputs import because, no_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.kubelet.inputs import (
    ATTRIBUTES,
    amount,
    is_cpu_list,
    missing_settings,
    place,
    running,
    stated,
)
from nodetopo.components.audit.rules.kubelet.remedies import restarted_with
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot

_FEW_PIDS = 4096
"""OpenShift's default, the smallest of a large distribution; a choice, not a hard limit: each GPU
of a job has a process with some hundred threads plus its data loaders.
"""


@rule("KUB-026", Severity.INFO, unless=no_gpus, cure=restarted_with(pod_pids_limit=-1))
def process_limit(snapshot: Snapshot) -> Judgement:
    """Compare the limit of processes with :data:`_FEW_PIDS`; below 1 there is no limit."""
    settings = running(snapshot)
    yield from missing_settings(snapshot, settings, "podPidsLimit")
    if settings is None or settings.pod_pids_limit is None:
        return
    if 0 < settings.pod_pids_limit < _FEW_PIDS:
        yield Finding(
            subject=place(settings, "podPidsLimit"),
            observed=str(settings.pod_pids_limit),
            expected=f"{_FEW_PIDS} or more, or -1",
        )


@rule("KUB-027", Severity.WARNING)
def proxy_rights(snapshot: Snapshot) -> Judgement:
    """Look for rights on nodes/proxy."""
    subject = "rights of the agent's account"
    proxy = ("get nodes/proxy", "create nodes/proxy")
    rights = snapshot.agent_rights or {}
    if not rights.keys() >= set(proxy):
        yield Missing(subject, because(snapshot, "rights") or because(snapshot, "pods"))
    for right in proxy:
        if rights.get(right, False):
            expected = "get on nodes/configz and nodes/metrics only"
            yield Finding(subject=subject, observed=right, expected=expected)


_REASONS = ("TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError")
"""Status reasons of pods that the managers rejected (1.36 pkg/kubelet/cm/admission)."""

_NO_DEVICES = "OutOfnvidia.com/"
"""Prefix of the reason where the scheduler was late and no GPU was left."""

_LABELS = ("TopologyAffinityError", "UnexpectedAdmissionError", "OutOfExtendedResources")
"""Reasons that kubelet_admission_rejections_total distinguishes (1.36 pkg/kubelet/kubelet.go)."""


# The counts begin with the kubelet's start: one old rejection is no fault of today.
@rule("KUB-028", Severity.WARNING)
def rejections(snapshot: Snapshot) -> Judgement:
    """Look for failed pods with a reason of the managers, and count rejections in the metrics."""
    for pod in snapshot.pods or ():
        reason = pod.status_reason or ""
        if pod.phase == "Failed" and (reason in _REASONS or reason.startswith(_NO_DEVICES)):
            text = f": {pod.status_message}" if pod.status_message else ""
            yield Finding(
                subject=f"{pod.namespace}/{pod.name}",
                observed=f"{reason}{text}",
                expected="admitted",
            )
    metrics = snapshot.kubelet_metrics
    if metrics is None or (metrics.rejections is None and metrics.topology_errors is None):
        yield Missing("metrics of the kubelet")
        return
    counts = {name: (metrics.rejections or {}).get(name, 0) for name in _LABELS}
    if metrics.rejections is None:
        counts["TopologyAffinityError"] = metrics.topology_errors or 0
    for label, count in counts.items():
        if count > 0:
            pods = "pod" if count == 1 else "pods"
            observed = f"{count} {pods} since the kubelet started"
            yield Finding(subject=f"rejections for {label}", observed=observed, expected="none")


@rule("KUB-024", Severity.WARNING, cure=restarted_with())
def drift(snapshot: Snapshot) -> Judgement:
    """Compare the settings in force with those on disk, or the ages of files and kubelet."""
    reason = because(snapshot, "kubelet")
    disk, in_force = snapshot.kubelet_on_disk, snapshot.kubelet
    if disk is None:
        yield Missing("kubelet settings on disk", reason)
    if in_force is None or not in_force.is_reported:
        if disk is None or disk.changed_since_start is None:
            yield Missing("settings in force (configz)", reason)
        for path in () if disk is None else disk.changed_since_start or ():
            yield Finding(
                subject=path,
                observed="written to after the kubelet started",
                expected="older than the kubelet's start",
            )
    elif disk is not None:
        for field in ATTRIBUTES:
            now, then = _comparable(in_force, field), _comparable(disk, field)
            if now is None or then is None or _normal(now) == _normal(then):
                continue
            if isinstance(now, Mapping) and isinstance(then, Mapping):  # only what differs
                keys = [k for k in {**now, **then} if _normal(now.get(k)) != _normal(then.get(k))]
                now, then = (
                    {key: values[key] for key in keys if key in values} for values in (now, then)
                )
            yield Finding(
                subject=place(disk, field),
                observed=f"in force: {_text(now)}",
                expected=f"{_text(then)}, as stated",
            )


def _comparable(settings: KubeletSettings, field: str) -> Any:
    """Return the value of *field*, without the kubelet's own additions.

    With ``reservedSystemCPUs`` it replaces the CPUs of both reservations (1.36
    cmd/kubelet/app/server.go).
    """
    value = stated(settings, field)
    if field in ("systemReserved", "kubeReserved") and value and settings.reserved_system_cpus:
        return {name: text for name, text in value.items() if name != "cpu"}
    if field == "reservedMemory" and value is not None:
        return {
            f"numaNode {entry.numa_node} {kind}": text
            for entry in value
            for kind, text in entry.limits.items()
        }
    if field == "reservedSystemCPUs":
        return value or ""
    return value


def _normal(value: Any) -> Any:
    """Normalise *value*, so that equal values compare equal: 1Gi is 1024Mi."""
    if isinstance(value, Mapping):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return sorted(map(str, value))
    if not isinstance(value, str):
        return value
    if "," in value or "-" in value:  # CPUs: 0-1 is 0,1
        try:
            return str(CpuSet.parse(value)) if is_cpu_list(value) else value
        except ValueError:
            return value
    size = amount(value, per_unit=1000)
    return value if size is None else size


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) or "nothing"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value != "" else "nothing"


@rule("KUB-029", Severity.WARNING)
def unloaded_files(snapshot: Snapshot) -> Judgement:
    """Look for drop-ins that the running kubelet has not loaded."""
    disk = snapshot.kubelet_on_disk
    if disk is None or disk.unloaded_drop_ins is None:
        yield Missing("flags of the running kubelet", because(snapshot, "kubelet"))
        return
    for path in disk.unloaded_drop_ins:
        yield Finding(
            subject=path,
            observed="not loaded by the running kubelet",
            expected="a name that ends in .conf, in the directory that --config-dir names",
        )
