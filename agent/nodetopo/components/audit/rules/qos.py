"""Rules on the pods that use GPUs: their QoS class and their CPUs."""

from collections.abc import Iterator

from nodetopo.checks.inputs import missing_numa_nodes, one_numa_node
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.gpu_pods import (
    container_name,
    gpu_pods,
    is_whole,
    level,
    live,
    missing_pods,
    missing_specs,
    pod_name,
    uses_gpus,
)
from nodetopo.components.audit.rules.kubelet.inputs import lacking, version
from nodetopo.components.audit.rules.kubelet.remedies import restarted_with
from nodetopo.model.kubernetes import MILLICORES, release
from nodetopo.model.pod import Container, ContainerKind, Pod
from nodetopo.model.qos import PodLevel, QosClass, asks_as_a_pod, class_of, qos_class, shortfalls
from nodetopo.model.snapshot import Snapshot

GATE = "PodLevelResourceManagers"
"""Alpha in 1.36, beta and still off in 1.37 (kubernetes pkg/features/kube_features.go)."""

LAST_OFF = (1, 37)
"""The last release whose default is known."""

_RANK = (QosClass.BEST_EFFORT, QosClass.BURSTABLE, QosClass.GUARANTEED)


@rule("QOS-001", Severity.ERROR)
def guaranteed_pods(snapshot: Snapshot) -> Judgement:
    """Find pods with GPUs of another class."""
    unclear = []
    pod_level = level(snapshot)
    for pod in live(snapshot):
        uses = {uses_gpus(container) for container in pod.containers}
        if not uses & {True, None}:
            continue
        observed = class_of(pod, pod_level)
        if observed == QosClass.GUARANTEED:
            continue
        if True not in uses or observed is None:
            unclear.append(pod)
        else:
            yield Finding(
                subject=pod_name(pod),
                observed="; ".join((observed, *shortfalls(pod, pod_level))),
                expected=QosClass.GUARANTEED.value,
            )
    yield from missing_pods(snapshot)
    for pod in unclear:
        is_known = class_of(pod, PodLevel.STATED) is not None
        yield _missing_version(pod) if is_known else Missing(f"resources of {pod_name(pod)}")


@rule("QOS-002", Severity.WARNING)
def whole_cpus(snapshot: Snapshot) -> Judgement:
    """Find containers with GPUs that ask for no CPU or for a part of one.

    A container that states no CPUs since its pod does is QOS-003's.
    """
    unclear = []
    for pod in live(snapshot):
        for container in pod.containers:
            uses = uses_gpus(container)
            if uses is None or (uses and container.requests is None):
                name = f"container {container.name} in {pod_name(pod)}"
                unclear.append(Missing(f"resources of {name}"))
                continue
            millicores = _millicores(container)
            is_of_pod = asks_as_a_pod(pod) and not millicores
            if uses and not is_whole(millicores) and not is_of_pod:
                yield Finding(
                    subject=container_name(pod, container),
                    observed=f"{millicores}m" if millicores else "no CPU request",
                    expected="a whole number of CPUs, at least 1",
                )
    yield from missing_pods(snapshot)
    yield from unclear


@rule("QOS-003", Severity.WARNING)
def pod_level_resources(snapshot: Snapshot) -> Judgement:
    """Find Guaranteed pods with pod-level resources while the feature gate is off."""
    pods = [pod for pod in gpu_pods(snapshot) if asks_as_a_pod(pod)]
    gates = None if snapshot.kubelet is None else snapshot.kubelet.feature_gates
    is_on = None if gates is None else gates.get(GATE)
    if gates is not None and is_on is None:
        kubelet = release(version(snapshot))
        is_on = False if kubelet is None or kubelet <= LAST_OFF else None
    for pod in pods if is_on is False else ():
        if class_of(pod, level(snapshot)) == QosClass.GUARANTEED:
            yield Finding(
                subject=pod_name(pod),
                observed=f"resources in spec.resources, and the gate {GATE} is off",
                expected="resources of the containers, by which the CPU and Memory Managers go",
            )
    yield from missing_specs(snapshot)
    if pods and gates is None:
        yield from lacking(snapshot, snapshot.kubelet, "featureGates")
    elif pods and is_on is None:
        yield Missing(f"default of the gate {GATE} in this release")


