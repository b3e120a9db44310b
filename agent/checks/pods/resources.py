"""Rules on pods that ask for what no node like this one has."""

from collections.abc import Iterator, Mapping

from agent.checks.gpu_pods import MIG, container_name, is_gpu_resource, pod_name, uses_gpus
from agent.checks.inputs import Inputs
from agent.checks.pods.inputs import (
    effective,
    is_extended,
    is_rdma,
    listed,
    missing_of_gpu_pods,
    missing_offer,
    missing_specs,
    offered,
    waiting,
    whole_gpus,
    with_gpus,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubernetes import MILLICORES
from agent.model.pod import Container, Pod, SharedMemory
from agent.model.snapshot import Snapshot

# Rule on ``/dev/shm`` of containers with several GPUs.

MIB = 1 << 20
"""Bytes in a MiB."""


DEFAULT_BYTES = 64 * MIB
"""What runtimes give a pod of their own accord: ``defaultShmSize`` of containerd v2
(``internal/cri/server/podsandbox``), ``DefaultShmSize`` of CRI-O v1.34."""


def _small(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"{container_name(pod, container)} /dev/shm",
            observed=observed,
            expected=f"memory of more than {DEFAULT_BYTES // MIB} MiB",
        )
        for pod, container in with_gpus(snapshot)
        if whole_gpus(container) > 1 and (observed := _problem(container)) is not None
    )


def _problem(container: Container) -> str | None:
    size = container.shared_memory_bytes
    if container.shared_memory is SharedMemory.DEFAULT:
        return f"{DEFAULT_BYTES // MIB} MiB, the runtime's default"
    if container.shared_memory is SharedMemory.OTHER:
        return "a volume that is not in memory"
    if container.shared_memory is SharedMemory.MEMORY and size is not None:
        return f"{size // MIB} MiB" if size <= DEFAULT_BYTES else None
    return None


RULE = Rule(
    code="POD-006",
    claim="every container with several GPUs has a large /dev/shm",
    why="NCCL keeps buffers between processes there, and data loaders their batches: with 64 MiB "
    "jobs of several GPUs end in `unable to mmap` or a bus error.",
    area=Area.PODS,
    suite=Suite.AUDIT,
    severity=Severity.WARNING,
    needs=missing_of_gpu_pods(
        "shared memory", lambda _, one: whole_gpus(one) < 2 or one.shared_memory is not None
    ),
    check=_small,
    remedy="mount a volume `emptyDir: {medium: Memory}` at /dev/shm; it counts against the "
    "container's memory limit",
    reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)


GIB = 1 << 30
"""Bytes in a GiB."""


def _gpu_pods(snapshot: Snapshot) -> Iterator[Pod]:
    return (pod for pod in waiting(snapshot) if any(map(uses_gpus, pod.containers)))


def _too_large(snapshot: Snapshot) -> tuple[Finding, ...]:
    most = _most(snapshot)
    return tuple(
        Finding(
            subject=f"{pod_name(pod)} {resource}",
            observed=_amount(resource, amount),
            expected=f"at most {_amount(resource, most[resource])}",
        )
        for pod in _gpu_pods(snapshot)
        for resource, amount in sorted(effective(pod).items())
        if resource in most and amount > most[resource] and not resource.startswith(MIG)
    )


def _most(snapshot: Snapshot) -> Mapping[str, int]:
    """Return resource → what one pod can have of it at most, with the node to itself."""
    status = snapshot.node_status
    shared = {} if status is None else status.allocatable or {}
    own = {name: amount for name, amount in shared.items() if not is_extended(name)}
    return {**own, **(offered(snapshot) or {})}


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / MILLICORES:g} CPUs"
    if is_extended(resource):
        return str(amount)
    return f"{amount / GIB:.4g} GiB"


def _unoffered(snapshot: Snapshot) -> tuple[Finding, ...]:
    here = offered(snapshot)
    if here is None:
        return ()
    return tuple(
        Finding(
            subject=pod_name(pod),
            observed=f"{listed(absent)}, which nobody offers on this node",
            expected=listed(sorted(here)) or "a resource that a device plugin offers",
        )
        for pod in _gpu_pods(snapshot)
        if (absent := sorted(_absent(snapshot, pod, here)))
    )


def _absent(snapshot: Snapshot, pod: Pod, here: Mapping[str, int]) -> Iterator[str]:
    for resource, amount in effective(pod).items():
        if amount > 0 and resource not in here and _is_judged(snapshot, resource):
            yield resource


def _is_judged(snapshot: Snapshot, resource: str) -> bool:
    """Return whether *resource* would be seen if the node had it.

    The kubelet's own answer has what device plugins offer, not what a person added to the Node
    object. A MIG device that is not there is MIG-004's and MIG-005's.
    """
    if resource.startswith(MIG) or not is_extended(resource):
        return False
    is_whole = snapshot.node_status is not None and snapshot.node_status.capacity is not None
    return is_whole or is_gpu_resource(resource) or is_rdma(resource)


def _missing(snapshot: Snapshot) -> Inputs:
    unsure = missing_specs(snapshot)
    is_needed = bool(unsure) or any(_gpu_pods(snapshot))
    return (*unsure, *(missing_offer(snapshot) if is_needed else ()))


RULES: tuple[Rule, ...] = (
    Rule(
        code="POD-010",
        claim="an empty node like this can hold every pod with GPUs",
        why="A pod that asks for more than a node has stays Pending for ever, even if all other "
        "pods end.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing,
        check=_too_large,
        remedy="ask for at most what a node has, and divide the job into more pods; CPU and memory "
        "that the kubelet reserves are not to be had",
        reference="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
    ),
    Rule(
        code="POD-011",
        claim="the node offers every resource that pods with GPUs ask for",
        why="Resources are matched by their exact name: a pod that asks for one that no device "
        "plugin offers stays Pending for ever.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing,
        check=_unoffered,
        remedy="ask for a resource that `kubectl get node NODE -o jsonpath={.status.capacity}` "
        "shows, or configure the device plugin to offer this one",
        reference="https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/"
        "device-plugins/",
    ),
)
