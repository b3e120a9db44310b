"""Rules on the resources of pods with GPUs: shared memory, and amounts that no node has."""

from collections.abc import Iterator

from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.gpu_pods import (
    MIG,
    container_name,
    is_gpu_resource,
    pod_name,
    uses_gpus,
)
from nodetopo.components.audit.rules.pods.inputs import (
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
from nodetopo.model.kubernetes import MIB, MILLICORES, size_text
from nodetopo.model.pod import Pod, SharedMemory
from nodetopo.model.snapshot import Snapshot

DEFAULT_BYTES = 64 * MIB
"""Size of ``/dev/shm`` that runtimes give a pod by default: ``defaultShmSize`` of containerd v2
(``internal/cri/server/podsandbox``), ``DefaultShmSize`` of CRI-O v1.34."""


@rule("POD-006", Severity.WARNING)
def shared_memory(snapshot: Snapshot) -> Judgement:
    """Look for containers with several GPUs and the runtime's small /dev/shm."""
    yield from missing_of_gpu_pods(
        snapshot,
        "shared memory",
        lambda _, one: whole_gpus(one) < 2 or one.shared_memory is not None,
    )
    for pod, container in with_gpus(snapshot):
        kind, size, observed = container.shared_memory, container.shared_memory_bytes, None
        if kind is SharedMemory.DEFAULT:
            observed = f"{size_text(DEFAULT_BYTES)}, the runtime's default"
        elif kind is SharedMemory.OTHER:
            observed = "a volume that is not in memory"
        elif kind is SharedMemory.MEMORY and size is not None and size <= DEFAULT_BYTES:
            observed = size_text(size)
        if observed and whole_gpus(container) > 1:
            yield Finding(
                subject=f"{container_name(pod, container)} /dev/shm",
                observed=observed,
                expected=f"memory of more than {size_text(DEFAULT_BYTES)}",
            )


@rule("POD-010", Severity.ERROR)
def capacity(snapshot: Snapshot) -> Judgement:
    """Compare the requests of waiting pods with the most that one pod can have."""
    yield from _missing(snapshot)
    status = snapshot.node_status
    shared = {} if status is None else status.allocatable or {}
    most = {name: amount for name, amount in shared.items() if not is_extended(name)}
    most |= offered(snapshot) or {}
    for pod in _waiting_with_gpus(snapshot):
        for resource, amount in sorted(effective(pod).items()):
            if resource in most and amount > most[resource] and not resource.startswith(MIG):
                yield Finding(
                    subject=f"{pod_name(pod)} {resource}",
                    observed=_amount(resource, amount),
                    expected=f"at most {_amount(resource, most[resource])}",
                )


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / MILLICORES:g} CPUs"
    if is_extended(resource):
        return str(amount)
    return size_text(amount)


@rule("POD-011", Severity.WARNING)
def offered_resources(snapshot: Snapshot) -> Judgement:
    """Look for resources that waiting pods ask for and the node does not have."""
    yield from _missing(snapshot)
    here = offered(snapshot)
    if here is None:
        return
    # The kubelet's own answer has what device plugins offer, not what a person added to the Node
    # object. A MIG device that is not there is MIG-004's and MIG-005's.
    is_whole = snapshot.node_status is not None and snapshot.node_status.capacity is not None
    for pod in _waiting_with_gpus(snapshot):
        absent = sorted(
            name
            for name, amount in effective(pod).items()
            if amount > 0
            and name not in here
            and is_extended(name)
            and not name.startswith(MIG)
            and (is_whole or is_gpu_resource(name) or is_rdma(name))
        )
        if absent:
            yield Finding(
                subject=pod_name(pod),
                observed=f"{listed(absent)}, which no plugin advertises on this node",
                expected=listed(sorted(here)) or "a resource that a device plugin offers",
            )


def _waiting_with_gpus(snapshot: Snapshot) -> Iterator[Pod]:
    return (pod for pod in waiting(snapshot) if any(map(uses_gpus, pod.containers)))


def _missing(snapshot: Snapshot) -> Iterator[Missing]:
    unknown = missing_specs(snapshot)
    yield from unknown
    if unknown or any(_waiting_with_gpus(snapshot)):
        yield from missing_offer(snapshot)
