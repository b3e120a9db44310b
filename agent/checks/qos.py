"""Rules on the pods that use GPUs: their QoS class and their CPUs."""

from collections.abc import Iterable, Iterator

from agent.checks.inputs import Inputs, because
from agent.checks.qos_class import QosClass, qos_class, shortfalls
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pod import Container, Pod
from agent.model.snapshot import Snapshot

MILLICORES = 1000
"""Millicores in a CPU."""

_FINISHED = ("Succeeded", "Failed")
_GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
_MIG_PREFIX = "nvidia.com/mig-"
_REFERENCE = "https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/"


def is_gpu_resource(name: str) -> bool:
    """Return whether *name* is a resource of NVIDIA's device plugin that stands for GPUs."""
    return name in _GPU_RESOURCES or name.startswith(_MIG_PREFIX)


def uses_gpus(container: Container) -> bool | None:
    """Return whether *container* asks for or holds GPUs; ``None`` when its spec is not known."""
    if _names_gpu(device.resource for device in container.devices or () if device.ids):
        return True
    if container.requests is None and container.limits is None:
        return None
    asked = {**(container.requests or {}), **(container.limits or {})}
    return _names_gpu(name for name, amount in asked.items() if amount > 0)


def _names_gpu(resources: Iterable[str]) -> bool:
    return any(map(is_gpu_resource, resources))


def _live(snapshot: Snapshot) -> Iterator[Pod]:
    return (pod for pod in snapshot.pods or () if pod.phase not in _FINISHED)


def _gpu_pods(snapshot: Snapshot) -> Iterator[Pod]:
    return (pod for pod in _live(snapshot) if any(map(uses_gpus, pod.containers)))


def _class_of(pod: Pod) -> str | None:
    # The class in the status was fixed at creation and is what the kubelet goes by.
    return pod.qos_class or qos_class(pod)


def _not_guaranteed(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=_name(pod),
            observed="; ".join((observed, *shortfalls(pod))),
            expected=QosClass.GUARANTEED.value,
        )
        for pod in _gpu_pods(snapshot)
        if (observed := _class_of(pod)) is not None and observed != QosClass.GUARANTEED
    )


def _missing_pods(snapshot: Snapshot) -> Inputs:
    reason = because(snapshot, "pods") or because(snapshot, "podresources")
    return (f"pods were not read{reason}",) if snapshot.pods is None else ()


def _missing_resources(snapshot: Snapshot) -> Inputs:
    """Need to know of each container whether it uses GPUs, and of those what they ask for."""
    return _missing_pods(snapshot) + tuple(
        f"resources of container {container.name} in {_name(pod)}"
        for pod in _live(snapshot)
        for container in pod.containers
        if uses_gpus(container) is None or (uses_gpus(container) and container.requests is None)
    )


def _missing_classes(snapshot: Snapshot) -> Inputs:
    unclear = (_name(pod) for pod in _live(snapshot) if _is_unclear(pod))
    return _missing_pods(snapshot) + tuple(f"resources of {name}" for name in unclear)


def _is_unclear(pod: Pod) -> bool:
    uses = {uses_gpus(container) for container in pod.containers}
    if True in uses:
        return _class_of(pod) is None
    return None in uses and _class_of(pod) != QosClass.GUARANTEED


def _broken_cpus(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"{_name(pod)} container {container.name}",
            observed=_cpus(container.requests.get("cpu", 0)),
            expected="a whole number of CPUs, at least 1",
        )
        for pod in _live(snapshot)
        for container in pod.containers
        if uses_gpus(container)
        and container.requests is not None
        and not _is_whole(container.requests.get("cpu", 0))
    )


def _is_whole(millicores: int) -> bool:
    return millicores > 0 and millicores % MILLICORES == 0


def _cpus(millicores: int) -> str:
    return f"{millicores}m" if millicores else "no CPU request"


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


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
        reference=_REFERENCE,
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
)
