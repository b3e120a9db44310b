"""Rule on how NCCL tells whether two pods are on one node.

NCCL takes two processes for neighbours if their host name and the kernel's ``boot_id`` hash
alike, or if both have the same ``NCCL_HOSTID`` (NVIDIA/nccl v2.30.7-1 ``src/misc/utils.cc``
``getHostHashOnce``). The host name is the pod's unless it lives in the host's network.
"""

from collections.abc import Iterator

from agent.checks.gpu_pods import container_name, pod_name
from agent.checks.inputs import Inputs
from agent.checks.nvlink_inputs import knows_links
from agent.checks.pods.inputs import jobs, listed, with_gpus
from agent.checks.pods.pods_environment import missing_environment
from agent.checks.pods.pods_spread import has_nvlink, spans_nodes, together
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pod import Pod
from agent.model.snapshot import Snapshot

HOST = "NCCL_HOSTID"
"""The variable that takes the place of host name and ``boot_id``."""

SHOWN = 60
"""Characters of a value that a finding repeats."""


def _findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    return (*_merged(snapshot), *_parted(snapshot))


def _merged(snapshot: Snapshot) -> Iterator[Finding]:
    """Find pods of several nodes that NCCL is told are on one."""
    for pod, container in with_gpus(snapshot):
        value = (container.environment or {}).get(HOST)
        if value and (pod.replicas or 0) > 1:
            yield Finding(
                subject=container_name(pod, container),
                observed=f"{HOST}={value[:SHOWN]} in all {pod.replicas} pods",
                expected="unset, or the name of the node, by fieldRef spec.nodeName",
            )


def _parted(snapshot: Snapshot) -> Iterator[Finding]:
    """Find pods of one job on this node that NCCL takes for pods of different nodes."""
    if not has_nvlink(snapshot) or spans_nodes(snapshot):
        return
    for pods in together(snapshot).values():
        apart = [pod for pod in pods if pod.uses_host_network is False and not _has_host(pod)]
        if len(apart) > 1:
            yield Finding(
                subject=listed(map(pod_name, apart)),
                observed="host names of their own, so that NCCL goes through the network",
                expected="one pod with all the GPUs of the job on this node",
            )


def _has_host(pod: Pod) -> bool:
    return any(HOST in (container.environment or {}) for container in pod.containers)


def _missing(snapshot: Snapshot) -> Inputs:
    networks = listed(
        pod_name(pod)
        for pod in jobs(snapshot)
        if pod.uses_host_network is None and any(pod in pods for pods in _jobs_here(snapshot))
    )
    unknown = (f"network of {networks}",) if networks else ()
    links = ("NVLinks",) if _jobs_here(snapshot) and not knows_links(snapshot) else ()
    return (*missing_environment(snapshot), *unknown, *links)


def _jobs_here(snapshot: Snapshot) -> tuple[tuple[Pod, ...], ...]:
    return tuple(together(snapshot).values())


RULE = Rule(
    code="POD-007",
    claim="NCCL can tell which pods of a job share a node",
    why="NCCL knows a node by host name and boot id. Two pods on a node have two host names, and "
    "talk through the network instead of NVLink; one NCCL_HOSTID in pods of several nodes makes "
    "NCCL look for GPUs that are elsewhere, and fail.",
    area=Area.PODS,
    suite=Suite.AUDIT,
    severity=Severity.WARNING,
    needs=_missing,
    check=_findings,
    remedy="give the job one pod for each node, with all GPUs that it uses there; leave "
    "NCCL_HOSTID unset, or set it from `spec.nodeName` for pods that share /dev/shm of the host",
    reference="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/misc/utils.cc",
)
