"""Pods: the allow-listed part of them that placement depends on, and what they hold at once."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct

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


class AssignedDevices(Struct, frozen=True, kw_only=True):
    """Devices of one resource that the kubelet gave to a container (PodResources API)."""

    resource: str
    ids: tuple[str, ...]


class AssignedMemory(Struct, frozen=True, kw_only=True):
    """Memory that the Memory Manager pinned for a container (PodResources API)."""

    kind: str
    size_bytes: Amount
    numa_nodes: NumaIds


class Container(Struct, frozen=True, kw_only=True):
    """One container."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    # requests, limits: resource → amount; CPU in millicores, everything else in its base unit
    # (bytes, devices). None where the source lacks the spec
    requests: Mapping[str, Amount] | None = None
    limits: Mapping[str, Amount] | None = None
    # devices, cpus, memory: assigned by the kubelet. `cpus` has exclusive CPUs only and is empty
    # when the container shares; None: not reported
    devices: tuple[AssignedDevices, ...] | None = None
    cpus: CpuSet | None = None
    memory: tuple[AssignedMemory, ...] | None = None
    # By ResourceClaims; by claim, then as the driver lists them.
    claimed: tuple[ClaimedDevice, ...] | None = None
    # The pod's claims that it uses (`resources.claims`), each once, in order.
    claims: tuple[str, ...] | None = None
    image: str | None = None
    # Variables whose names begin with `NCCL_`, `NVIDIA_`, `CUDA_` or `UCX_`, in their order; the
    # value is None where it comes from another object or where the name suggests a secret.
    environment: Mapping[str, str | None] | None = None
    has_hidden_environment: bool | None = None  # `envFrom` adds variables that are unknown here
    is_privileged: bool | None = None
    capabilities: tuple[str, ...] | None = None  # added ones, without CAP_
    shared_memory: SharedMemory | None = None
    shared_memory_bytes: Amount | None = None  # limit of the volume; None where it states none
    # cpuset, memory_nodes: what its cgroup allows now (`cpuset.cpus.effective`,
    # `cpuset.mems.effective`)
    cpuset: CpuSet | None = None
    memory_nodes: NumaIds | None = None
    # Periods in which its CPU quota stopped it (`cpu.stat` nr_throttled).
    throttled: int | None = None
    # Ids whose health in `allocatedResourcesStatus` is not Healthy.
    unhealthy_devices: tuple[str, ...] | None = None
    id: str | None = None  # of the running container, without the runtime's name


class Pod(Struct, frozen=True, kw_only=True):
    """One pod, running or only described by a manifest."""

    namespace: str
    name: str
    uid: str | None = None
    phase: str | None = None
    qos_class: str | None = None  # from the API server (`status.qosClass`)
    containers: tuple[Container, ...] = ()
    # requests, limits: pod-level (`spec.resources`), in a container's units; None when the pod
    # states none
    requests: Mapping[str, Amount] | None = None
    limits: Mapping[str, Amount] | None = None
    # cpus, memory: what the kubelet gave to the pod as a whole, with what its containers have of
    # it; None where it gave nothing so, or does not say (PodResources, 1.37)
    cpus: CpuSet | None = None
    memory: tuple[AssignedMemory, ...] | None = None
    owner_kind: str | None = None  # such as Job; of a manifest, the kind of document
    replicas: int | None = None  # of a manifest, or its `parallelism`; None where nothing states it
    # status_reason, status_message: why the kubelet rejected it, such as TopologyAffinityError
    status_reason: str | None = None
    status_message: str | None = None
    # uses_host_*: it lives in the host's namespace of that kind
    uses_host_network: bool | None = None
    uses_host_ipc: bool | None = None
    uses_host_pid: bool | None = None
    hostname: str | None = None
    runtime_class: str | None = None
    node_selector: Mapping[str, str] | None = None  # label → value
    # It gets devices other than by a device plugin's resource: `spec.resourceClaims`, or networks
    # by the annotation `k8s.v1.cni.cncf.io/networks`.
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

    Init containers run one by one, alongside the sidecars that started before them; app containers
    run alongside all sidecars (KEP-753; k8s.io/component-helpers 1.36
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
