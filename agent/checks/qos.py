"""Rules on the pods that use GPUs: their QoS class and their CPUs."""

from collections.abc import Iterator

from agent.checks.gpu_pods import (
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
from agent.checks.inputs import Inputs, missing_numa_nodes, one_numa_node
from agent.checks.kubelet.inputs import lacking, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.kubernetes import MILLICORES, release
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.qos import PodLevel, QosClass, asks_as_a_pod, class_of, qos_class, shortfalls
from agent.model.snapshot import Snapshot

# Rules on containers with CPUs of their own: their CPU quota, and init containers before them.

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
            observed=f"an init container with {_pinning_cpus(container)} of its own, chosen "
            "without the GPUs, on whose NUMA nodes the others have to be",
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


def _pinning_cpus(container: Container) -> str:
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


PINNING_RULES: tuple[Rule, ...] = (
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


# Rules on pods with GPUs that state resources as a whole (``spec.resources``).

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


POD_LEVEL_RULES: tuple[Rule, ...] = (
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
    *POD_LEVEL_RULES,
    *PINNING_RULES,
)
