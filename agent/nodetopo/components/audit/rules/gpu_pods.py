"""Pods and containers that use GPUs, and the inputs of rules on their QoS."""

from collections.abc import Iterable, Iterator

from nodetopo.checks.inputs import because
from nodetopo.checks.rule import Missing
from nodetopo.components.audit.rules.kubelet.inputs import version
from nodetopo.model.kubernetes import GPU_RESOURCE, MIG_RESOURCES, MILLICORES
from nodetopo.model.pod import Container, Pod
from nodetopo.model.qos import PodLevel, pod_level
from nodetopo.model.snapshot import Snapshot

GPU = GPU_RESOURCE
"""The resource of NVIDIA's device plugin for whole GPUs, and for MIG devices by its strategy
``single`` (NVIDIA/k8s-device-plugin v0.19.0)."""

MIG = MIG_RESOURCES
"""How the resources of its strategy ``mixed`` begin; a profile's name follows."""

_SHARED = "nvidia.com/gpu.shared"

_FINISHED = ("Succeeded", "Failed")
_TRIALS = "ClusterPolicy"
"""The owner of the pods with which NVIDIA's GPU operator tries out a node that it has set up:
privileged, with all GPUs or any one, for some seconds (NVIDIA/gpu-operator v25.3
``validator/main.go``)."""


def is_gpu_resource(name: str) -> bool:
    """Return whether *name* is a resource of NVIDIA's device plugin that stands for GPUs."""
    return name in (GPU, _SHARED) or name.startswith(MIG)


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


def is_whole(millicores: int) -> bool:
    """Return whether a container with this CPU request can get exclusive CPUs."""
    return millicores > 0 and millicores % MILLICORES == 0


def live(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the pods that have not ended, in their order, without the GPU operator's trials."""
    return (
        pod
        for pod in snapshot.pods or ()
        if pod.phase not in _FINISHED and pod.owner_kind != _TRIALS
    )


def gpu_pods(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the pods with a container that is known to use GPUs."""
    return (pod for pod in live(snapshot) if any(map(uses_gpus, pod.containers)))


def level(snapshot: Snapshot) -> PodLevel | None:
    """Return when this node's Kubernetes goes by pod-level resources; ``None`` if not known."""
    settings = snapshot.kubelet
    return pod_level(version(snapshot), None if settings is None else settings.feature_gates)


def missing_pods(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Need pods to be read."""
    reason = because(snapshot, "pods") or because(snapshot, "podresources")
    return (Missing("pods", reason),) if snapshot.pods is None else ()


def missing_specs(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Require pods, and for each container whether it uses GPUs."""
    return missing_pods(snapshot) + tuple(
        Missing(f"resources of container {container.name} in {pod_name(pod)}")
        for pod in live(snapshot)
        for container in pod.containers
        if uses_gpus(container) is None
    )


def pod_name(pod: Pod) -> str:
    """Return the name under which a finding speaks of *pod*."""
    return f"{pod.namespace}/{pod.name}"


def container_name(pod: Pod, container: Container) -> str:
    """Return the name under which a finding speaks of *container*."""
    return f"{pod_name(pod)} container {container.name}"
