"""One case for the kubelet's managers and for ours: a machine, settings and what happens to it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.pod import Container, ContainerKind, Pod
from tests.lab.admission_machine import Machine
from tests.lab.build import kubernetes_version

GPU, NIC = "nvidia.com/gpu", "rdma/hca"
_MEMORY_MIB = 1024
"""Reserved for the system, all of it on the first NUMA node."""


class Device(Struct, frozen=True):
    """One device.

    Attributes:
        nodes: ``None`` where its plugin tells none.
    """

    resource: str
    id: str
    nodes: tuple[int, ...] | None
    healthy: bool = True


class Case(Struct, frozen=True, kw_only=True):
    """What the real managers and ours are both given.

    Attributes:
        steps: a pod is admitted, the pod of a uid ends.
        version: of the managers that are asked.
    """

    machine: Machine
    topology: str = "none"
    scope: str = "container"
    topology_options: Mapping[str, str] = field(default_factory=dict)
    cpu: str = "none"
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: str = ""
    reserved_cpu: str = "1"
    memory: str = "None"
    devices: tuple[Device, ...] = ()
    steps: tuple[Pod | str, ...] = ()
    version: str = field(default_factory=kubernetes_version)

    def settings(self) -> KubeletSettings:
        """Return what our probes would read of the kubelet's configuration."""
        return KubeletSettings(
            source="a case",
            version=self.version,
            topology_manager_policy=self.topology,
            topology_manager_scope=self.scope,
            topology_manager_options=self.topology_options,
            cpu_manager_policy=self.cpu,
            cpu_manager_options=self.cpu_options,
            memory_manager_policy=self.memory,
            reserved_system_cpus=self.reserved_cpus,
            system_reserved={"memory": f"{_MEMORY_MIB}Mi"},
            kube_reserved={} if self.reserved_cpus else {"cpu": self.reserved_cpu},
            feature_gates={"CPUManagerPolicyAlphaOptions": True},
        )

    def for_kubelet(self) -> dict[str, Any]:
        """Return the question that ``tests/lab/go/admission`` reads."""
        first = min(node.id for node in self.machine.nodes)
        return {
            "machine": self.machine.for_kubelet(),
            "gates": {"CPUManagerPolicyAlphaOptions": True},
            "topology": {
                "policy": self.topology,
                "scope": self.scope,
                "options": dict(self.topology_options),
            },
            "cpu": {
                "policy": self.cpu,
                "options": dict(self.cpu_options),
                "reserved": self.reserved_cpus,
                "amount": self.reserved_cpu,
            },
            "memory": {
                "policy": self.memory,
                "reserved": {str(first): {"memory": f"{_MEMORY_MIB}Mi"}},
                "amount": f"{_MEMORY_MIB}Mi",
            },
            "devices": self._devices(),
            "steps": [_step(one) for one in self.steps],
        }

    def _devices(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for one in self.devices:
            entry = {"id": one.id, "nodes": one.nodes, "healthy": one.healthy}
            found.setdefault(one.resource, []).append(entry)
        return found


def _step(one: Pod | str) -> dict[str, Any]:
    return {"remove": one} if isinstance(one, str) else {"admit": pod_object(one)}


def pod_object(pod: Pod) -> dict[str, Any]:
    """Return *pod* as an object of the Kubernetes API, defaulted."""
    apps = [_container(one) for one in pod.containers if one.kind is ContainerKind.APP]
    first = [_container(one) for one in pod.containers if one.kind is not ContainerKind.APP]
    spec: dict[str, Any] = {"containers": apps, "initContainers": first}
    if pod.requests is not None or pod.limits is not None:
        spec["resources"] = _resources(pod.requests, pod.limits)
    metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(one: Container) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": one.name,
        "image": "registry.example/none",
        "resources": _resources(one.requests, one.limits),
    }
    if one.kind is ContainerKind.SIDECAR:
        found["restartPolicy"] = "Always"
    return found


def _resources(
    requests: Mapping[str, int] | None, limits: Mapping[str, int] | None
) -> dict[str, dict[str, str]]:
    return {"requests": _amounts(requests or {}), "limits": _amounts(limits or {})}


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{it}m" if name == "cpu" else str(it) for name, it in amounts.items()}


def is_settled(pod: Pod) -> bool:
    """Return whether each container takes all devices that init containers left it.

    Of more than it takes, the kubelet gives on an arbitrary part.
    """
    for resource in (GPU, NIC):
        left = 0
        for one in pod.containers:
            asked = (one.limits or {}).get(resource, 0)
            if 0 < asked < left:
                return False
            if asked:
                left = asked if one.kind is ContainerKind.INIT else 0
    return True


def readable(case: Case) -> str:
    """Return *case* in a few lines."""
    lines = [
        f"Topology Manager {case.topology}, scope {case.scope}, {dict(case.topology_options)}",
        f"CPU Manager {case.cpu}, {sorted(case.cpu_options)}",
        f"reserved: {case.reserved_cpu} CPUs {case.reserved_cpus}",
        f"Memory Manager {case.memory}",
    ]
    for node in case.machine.nodes:
        cores = [core.threads for core in case.machine.cores if core.node == node.id]
        lines.append(f"NUMA {node.id}: {node.memory_mib} MiB, cores {cores}, {node.distances}")
    lines += [f"{it.id}: NUMA {it.nodes}{'' if it.healthy else ', broken'}" for it in case.devices]
    for step in case.steps:
        if isinstance(step, str):
            lines.append(f"{step} ends")
            continue
        asked = [f"{it.kind.value} {it.name} {dict(it.limits or {})}" for it in step.containers]
        lines.append(f"{step.name} comes: {'; '.join(asked)} {dict(step.limits or {}) or ''}")
    return "\n".join(lines)
