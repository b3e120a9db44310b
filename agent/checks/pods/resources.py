"""Rules on pods that ask for what no node like this one has."""

from collections.abc import Iterator, Mapping

from agent.checks.gpu_pods import MIG, is_gpu_resource, pod_name, uses_gpus
from agent.checks.inputs import Inputs
from agent.checks.pods.inputs import (
    effective,
    is_extended,
    is_rdma,
    listed,
    missing_offer,
    missing_specs,
    offered,
    waiting,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pod import Pod
from agent.model.quantity import MILLICORES
from agent.model.snapshot import Snapshot

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
