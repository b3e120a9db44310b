"""Rules on containers with CPUs of their own: their CPU quota, and init containers before them."""

from collections.abc import Iterator

from agent.checks.gpu_pods import (
    container_name,
    gpu_pods,
    is_whole,
    level,
    live,
    missing_pods,
    missing_specs,
    uses_gpus,
)
from agent.checks.inputs import Inputs, missing_numa_nodes, one_numa_node
from agent.checks.kubelet.inputs import lacking
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.qos import QosClass, asks_as_a_pod, class_of
from agent.model.quantity import MILLICORES
from agent.model.snapshot import Snapshot

_SETTINGS = ("cpuManagerPolicy", "topologyManagerPolicy", "topologyManagerScope")


def _running(snapshot: Snapshot) -> Iterator[tuple[Pod, Container]]:
    """Yield the containers that run now: those with an id, and all that the kubelet lists alone."""
    for pod in live(snapshot):
        for container in pod.containers:
            is_listed = container.requests is None and container.cpus is not None
            if container.id is not None or is_listed:
                yield pod, container


def _throttled(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=f"CPUs {container.cpus} of its own, stopped by its quota in "
            f"{container.throttled} periods",
            expected="no CPU quota on CPUs of its own",
        )
        for pod, container in _running(snapshot)
        if container.cpus and container.throttled
    )


def _missing_throttling(snapshot: Snapshot) -> Inputs:
    absent = missing_pods(snapshot)
    for pod, container in _running(snapshot):
        name = container_name(pod, container)
        if container.cpus is None and container.kind is not ContainerKind.INIT:
            absent += (f"exclusive CPUs of {name}",)
        elif container.cpus and container.throttled is None:
            absent += (f"cgroup of {name}",)
    return absent


def _trapped(snapshot: Snapshot) -> tuple[Finding, ...]:
    if snapshot.kubelet is None or not _aligns_containers(snapshot.kubelet):
        return ()
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=f"an init container with {_cpus(container)} of its own, chosen without the "
            "GPUs, on whose NUMA nodes the others have to be",
            expected="init containers that leave the choice to the containers with GPUs",
        )
        for pod, container in _first(snapshot)
    )


def _first(snapshot: Snapshot) -> Iterator[tuple[Pod, Container]]:
    """Yield the init containers that get CPUs before the pod's GPUs are placed."""
    for pod in gpu_pods(snapshot):
        is_pinned = class_of(pod, level(snapshot)) == QosClass.GUARANTEED
        if not is_pinned or asks_as_a_pod(pod) or not _has_pinned_gpus(pod):
            continue
        for container in pod.containers:
            is_init = container.kind is ContainerKind.INIT
            if is_init and is_whole(_millicores(container)) and not uses_gpus(container):
                yield pod, container


def _has_pinned_gpus(pod: Pod) -> bool:
    return any(
        uses_gpus(container) and is_whole(_millicores(container))
        for container in pod.containers
        if container.kind is ContainerKind.APP
    )


def _millicores(container: Container) -> int:
    return (container.requests or {}).get("cpu", 0)


def _cpus(container: Container) -> str:
    count = _millicores(container) // MILLICORES
    return "1 CPU" if count == 1 else f"{count} CPUs"


def _aligns_containers(settings: KubeletSettings) -> bool:
    return (
        settings.cpu_manager_policy == "static"
        and settings.topology_manager_policy not in (None, "none")
        and settings.topology_manager_scope == "container"
    )


def _missing_trap(snapshot: Snapshot) -> Inputs:
    """Need the kubelet's settings, where a pod depends on them."""
    absent = missing_specs(snapshot)
    if not any(_first(snapshot)):
        return absent
    return absent + missing_numa_nodes(snapshot) + lacking(snapshot, snapshot.kubelet, *_SETTINGS)


RULES: tuple[Rule, ...] = (
    Rule(
        code="QOS-005",
        claim="no container with CPUs of its own is stopped by a CPU quota",
        why="A quota stops all threads of a container until the period of 100 ms ends, although "
        "nobody else may use its CPUs; collectives then wait for the slowest rank.",
        area=Area.QOS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_throttling,
        check=_throttled,
        remedy="leave the kubelet's gate DisableCPUQuotaWithExclusiveCPUs on (1.33 and newer), on "
        "older kubelets set cpuCFSQuota: false, and create the pod anew",
        reference="https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/"
        "#static-policy",
    ),
    Rule(
        code="QOS-006",
        claim="no init container decides on which NUMA node a pod's GPUs have to be",
        why="With scope container an init container is placed first, without the GPUs, and the "
        "containers after it take over its CPUs: where GPUs are free on another NUMA node only, "
        "the pod is rejected or gets its GPUs across nodes.",
        area=Area.QOS,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_trap,
        check=_trapped,
        skips=one_numa_node,
        remedy="give the init container a part of a CPU, such as 1500m, request equal to limit, "
        "which keeps the pod Guaranteed and takes no CPUs; or set topologyManagerScope: pod",
        reference="https://github.com/kubernetes/kubernetes/issues/123816",
    ),
)
