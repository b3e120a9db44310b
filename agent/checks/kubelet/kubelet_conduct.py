"""Rules on limits of pods, on what the kubelet rejected, and on what the agent may ask it."""

from collections.abc import Iterator

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kubelet.inputs import missing_settings, place, running
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot

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


RULES: tuple[Rule, ...] = (
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
