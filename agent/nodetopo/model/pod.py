"""Pods: the allow-listed part of them that placement depends on, and what they hold at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.limits import Amount, NumaIds
from nodetopo.model.numa import CpuSet


class SharedMemory(StrEnum):
    """What is mounted at ``/dev/shm`` of a container.

    DEFAULT is the runtime's own, of 64 MiB; MEMORY an emptyDir with medium Memory, or
    the runtime's own of another size (an annotation of CRI-O);
    HOST the host's, by ``hostIPC`` or a hostPath; OTHER any other volume, which is on a disk.
    """

    DEFAULT = "default"
    MEMORY = "memory"
    HOST = "host"
    OTHER = "other"


class ContainerKind(StrEnum):
    """Which list of the pod a container stands in; a sidecar is a restarting init container."""

    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedDevices:
    """Devices of one resource that the kubelet gave to a container (PodResources API)."""

    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMemory:
    """Memory that the Memory Manager pinned for a container (PodResources API)."""

    kind: str
    size_bytes: Amount
    numa_nodes: NumaIds


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container.

    Attributes:
        requests, limits: resource → amount; CPU in millicores, everything else in its base
            unit (bytes, devices). ``None`` where the source does not have the spec.
        devices, cpus, memory: what the kubelet assigned. *cpus* holds exclusive CPUs only,
            empty when the container shares; ``None`` everywhere means not reported.
        claims: the pod's claims that it uses (``resources.claims``), each once, in their order.
        claimed: the devices that it has by ResourceClaims, by claim, then as the driver lists them.
        image: as the spec names it.
        environment: variables whose names begin with ``NCCL_``, ``NVIDIA_``, ``CUDA_`` or
            ``UCX_``, in their order; the value is ``None`` where it comes from another
            object or where the name suggests a secret.
        has_hidden_environment: whether ``envFrom`` adds variables that are not known here.
        capabilities: those added, without ``CAP_``.
        shared_memory_bytes: limit of the volume, ``None`` where it states none.
        cpuset, memory_nodes: what its cgroup allows now (``cpuset.cpus.effective``,
            ``cpuset.mems.effective``).
        throttled: periods in which its CPU quota stopped it (``cpu.stat`` ``nr_throttled``).
        unhealthy_devices: ids whose health in ``allocatedResourcesStatus`` is not Healthy.
        id: of the running container, as its runtime names it, without the runtime's name.
    """

    name: str
    kind: ContainerKind = ContainerKind.APP
    requests: Mapping[str, Amount] | None = None
    limits: Mapping[str, Amount] | None = None
    devices: tuple[AssignedDevices, ...] | None = None
    cpus: CpuSet | None = None
    memory: tuple[AssignedMemory, ...] | None = None
    claimed: tuple[ClaimedDevice, ...] | None = None
    claims: tuple[str, ...] | None = None
    image: str | None = None
    environment: Mapping[str, str | None] | None = None
    has_hidden_environment: bool | None = None
    is_privileged: bool | None = None
    capabilities: tuple[str, ...] | None = None
    shared_memory: SharedMemory | None = None
    shared_memory_bytes: Amount | None = None
    cpuset: CpuSet | None = None
    memory_nodes: NumaIds | None = None
    throttled: int | None = None
    unhealthy_devices: tuple[str, ...] | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod, running or only described by a manifest.

    Attributes:
        qos_class: ``status.qosClass`` where the API server reported it.
        requests, limits: pod-level resources (``spec.resources``), same units as a
            container's; ``None`` when the pod states none.
        cpus, memory: what the kubelet gave to the pod as a whole, with what its containers have of
            it; ``None`` where it gave nothing so, or does not say (PodResources, 1.37).
        owner_kind: of the object that made it, e.g. ``Job``; of a manifest, the kind of document.
        replicas: how many such pods a manifest requests, or ``parallelism``; ``None`` where
            nothing states it.
        status_reason, status_message: why the kubelet rejected it, e.g. ``TopologyAffinityError``.
        uses_host_*: whether it lives in the host's namespace of that kind.
        hostname: ``spec.hostname``.
        node_selector: label → value.
        has_other_devices: whether it gets devices other than by a device plugin's resource:
            ``spec.resourceClaims``, or networks by the annotation
            ``k8s.v1.cni.cncf.io/networks``.
    """

    namespace: str
    name: str
    uid: str | None = None
    phase: str | None = None
    qos_class: str | None = None
    containers: tuple[Container, ...] = ()
    requests: Mapping[str, Amount] | None = None
    limits: Mapping[str, Amount] | None = None
    cpus: CpuSet | None = None
    memory: tuple[AssignedMemory, ...] | None = None
    owner_kind: str | None = None
    replicas: int | None = None
    status_reason: str | None = None
    status_message: str | None = None
    uses_host_network: bool | None = None
    uses_host_ipc: bool | None = None
    uses_host_pid: bool | None = None
    hostname: str | None = None
    runtime_class: str | None = None
    node_selector: Mapping[str, str] | None = None
    has_other_devices: bool | None = None


Amounts = Mapping[str, int]
"""Resource → amount, CPU in millicores, everything else in its base unit."""


def pool(pod: Pod) -> CpuSet | None:
    """Return the CPUs shared by those containers of *pod* that have none exclusively.

    ``None`` where the kubelet gave the pod none as a whole.
    """
    if pod.cpus is None:
        return None
    return CpuSet(pod.cpus.cpus.difference(*(it.cpus.cpus for it in pod.containers if it.cpus)))


def at_once(pod: Pod, amounts: Callable[[Container], Amounts]) -> dict[str, int]:
    """Return the most that containers of *pod* hold of each resource at any one time.

    Init containers run one by one, beside the sidecars that started before them; app containers
    run beside all sidecars (KEP-753; k8s.io/component-helpers 1.36
    resource.AggregateContainerRequests). Resources are in the order of their first mention.

    Args:
        amounts: what one container holds; a resource that is not named counts as 0.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}  # while an init container runs
    for container in started(pod):
        wanted = summed(running, amounts(container))
        if container.kind is ContainerKind.INIT:
            peak = _most(peak, wanted)
        else:
            running = wanted
    return _most(peak, running)


def started(pod: Pod) -> tuple[Container, ...]:
    """Return the containers in the order in which the kubelet admits them, init ones first."""
    return tuple(sorted(pod.containers, key=lambda container: container.kind is ContainerKind.APP))


def summed(amounts: Amounts, more: Amounts) -> dict[str, int]:
    """Return the sum of both, by resource."""
    return {name: amounts.get(name, 0) + more.get(name, 0) for name in {**amounts, **more}}


def _most(amounts: Amounts, others: Amounts) -> dict[str, int]:
    return {name: max(amounts.get(name, 0), others.get(name, 0)) for name in {**amounts, **others}}
