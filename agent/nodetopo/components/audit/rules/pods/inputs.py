"""Inputs of the rules on pods: the relevant pods, their requests, and unknown inputs."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from nodetopo.checks.inputs import listed as listed  # noqa: PLC0414 - its users are here
from nodetopo.checks.rule import Missing
from nodetopo.components.audit.rules.gpu_pods import (
    GPU,
    container_name,
    is_gpu_resource,
    live,
    missing_pods,
    uses_gpus,
)
from nodetopo.model.hca import Hca, HcaKind, LinkLayer
from nodetopo.model.pod import Container, Pod, at_once
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import cluster_uuid

_RDMA_WORDS = frozenset({"rdma", "roce", "hca", "hcas", "ib", "infiniband", "efa"})
"""Parts of the names of resources that stand for RDMA devices."""


def jobs(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the live pods that do not belong to the node itself, as its agents do.

    A DaemonSet's pod, or a static one (whose owner is the Node), is there to see all GPUs.
    """
    return (pod for pod in live(snapshot) if pod.owner_kind not in ("DaemonSet", "Node"))


def waiting(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the jobs that do not run yet, and still need resources.

    A running pod has its resources, whatever the node reports now.
    """
    return (pod for pod in jobs(snapshot) if pod.phase != "Running")


def with_gpus(snapshot: Snapshot) -> Iterator[tuple[Pod, Container]]:
    """Yield each container of a job that has or asks for GPUs, with its pod."""
    for pod in jobs(snapshot):
        for container in pod.containers:
            if uses_gpus(container):
                yield pod, container


def asked(container: Container) -> Mapping[str, int]:
    """Return resource → amount that *container* is to have: requests, where absent limits."""
    return {**(container.limits or {}), **(container.requests or {})}


def whole_gpus(container: Container) -> int:
    """Return how many of the resource for whole GPUs *container* asks for, or else holds."""
    held = sum(len(devices.ids) for devices in container.devices or () if devices.resource == GPU)
    return asked(container).get(GPU, held)


def is_extended(resource: str) -> bool:
    """Return whether *resource* was added to the node by a device plugin or a person."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def is_rdma(resource: str) -> bool:
    """Return whether *resource* gives RDMA devices by its name, as ``rdma/hca`` does."""
    if not is_extended(resource):
        return False
    parts = resource.lower().replace("_", "-").replace("/", "-").replace(".", "-").split("-")
    return not _RDMA_WORDS.isdisjoint(parts)


def others(container: Container) -> tuple[str, ...]:
    """Return the extended resources apart from GPUs that *container* asks for or holds, sorted."""
    held = {devices.resource: len(devices.ids) for devices in container.devices or ()}
    amounts = {**held, **asked(container)}
    return tuple(
        sorted(
            name
            for name, amount in amounts.items()
            if amount > 0 and is_extended(name) and not is_gpu_resource(name)
        ),
    )


def effective(pod: Pod) -> Mapping[str, int]:
    """Return resource → free amount that a node needs for *pod*.

    The sum of simultaneous containers; pod-level CPU, memory and huge pages replace it
    (k8s.io/component-helpers ``resource.PodRequests``, 1.36).
    """
    held = {name: amount for name, amount in at_once(pod, asked).items() if amount > 0}
    whole = {**(pod.limits or {}), **(pod.requests or {})}
    return {**held, **{name: whole[name] for name in whole if not is_extended(name)}}


def missing_specs(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Name the pods, or containers of jobs of which GPUs or other resources are not known."""
    unknown = listed(
        container_name(pod, container)
        for pod in jobs(snapshot)
        for container in pod.containers
        if uses_gpus(container) is None or (uses_gpus(container) and container.requests is None)
    )
    return missing_pods(snapshot) + ((Missing(f"resources of {unknown}"),) if unknown else ())


def missing_of_gpu_pods(
    snapshot: Snapshot,
    what: str,
    is_known: Callable[[Pod, Container], bool],
) -> Iterator[Missing]:
    """Name the containers with GPUs whose *what* is unknown, and the inputs that hide GPUs."""
    yield from missing_specs(snapshot)
    names = listed(
        container_name(pod, container)
        for pod, container in with_gpus(snapshot)
        if not is_known(pod, container)
    )
    if names:
        yield Missing(f"{what} of {names}")


def missing_environment(snapshot: Snapshot) -> Iterator[Missing]:
    """Name the containers with GPUs and unknown variables, including those of envFrom."""
    yield from missing_of_gpu_pods(
        snapshot, "environment", lambda _, container: container.environment is not None
    )
    hidden = listed(
        container_name(pod, container)
        for pod, container in with_gpus(snapshot)
        if container.has_hidden_environment
    )
    if hidden:
        yield Missing(f"variables that envFrom adds of {hidden}")


def offered(snapshot: Snapshot) -> Mapping[str, int] | None:
    """Return extended resource → known capacity of the node; ``None`` if unknown.

    The Node object takes precedence: the kubelet's answer lacks unhealthy devices.
    """
    status = snapshot.node_status
    if status is not None and status.capacity is not None:
        return {name: count for name, count in status.capacity.items() if is_extended(name)}
    if snapshot.offer is None:
        return None
    return Counter(device.resource for device in snapshot.offer.devices)


def missing_offer(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Name the resources of the node if neither the Node object nor the kubelet has them."""
    return (Missing("resources of the node"),) if offered(snapshot) is None else ()


# Which pods are parts of a job that runs in several pods and communicates between them.

GANGS = frozenset(
    {"JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "TrainJob", "XGBoostJob"}
)
"""Kinds whose pods are one job (Kubeflow Trainer and Training Operator, MPI Operator)."""


OFTEN = frozenset({"Job", "JobSet", "LeaderWorkerSet", "RayCluster", "RayJob", "StatefulSet"})
"""Kinds whose pods can form one job; assumed if they configure NCCL's network."""


NETWORK_VARIABLES = ("NCCL_IB_", "NCCL_NET", "NCCL_SOCKET_")
"""How the variables begin that matter between nodes only."""


FAST_GBPS = 100
"""Gigabits per second from which an Ethernet port is taken for one of the jobs' network."""


_PART = re.compile(r"(?P<job>.+)-(?P<role>[a-z]+)-(?P<index>[0-9]{1,6})")


class Part(Struct, frozen=True):
    """A pod by its name, as the Training Operator and the MPI Operator name pods."""

    job: tuple[str, str]
    role: str
    index: int


def part(pod: Pod) -> Part | None:
    """Return the place of a running *pod* in its job; ``None`` where its name does not say."""
    match = _PART.fullmatch(pod.name) if pod.owner_kind in GANGS else None
    if match is None:
        return None
    return Part((pod.namespace, match["job"]), match["role"], int(match["index"]))


def is_spread(pod: Pod) -> bool:
    """Return whether *pod* is known to be in a multi-pod job that communicates through NCCL.

    A manifest states the number of pods; for a running pod the operators' names show it, since a
    worker 1 implies a worker 0.
    """
    if pod.replicas is None:
        place = part(pod)
        return place is not None and place.role == "worker" and place.index > 0
    if pod.replicas < 2:
        return False
    sets_network = any(
        name.startswith(NETWORK_VARIABLES)
        for container in pod.containers
        for name in container.environment or ()
    )
    return pod.owner_kind in GANGS or (pod.owner_kind in OFTEN and sets_network)


def together(snapshot: Snapshot) -> Mapping[tuple[str, str], tuple[Pod, ...]]:
    """Return job → its pods with whole GPUs that are on this node, where there are several."""
    parts: dict[tuple[str, str], list[Pod]] = {}
    for pod in jobs(snapshot):
        place = part(pod)
        if place is not None and any(map(whole_gpus, pod.containers)):
            parts.setdefault(place.job, []).append(pod)
    return {job: tuple(pods) for job, pods in parts.items() if len(pods) > 1}


def network_hcas(snapshot: Snapshot) -> tuple[Hca, ...]:
    """Return the HCAs that jobs can use between nodes: InfiniBand, or several fast Ethernet ports.

    A single Ethernet port with RDMA is usually the way to everything else.
    """
    able = [hca for hca in snapshot.hcas or () if hca.kind is not HcaKind.SOFTWARE]
    infiniband = tuple(hca for hca in able if _has_port(hca, LinkLayer.INFINIBAND, 0))
    ethernet = tuple(hca for hca in able if _has_port(hca, LinkLayer.ETHERNET, FAST_GBPS))
    return infiniband + (ethernet if len(ethernet) > 1 else ())


def _has_port(hca: Hca, layer: LinkLayer, rate_gbps: float) -> bool:
    return any(
        port.state == "ACTIVE" and port.layer is layer and (port.rate_gbps or 0) >= rate_gbps
        for port in hca.ports
    )


def has_nvlink(snapshot: Snapshot) -> bool:
    """Return whether GPUs of the node are known to have active NVLinks."""
    return any(link.is_active for link in snapshot.nvlinks or ())


def spans_nodes(snapshot: Snapshot) -> bool:
    """Return whether the node's NVLinks are part of a multi-node fabric."""
    return any(map(cluster_uuid, snapshot.gpus))
