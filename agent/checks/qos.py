"""Rules on the pods that use GPUs: their QoS class and their CPUs."""

from agent.checks import qos_pinning, qos_pod_level
from agent.checks.gpu_pods import (
    container_name,
    gpu_pods,
    is_whole,
    level,
    live,
    missing_pods,
    pod_name,
    uses_gpus,
)
from agent.checks.inputs import Inputs
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pod import Container, Pod
from agent.model.qos import PodLevel, QosClass, asks_as_a_pod, class_of, shortfalls
from agent.model.snapshot import Snapshot


def _not_guaranteed(snapshot: Snapshot) -> tuple[Finding, ...]:
    found = level(snapshot)
    return tuple(
        Finding(
            subject=pod_name(pod),
            observed="; ".join((observed, *shortfalls(pod, found))),
            expected=QosClass.GUARANTEED.value,
        )
        for pod in gpu_pods(snapshot)
        if (observed := class_of(pod, found)) is not None and observed != QosClass.GUARANTEED
    )


def _missing_classes(snapshot: Snapshot) -> Inputs:
    found = level(snapshot)
    unclear = (pod for pod in live(snapshot) if _is_unclear(pod, found))
    return missing_pods(snapshot) + tuple(map(_lacking, unclear))


def _is_unclear(pod: Pod, found: PodLevel | None) -> bool:
    uses = {uses_gpus(container) for container in pod.containers}
    if True in uses:
        return class_of(pod, found) is None
    return None in uses and class_of(pod, found) != QosClass.GUARANTEED


def _lacking(pod: Pod) -> str:
    if class_of(pod, PodLevel.STATED) is None:
        return f"resources of {pod_name(pod)}"
    return f"Kubernetes version, on which the class of {pod_name(pod)} depends"


def _missing_resources(snapshot: Snapshot) -> Inputs:
    """Need to know of each container whether it uses GPUs, and of those what they ask for."""
    return missing_pods(snapshot) + tuple(
        f"resources of container {container.name} in {pod_name(pod)}"
        for pod in live(snapshot)
        for container in pod.containers
        if uses_gpus(container) is None or (uses_gpus(container) and container.requests is None)
    )


def _broken_cpus(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=_cpus(container.requests.get("cpu", 0)),
            expected="a whole number of CPUs, at least 1",
        )
        for pod in live(snapshot)
        for container in pod.containers
        if uses_gpus(container)
        and container.requests is not None
        and not is_whole(container.requests.get("cpu", 0))
        and not _shares_the_pod_s(pod, container)
    )


def _shares_the_pod_s(pod: Pod, container: Container) -> bool:
    """Return whether the container states no CPUs since the pod does; QOS-003 judges these."""
    return asks_as_a_pod(pod) and not (container.requests or {}).get("cpu", 0)


def _cpus(millicores: int) -> str:
    return f"{millicores}m" if millicores else "no CPU request"


RULES: tuple[Rule, ...] = (
    Rule(
        code="QOS-001",
        claim="every pod with GPUs is Guaranteed",
        why="The CPU and Memory Managers align Guaranteed pods only; any other pod with GPUs "
        "shares its CPUs, and its memory lies anywhere.",
        area=Area.QOS,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing_classes,
        check=_not_guaranteed,
        remedy="give every container of the pod, init containers and sidecars too, CPU and "
        "memory limits equal to its requests",
        reference="https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/",
    ),
    Rule(
        code="QOS-002",
        claim="every container with GPUs asks for whole CPUs",
        why="The CPU Manager pins containers that ask for whole CPUs only; 7500m is not pinned.",
        area=Area.QOS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_resources,
        check=_broken_cpus,
        remedy="round the container's CPU request and limit to the same whole number",
        reference="https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/",
    ),
    *qos_pod_level.RULES,
    *qos_pinning.RULES,
)