@rule("QOS-004", Severity.WARNING)
def lost_class(snapshot: Snapshot) -> Judgement:
    """Find pods of a lower class than their containers alone would have."""
    unclear = []
    for pod in gpu_pods(snapshot):
        is_stated = pod.requests is not None or pod.limits is not None
        if not is_stated or (pod.limits or {}).keys() & {"cpu", "memory"}:
            continue
        observed = class_of(pod, level(snapshot))
        by_containers = qos_class(pod, PodLevel.NEVER)
        if observed is None:
            unclear.append(_missing_version(pod))
        elif by_containers and _RANK.index(by_containers) > _RANK.index(QosClass(observed)):
            yield Finding(
                subject=pod_name(pod),
                observed=f"{observed} by a spec.resources without limits of CPU and memory",
                expected=f"{by_containers.value}, as its containers ask for",
            )
    yield from missing_specs(snapshot)
    yield from unclear


@rule("QOS-005", Severity.WARNING)
def throttled_containers(snapshot: Snapshot) -> Judgement:
    """Find containers with exclusive CPUs that their quota has stopped.

    Running containers have an id, or are listed by the kubelet alone.
    """
    unclear = []
    for pod in live(snapshot):
        for container in pod.containers:
            cpus = container.cpus
            is_listed = container.requests is None and cpus is not None
            if container.id is None and not is_listed:
                continue
            name = container_name(pod, container)
            if cpus is None and container.kind is not ContainerKind.INIT:
                unclear.append(Missing(f"exclusive CPUs of {name}"))
            elif cpus and container.throttled is None:
                unclear.append(Missing(f"cgroup of {name}"))
            elif cpus and container.throttled:
                yield Finding(
                    subject=name,
                    observed=f"exclusive CPUs {cpus}, stopped by its quota in "
                    f"{container.throttled} periods",
                    expected="no CPU quota on exclusive CPUs",
                )
    yield from missing_pods(snapshot)
    yield from unclear


@rule(
    "QOS-006",
    Severity.INFO,
    unless=one_numa_node,
    cure=restarted_with(topology_manager_scope="pod"),
)
def init_containers(snapshot: Snapshot) -> Judgement:
    """Find init containers that get exclusive CPUs before the pod's GPUs are placed."""
    settings = snapshot.kubelet
    first = tuple(_first(snapshot))
    aligns_containers = (
        settings is not None
        and settings.cpu_manager_policy == "static"
        and settings.topology_manager_policy not in (None, "none")
        and settings.topology_manager_scope == "container"
    )
    for pod, container in first if aligns_containers else ():
        count = _millicores(container) // MILLICORES
        cpus = "1 CPU" if count == 1 else f"{count} CPUs"
        yield Finding(
            subject=container_name(pod, container),
            observed=f"an init container with {cpus} for itself, chosen "
            "without the GPUs, which fixes the NUMA nodes of the other containers",
            expected="init containers that leave the choice to the containers with GPUs",
        )
    yield from missing_specs(snapshot)
    if first:
        fields = ("cpuManagerPolicy", "topologyManagerPolicy", "topologyManagerScope")
        yield from missing_numa_nodes(snapshot)
        yield from lacking(snapshot, settings, *fields)


def _missing_version(pod: Pod) -> Missing:
    return Missing(f"Kubernetes version, on which the class of {pod_name(pod)} depends")


def _millicores(container: Container) -> int:
    return (container.requests or {}).get("cpu", 0)


def _first(snapshot: Snapshot) -> Iterator[tuple[Pod, Container]]:
    """Yield the init containers with exclusive CPUs in Guaranteed pods with pinned GPUs."""
    for pod in gpu_pods(snapshot):
        is_guaranteed = class_of(pod, level(snapshot)) == QosClass.GUARANTEED
        if not is_guaranteed or asks_as_a_pod(pod):
            continue
        pinned = [container for container in pod.containers if is_whole(_millicores(container))]
        if any(
            container.kind is ContainerKind.APP and uses_gpus(container) for container in pinned
        ):
            for container in pinned:
                if container.kind is ContainerKind.INIT and not uses_gpus(container):
                    yield pod, container
