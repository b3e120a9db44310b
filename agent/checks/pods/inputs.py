"""What the rules on pods share: which pods count, what they ask for, and what is not known."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.checks.gpu_pods import (
    GPU,
    container_name,
    is_gpu_resource,
    live,
    missing_pods,
    uses_gpus,
)
from agent.checks.inputs import Inputs
from agent.model.hca import Hca, HcaKind, LinkLayer
from agent.model.pod import Container, Pod, at_once
from agent.model.snapshot import Snapshot

FEW = 5
"""Names that one sentence lists before it counts the rest."""


_OF_THE_NODE = ("DaemonSet", "Node")


_WORDS_OF_RDMA = frozenset({"rdma", "roce", "hca", "hcas", "ib", "infiniband", "efa"})


def jobs(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the live pods that do not belong to the node itself, as its agents do.

    A DaemonSet's pod, or a static one (whose owner is the Node), is there to see all GPUs.
    """
    return (pod for pod in live(snapshot) if pod.owner_kind not in _OF_THE_NODE)


def waiting(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the jobs that do not run yet, whose resources are still to be found somewhere.

    A pod that runs has them, whatever the node tells now, and in whatever way it got them.
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
    held = sum(len(one.ids) for one in container.devices or () if one.resource == GPU)
    return asked(container).get(GPU, held)


def is_extended(resource: str) -> bool:
    """Return whether a device plugin or a person added *resource* to the node."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def is_rdma(resource: str) -> bool:
    """Return whether *resource* says by its name that it gives RDMA devices, as ``rdma/hca``."""
    if not is_extended(resource):
        return False
    parts = resource.lower().replace("_", "-").replace("/", "-").replace(".", "-").split("-")
    return not _WORDS_OF_RDMA.isdisjoint(parts)


def others(container: Container) -> tuple[str, ...]:
    """Return the extended resources apart from GPUs that *container* asks for or holds, sorted."""
    held = {one.resource: len(one.ids) for one in container.devices or ()}
    amounts = {**held, **asked(container)}
    return tuple(
        sorted(
            name
            for name, amount in amounts.items()
            if amount > 0 and is_extended(name) and not is_gpu_resource(name)
        ),
    )


def effective(pod: Pod) -> Mapping[str, int]:
    """Return resource → amount that a node must have free for *pod*.

    What its containers hold at once, but CPU, memory and huge pages of the pod as a whole
    replace their sums (k8s.io/component-helpers ``resource.PodRequests``, 1.36).
    """
    held = {name: amount for name, amount in at_once(pod, asked).items() if amount > 0}
    whole = {**(pod.limits or {}), **(pod.requests or {})}
    return {**held, **{name: whole[name] for name in whole if not is_extended(name)}}


def listed(names: Iterable[str]) -> str:
    """Return *names* as a sentence has them, of many only the first few and how many more."""
    every = list(names)
    more = f" and {len(every) - FEW} more" if len(every) > FEW else ""
    return ", ".join(every[:FEW]) + more


def missing_specs(snapshot: Snapshot) -> Inputs:
    """Need to know of every container of a job whether it asks for GPUs, and what else."""
    unknown = (
        container_name(pod, one)
        for pod in jobs(snapshot)
        for one in pod.containers
        if uses_gpus(one) is None or (uses_gpus(one) and one.requests is None)
    )
    return missing_pods(snapshot) + _of("resources", unknown)


def missing_of_gpu_pods(
    what: str,
    is_known: Callable[[Pod, Container], bool],
) -> Callable[[Snapshot], Inputs]:
    """Need *what* of every container with GPUs, and to know which those are."""

    def missing(snapshot: Snapshot) -> Inputs:
        silent = (
            container_name(pod, one) for pod, one in with_gpus(snapshot) if not is_known(pod, one)
        )
        return missing_specs(snapshot) + _of(what, silent)

    return missing


def _of(what: str, names: Iterable[str]) -> Inputs:
    found = listed(names)
    return (f"{what} of {found}",) if found else ()


def offered(snapshot: Snapshot) -> Mapping[str, int] | None:
    """Return extended resource → capacity of the node as it is known; ``None`` if it is not.

    The Node object is asked first: the kubelet's own answer lacks devices that are unhealthy now.
    """
    status = snapshot.node_status
    if status is not None and status.capacity is not None:
        return {name: count for name, count in status.capacity.items() if is_extended(name)}
    if snapshot.offer is None:
        return None
    return Counter(device.resource for device in snapshot.offer.devices)


def missing_offer(snapshot: Snapshot) -> Inputs:
    """Return "resources of the node" when neither the Node object nor the kubelet told them."""
    return ("resources of the node",) if offered(snapshot) is None else ()


# What is known of the environment variables of containers.

_environment = missing_of_gpu_pods("environment", lambda _, one: one.environment is not None)


def missing_environment(snapshot: Snapshot) -> Inputs:
    """Need the variables of every container with GPUs, those from ``envFrom`` too."""
    hidden = missing_of_gpu_pods("variables that envFrom adds", _is_open)(snapshot)
    return tuple(dict.fromkeys((*_environment(snapshot), *hidden)))


def _is_open(_pod: Pod, container: Container) -> bool:
    return not container.has_hidden_environment


# Which pods are parts of a job that runs in several pods and talks between them.

GANGS = frozenset(
    {"JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "TrainJob", "XGBoostJob"}
)
"""Kinds whose pods are one job (Kubeflow Trainer and Training Operator, MPI Operator)."""


OFTEN = frozenset({"Job", "JobSet", "LeaderWorkerSet", "RayCluster", "RayJob", "StatefulSet"})
"""Kinds whose pods may be one job: taken for one where they set up NCCL's network."""


NETWORK_VARIABLES = ("NCCL_IB_", "NCCL_NET", "NCCL_SOCKET_")
"""How the variables begin that matter between nodes only."""


FAST_GBPS = 100
"""Gigabits per second from which an Ethernet port is taken for one of the jobs' network."""


_PART = re.compile(r"(?P<job>.+)-(?P<role>[a-z]+)-(?P<index>\d{1,6})")


@dataclass(frozen=True, slots=True)
class Part:
    """What the name of a pod says, as the Training Operator and the MPI Operator name them."""

    job: tuple[str, str]
    role: str
    index: int


def part(pod: Pod) -> Part | None:
    """Return the place of a running *pod* in its job; ``None`` where its name does not tell."""
    found = _PART.fullmatch(pod.name) if pod.owner_kind in GANGS else None
    if found is None:
        return None
    return Part((pod.namespace, found["job"]), found["role"], int(found["index"]))


def is_spread(pod: Pod) -> bool:
    """Return whether *pod* is known to be one of several that talk through NCCL.

    A manifest says how many there will be; of a running pod the operators' names tell, since
    a worker 1 has a worker 0 beside it.
    """
    if pod.replicas is None:
        place = part(pod)
        return place is not None and place.role == "worker" and place.index > 0
    if pod.replicas < 2:
        return False
    return pod.owner_kind in GANGS or (pod.owner_kind in OFTEN and _sets_network(pod))


def _sets_network(pod: Pod) -> bool:
    return any(
        name.startswith(NETWORK_VARIABLES)
        for container in pod.containers
        for name in container.environment or ()
    )


def together(snapshot: Snapshot) -> Mapping[tuple[str, str], tuple[Pod, ...]]:
    """Return job → its pods with whole GPUs that are on this node, where there are several."""
    found: dict[tuple[str, str], list[Pod]] = {}
    for pod in jobs(snapshot):
        place = part(pod)
        if place is not None and any(map(whole_gpus, pod.containers)):
            found.setdefault(place.job, []).append(pod)
    return {job: tuple(pods) for job, pods in found.items() if len(pods) > 1}


def network_hcas(snapshot: Snapshot) -> tuple[Hca, ...]:
    """Return the HCAs that jobs can talk through: InfiniBand, or several fast Ethernet ports.

    A single Ethernet port that speaks RDMA is how many nodes reach everything else.
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
    """Return whether GPUs of the node are known to have NVLinks that carry traffic."""
    return any(link.is_active for link in snapshot.nvlinks or ())


def spans_nodes(snapshot: Snapshot) -> bool:
    """Return whether the node's NVLinks are part of a fabric of several nodes."""
    return any(
        gpu.fabric is not None and gpu.fabric.cluster_uuid is not None for gpu in snapshot.gpus
    )
