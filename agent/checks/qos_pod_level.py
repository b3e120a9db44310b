"""Rules on pods with GPUs that state resources as a whole (``spec.resources``)."""

from agent.checks.gpu_pods import gpu_pods, level, missing_specs, pod_name
from agent.checks.inputs import Inputs
from agent.checks.kubelet.inputs import lacking, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubernetes import release
from agent.model.pod import Pod
from agent.model.qos import PodLevel, QosClass, asks_as_a_pod, class_of, qos_class
from agent.model.snapshot import Snapshot

GATE = "PodLevelResourceManagers"
"""Alpha in 1.36, beta and still off in 1.37 (kubernetes pkg/features/kube_features.go)."""

LAST_OFF = (1, 37)
"""The last release whose default is known."""

_RANK = (QosClass.BEST_EFFORT, QosClass.BURSTABLE, QosClass.GUARANTEED)
_REFERENCE = "https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/"


def _left_out(snapshot: Snapshot) -> tuple[Finding, ...]:
    if snapshot.kubelet is None or _is_on(snapshot) is not False:
        return ()
    return tuple(
        Finding(
            subject=pod_name(pod),
            observed=f"resources in spec.resources, and the gate {GATE} is off",
            expected="resources of the containers, by which the CPU and Memory Managers go",
        )
        for pod in gpu_pods(snapshot)
        if asks_as_a_pod(pod) and class_of(pod, level(snapshot)) == QosClass.GUARANTEED
    )


def _is_on(snapshot: Snapshot) -> bool | None:
    """Return whether the managers serve such pods; ``None`` where the default is not known."""
    settings = snapshot.kubelet
    gates = None if settings is None else settings.feature_gates
    if gates is None or GATE in gates:
        return None if gates is None else gates[GATE]
    found = release(version(snapshot))
    return False if found is None or found <= LAST_OFF else None


def _missing_gate(snapshot: Snapshot) -> Inputs:
    """Need the gate, where a pod depends on it."""
    absent = missing_specs(snapshot)
    if not any(map(asks_as_a_pod, gpu_pods(snapshot))):
        return absent
    if gates := lacking(snapshot, snapshot.kubelet, "featureGates"):
        return absent + gates
    is_known = _is_on(snapshot) is not None
    return absent if is_known else (*absent, f"default of the gate {GATE} in this release")


def _demoted(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=pod_name(pod),
            observed=f"{observed} by a spec.resources without limits of CPU and memory",
            expected=f"{by_containers.value}, as its containers ask for",
        )
        for pod in gpu_pods(snapshot)
        if _limits_neither(pod)
        and (observed := class_of(pod, level(snapshot))) is not None
        and (by_containers := qos_class(pod, PodLevel.NEVER)) is not None
        and _RANK.index(by_containers) > _RANK.index(QosClass(observed))
    )


def _limits_neither(pod: Pod) -> bool:
    """Return whether ``spec.resources`` is there and limits neither CPU nor memory."""
    is_there = pod.requests is not None or pod.limits is not None
    return is_there and not (pod.limits or {}).keys() & {"cpu", "memory"}


def _missing_level(snapshot: Snapshot) -> Inputs:
    unclear = tuple(
        f"Kubernetes version, on which the class of {pod_name(pod)} depends"
        for pod in gpu_pods(snapshot)
        if _limits_neither(pod) and class_of(pod, level(snapshot)) is None
    )
    return missing_specs(snapshot) + unclear


RULES: tuple[Rule, ...] = (
    Rule(
        code="QOS-003",
        claim="no pod with GPUs loses its CPUs by stating resources as a whole",
        why="Without the gate PodLevelResourceManagers the CPU and Memory Managers leave a pod "
        "with spec.resources out: it is Guaranteed, and yet neither its CPUs nor its memory are "
        "its own.",
        area=Area.QOS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_gate,
        check=_left_out,
        remedy="state CPU and memory in each container, requests equal to limits, instead of in "
        f"spec.resources; or turn the kubelet's gate {GATE} on (1.36 and newer)",
        reference=_REFERENCE,
    ),
    Rule(
        code="QOS-004",
        claim="no pod with GPUs loses its class to a spec.resources without CPU and memory limits",
        why="Where spec.resources is stated, the class comes from it alone, whatever containers "
        "ask for: an empty one makes a pod BestEffort up to 1.36, one with huge pages only makes "
        "it Burstable at most, in 1.37 too.",
        area=Area.QOS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_level,
        check=_demoted,
        remedy="remove the field spec.resources from the pod, or state limits of CPU and memory in "
        "it too, and create the pod anew",
        reference=_REFERENCE,
    ),
)
