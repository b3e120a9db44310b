"""Rules on settings on disk that are not in force: changed since, or never loaded."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent.checks.inputs import Inputs, because, no_gpus
from agent.checks.kubelet.inputs import (
    ATTRIBUTES,
    amount,
    is_cpu_list,
    missing_settings,
    place,
    running,
    stated,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings, ReservedMemory
from agent.model.numa import CpuSet
from agent.model.snapshot import Snapshot

# Rules on limits of pods, on what the kubelet rejected, and on what the agent may ask it.

_FEW_PIDS = 4096
"""OpenShift's default, the smallest that a large distribution gives; a choice, not a limit of
anything: each GPU of a job has a process with some hundred threads beside its data loaders."""


_PROXY = ("get nodes/proxy", "create nodes/proxy")


_RIGHTS = "rights of the agent's account"


_REASONS = ("TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError")
"""What a pod's status calls rejections by the managers (1.36 pkg/kubelet/cm/admission)."""


_NO_DEVICES = "OutOfnvidia.com/"
"""How its reason begins where the scheduler was late and no GPU was left."""


_LABELS = ("TopologyAffinityError", "UnexpectedAdmissionError", "OutOfExtendedResources")
"""Those that kubelet_admission_rejections_total tells apart (1.36 pkg/kubelet/kubelet.go)."""


_DOCS = "https://kubernetes.io/docs"


def _few_pids(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = running(snapshot)
    if settings is None:
        return ()
    limit = settings.pod_pids_limit
    if limit is None or limit <= 0 or limit >= _FEW_PIDS:  # below 1 there is no limit
        return ()
    subject, expected = place(settings, "podPidsLimit"), f"{_FEW_PIDS} or more, or -1"
    return (Finding(subject=subject, observed=str(limit), expected=expected),)


def _needs_rights(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.agent_rights is not None and set(_PROXY) <= set(snapshot.agent_rights)
    return () if is_known else (_RIGHTS,)


def _may_proxy(snapshot: Snapshot) -> tuple[Finding, ...]:
    expected = "get on nodes/configz and nodes/metrics only"
    rights = snapshot.agent_rights or {}
    return tuple(
        Finding(subject=_RIGHTS, observed=right, expected=expected)
        for right in _PROXY
        if rights.get(right, False)
    )


def _needs_rejections(snapshot: Snapshot) -> Inputs:
    metrics = snapshot.kubelet_metrics
    is_known = metrics is not None and (
        metrics.rejections is not None or metrics.topology_errors is not None
    )
    return () if is_known else ("metrics of the kubelet",)


def _rejections(snapshot: Snapshot) -> tuple[Finding, ...]:
    return (*_rejected_pods(snapshot), *_counted(snapshot))


def _rejected_pods(snapshot: Snapshot) -> Iterator[Finding]:
    for pod in snapshot.pods or ():
        if pod.phase == "Failed" and _is_rejection(pod.status_reason or ""):
            text = f": {pod.status_message}" if pod.status_message else ""
            yield Finding(
                subject=f"{pod.namespace}/{pod.name}",
                observed=f"{pod.status_reason}{text}",
                expected="admitted",
            )


def _is_rejection(reason: str) -> bool:
    return reason in _REASONS or reason.startswith(_NO_DEVICES)


def _counted(snapshot: Snapshot) -> Iterator[Finding]:
    metrics = snapshot.kubelet_metrics
    if metrics is None:
        return
    counts = {name: (metrics.rejections or {}).get(name, 0) for name in _LABELS}
    if metrics.rejections is None:
        counts["TopologyAffinityError"] = metrics.topology_errors or 0
    for reason, count in counts.items():
        if count > 0:
            pods = "pod" if count == 1 else "pods"
            observed = f"{count} {pods} since the kubelet started"
            yield Finding(subject=f"rejections for {reason}", observed=observed, expected="none")


CONDUCT_RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-026",
        claim="a pod may have as many processes and threads as a GPU job needs",
        why="Frameworks, NCCL and data loaders start threads for each GPU; at the limit they fail "
        "with messages that do not name it.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=missing_settings(running, "podPidsLimit"),
        check=_few_pids,
        skips=no_gpus,
        remedy="raise podPidsLimit and restart the kubelet",
        reference=f"{_DOCS}/concepts/policy/pid-limiting/",
    ),
    Rule(
        code="KUB-027",
        claim="the agent may not reach through the kubelet into pods",
        why="With nodes/proxy an account may run commands in every pod of the node; the "
        "agent needs nodes/configz and nodes/metrics at most.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_rights,
        check=_may_proxy,
        remedy="take nodes/proxy out of the ClusterRoles that are bound to the agent's account, "
        "and grant get on nodes/configz and nodes/metrics instead (Kubernetes 1.33 or newer)",
        reference=f"{_DOCS}/reference/access-authn-authz/kubelet-authn-authz/",
    ),
    Rule(
        code="KUB-028",
        claim="the kubelet rejected no pod for its devices or CPUs",
        why="A pod that the kubelet rejects stays Failed; controllers make ever new ones, as the "
        "scheduler does not see NUMA nodes.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        # The counts begin with the kubelet's start: one old rejection is no fault of today.
        severity=Severity.WARNING,
        needs=_needs_rejections,
        check=_rejections,
        remedy="ask `nodetopo admit --manifest FILE` why such a pod does not fit, and change its "
        "request or the Topology Manager's policy as it says",
        reference=f"{_DOCS}/tasks/administer-cluster/topology-manager/",
    ),
)


