"""Which pods are parts of a job that runs in several pods and talks between them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent.checks.pods.inputs import jobs, whole_gpus
from agent.model.hca import Hca, HcaKind, LinkLayer
from agent.model.pod import Pod
from agent.model.snapshot import Snapshot

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
