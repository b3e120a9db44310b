"""Which numbers of a node's devices the kubelet would admit now."""

from collections.abc import Iterable

from msgspec import Struct

from nodetopo.admission.admit import classed
from nodetopo.admission.device_manager import lowest_first
from nodetopo.admission.errors import Missing
from nodetopo.admission.scope import admit_pod
from nodetopo.admission.snapshot import managers_of
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.node_sets import nodes_of

MOST_SIZES = 128
"""Sizes of one resource that are computed; a node has 16 GPUs, or some hundred parts of GPUs."""


class SizeAdmission(Struct, frozen=True, kw_only=True):
    """The answer for a pod whose one container asks for *size* devices, and for nothing else."""

    size: int
    admitted: bool | None  # None where an input is missing
    reason: str | None = None  # of a rejection, as in the pod's status
    # Of the merged hint; None where the devices can come from any node, or the pod is not admitted.
    numa_nodes: tuple[int, ...] | None = None
    missing: tuple[str, ...] = ()  # what a verdict would need


def admitted_sizes(
    snapshot: Snapshot, resource: str, sizes: Iterable[int]
) -> tuple[SizeAdmission, ...]:
    """Return the answer for each of *sizes*; each pod comes alone, to the node as it is now."""
    wanted = tuple(sizes)
    pods = [classed(snapshot, _pod(resource, size)) for size in wanted]
    if not pods:
        return ()
    missing: tuple[str, ...] = ()
    if pods[0].qos_class is None:
        missing += ("its QoS class",)
    if snapshot.pods is None:
        missing += ("the running pods",)
    try:
        node = managers_of(snapshot, pods)
    except Missing as error:
        missing += error.args
    else:
        if resource not in node.devices:
            missing += (f"the devices of {resource} that the kubelet has",)
    if missing:
        return tuple(SizeAdmission(size=size, admitted=None, missing=missing) for size in wanted)
    answers = []
    for size, pod in zip(wanted, pods, strict=True):
        try:
            outcome = admit_pod(node, pod, f"size {size}", lowest_first)
        except Missing as error:
            answers.append(SizeAdmission(size=size, admitted=None, missing=error.args))
            continue
        merged = outcome.containers[0].merged
        is_admitted = outcome.refusal is None
        mask = None if merged is None or not is_admitted else merged.mask
        answers.append(
            SizeAdmission(
                size=size,
                admitted=is_admitted,
                reason=None if outcome.refusal is None else outcome.refusal.reason,
                numa_nodes=None if mask is None else nodes_of(mask),
            )
        )
    return tuple(answers)


def _pod(resource: str, size: int) -> Pod:
    amounts = {resource: size}
    container = Container(name="main", requests=amounts, limits=amounts)
    return Pod(namespace="default", name=f"size-{size}", containers=(container,))