_CPUS = "reservedSystemCPUs"


_PARTS = 1000


def _missing(snapshot: Snapshot) -> Inputs:
    reason = because(snapshot, "kubelet")
    disk, force = snapshot.kubelet_on_disk, snapshot.kubelet
    absent = () if disk is not None else (f"kubelet settings on disk{reason}",)
    if force is not None and force.is_told:
        return absent
    is_dated = disk is not None and disk.changed_since_start is not None
    return absent if is_dated else (*absent, f"settings in force (configz){reason}")


def _drift(snapshot: Snapshot) -> tuple[Finding, ...]:
    disk, force = snapshot.kubelet_on_disk, snapshot.kubelet
    if disk is None:
        return ()
    if force is not None and force.is_told:
        return tuple(_differences(force, disk))
    return tuple(
        Finding(
            subject=path,
            observed="written to after the kubelet started",
            expected="older than the kubelet's start",
        )
        for path in disk.changed_since_start or ()
    )


def _differences(force: KubeletSettings, disk: KubeletSettings) -> Iterator[Finding]:
    for field in ATTRIBUTES:
        now, then = _comparable(force, field), _comparable(disk, field)
        if now is None or then is None or _norm(now) == _norm(then):
            continue
        inner = _inner(now, then)
        yield Finding(
            subject=place(disk, field),
            observed=f"in force: {_words(inner[0])}",
            expected=f"{_words(inner[1])}, as stated",
        )


def _comparable(settings: KubeletSettings, field: str) -> Any:
    """Return the value of *field*, without what the kubelet itself writes into it.

    With ``reservedSystemCPUs`` it replaces the CPUs of both reservations
    (1.36 cmd/kubelet/app/server.go).
    """
    value = stated(settings, field)
    if field in ("systemReserved", "kubeReserved") and value and settings.reserved_system_cpus:
        return {name: text for name, text in value.items() if name != "cpu"}
    if field == "reservedMemory" and value is not None:
        return _flat(value)
    if field == "reservedSystemCPUs":
        return value or ""
    return value


def _flat(entries: tuple[ReservedMemory, ...]) -> Mapping[str, str]:
    return {
        f"numaNode {entry.numa_node} {kind}": text
        for entry in entries
        for kind, text in entry.limits.items()
    }


def _norm(value: Any) -> Any:
    """Return what two ways of writing the same have in common: 1Gi is 1024Mi, 0-1 is 0,1."""
    if isinstance(value, Mapping):
        return {key: _norm(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return sorted(map(str, value))
    if not isinstance(value, str):
        return value
    if "," in value or "-" in value:
        return _cpus(value)
    size = amount(value, per_unit=_PARTS)
    return value if size is None else size


def _cpus(text: str) -> str:
    try:
        return str(CpuSet.parse(text)) if is_cpu_list(text) else text
    except ValueError:
        return text


def _inner(now: Any, then: Any) -> tuple[Any, Any]:
    """Return of two mappings only the entries that differ."""
    if not isinstance(now, Mapping) or not isinstance(then, Mapping):
        return now, then
    keys = [key for key in {**now, **then} if _norm(now.get(key)) != _norm(then.get(key))]
    return (
        {key: now[key] for key in keys if key in now},
        {key: then[key] for key in keys if key in then},
    )


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_words(item)}" for key, item in value.items()) or "nothing"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value != "" else "nothing"


def _needs_start(snapshot: Snapshot) -> Inputs:
    disk = snapshot.kubelet_on_disk
    if disk is not None and disk.unloaded_drop_ins is not None:
        return ()
    return (f"flags of the running kubelet{because(snapshot, 'kubelet')}",)


def _passed_over(snapshot: Snapshot) -> tuple[Finding, ...]:
    disk = snapshot.kubelet_on_disk
    return tuple(
        Finding(
            subject=path,
            observed="not loaded by the running kubelet",
            expected="a name that ends in .conf, in the directory that --config-dir names",
        )
        for path in (disk.unloaded_drop_ins if disk else None) or ()
    )


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-024",
        claim="the kubelet runs with the settings that are on disk",
        why="The kubelet reads its files and flags at its start only: what was changed since then "
        "is not in force, and comes with the next restart, wanted or not.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing,
        check=_drift,
        remedy="restart the kubelet if the files are right (after a change of a manager's policy "
        "drain the node and delete its state file first), or put the files back",
        reference="https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/",
    ),
    Rule(
        code="KUB-029",
        claim="every file with kubelet settings is loaded",
        why="The kubelet reads drop-ins only from the directory of --config-dir, not through a "
        "symbolic link to it, and only names that end in .conf; it passes over all others without "
        "a word.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_start,
        check=_passed_over,
        remedy="rename the file to end in .conf, start the kubelet with --config-dir naming its "
        "directory, or delete the file",
        reference="https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/"
        "#kubelet-conf-d",
    ),
)
