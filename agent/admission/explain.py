"""Sentences on why a pod is admitted or not, for a person who knows NUMA and not the kubelet."""

from collections.abc import Iterator

from agent.admission.errors import TOPOLOGY_AFFINITY_ERROR
from agent.admission.hints import Hint, nodes_of
from agent.admission.merge import SINGLE
from agent.admission.requests import amount_text, unit_of
from agent.admission.scope import Node, Passage, Share
from agent.model.pod import Pod
from agent.model.qos import QosClass, asks_as_a_pod

_OF_MEMORY = "[memorymanager]"
"""In the kubelet's messages."""
_GROUPS = (
    "the Memory Manager gives a NUMA node to containers either alone or, as long as they run, "
    "together with the same others: so much memory is not free in any way that this allows"
)
_PASSED_OVER = "the kubelet passes over it, and the scheduler places no such pod here"
_MOST_SETS = 4
"""Sets of NUMA nodes that are named; more are counted."""


def of_pod(pod: Pod, passage: Passage) -> tuple[str, ...]:
    """Return the sentences on the pod as a whole, without full stops."""
    return tuple(_of_pod(pod, passage))


def of_container(share: Share) -> tuple[str, ...]:
    """Return the sentences on one container, without full stops."""
    return tuple(_of_container(share))


def _nodes(mask: int) -> str:
    """Return a set of NUMA nodes as people write it: ``NUMA 0+1``."""
    return f"NUMA {'+'.join(map(str, nodes_of(mask)))}"


def _of_pod(pod: Pod, passage: Passage) -> Iterator[str]:
    refusal, node = passage.refusal, passage.node
    pins = node.cpus is not None or node.memory is not None
    if pins and pod.qos_class != QosClass.GUARANTEED:
        yield f"the pod is {pod.qos_class}: neither its CPUs nor its memory are aligned"
    elif pins and asks_as_a_pod(pod):
        yield "the pod states resources as a whole: neither its CPUs nor its memory are aligned"
    if node.merger is None:
        yield "policy none: nothing is aligned, devices come as their plugin prefers"
    yield from _not_offered(node, pod)
    if refusal is None:
        return
    if refusal.reason != TOPOLOGY_AFFINITY_ERROR or node.merger is None:
        yield refusal.message
        if _OF_MEMORY in refusal.message:
            yield _GROUPS
        return
    failed = next(share for share in reversed(passage.shares) if share.hints or share.merged)
    is_single = node.merger.policy == SINGLE
    who = "the whole pod" if node.scope == "pod" else f"container {failed.container.name}"
    where = "come from one and the same NUMA node" if is_single else "prefer the same NUMA nodes"
    yield f"under policy {node.merger.policy} all resources of {who} must {where}"
    yield from _disagreement(node, failed, is_single=is_single)


def _not_offered(node: Node, pod: Pod) -> Iterator[str]:
    """Name the resources of device plugins that this node does not have."""
    names = {name for one in pod.containers for name in one.limits or {} if "/" in name}
    offered = {
        name for name, amount in (node.room.allocatable if node.room else {}).items() if amount
    }
    for name in sorted(names - node.devices.keys() - offered):
        yield f"{name}: no device plugin offers it here; {_PASSED_OVER}"


def _disagreement(node: Node, share: Share, *, is_single: bool) -> Iterator[str]:
    """Say which resource is at fault: one that nothing can serve, else those that differ."""
    told = {name: hints for name, hints in share.hints.items() if hints is not None}
    problems = {name: _problem(node, name, hints, is_single) for name, hints in told.items()}
    for name, problem in problems.items():
        if problem:
            yield f"{_what(share, name)}: {problem}"
    if any(problems.values()):
        return
    for name, hints in told.items():
        yield f"{_what(share, name)}: best from {_sets(_preferred(hints))}"


def _problem(node: Node, name: str, hints: tuple[Hint, ...], is_single: bool) -> str | None:
    """Return why these hints alone keep the pod out, if they do."""
    widths = [hint.mask.bit_count() for hint in hints if hint.mask is not None]
    if not hints and name in node.devices and node.devices[name].is_elsewhere:
        return "their plugin names no NUMA node of this machine"
    if not hints:
        return "fewer are free"
    if not any(hint.preferred for hint in hints):
        spread = f"free on {min(widths)} NUMA nodes together only" if min(widths) > 1 else "free"
        return f"{spread}, while fewer nodes have as many installed, which counts"
    if is_single and not any(_is_single(hint) for hint in hints):
        return f"more than one NUMA node has, they take {min(widths)}"
    return None


def _what(share: Share, name: str) -> str:
    amount = share.asked[name]
    return f"{amount_text(name, amount)}{unit_of(name, amount)}"


def _of_container(share: Share) -> Iterator[str]:
    for name, hints in share.hints.items():
        if hints is None:
            yield f"{name}: no NUMA nodes are told, so none is preferred"
        elif hints and (preferred := _preferred(hints)):
            yield f"{name}: prefers {_sets(preferred)}"
        elif hints:
            yield f"{name}: could come from {_sets(_all(hints))}, none preferred"
        else:
            yield f"{name}: fewer than asked for are free"
    if share.merged is not None and share.merged.mask is not None and share.hints:
        kind = "preferred by all" if share.merged.preferred else "the best that is left"
        yield f"together: {_nodes(share.merged.mask)}, {kind}"


def _is_single(hint: Hint) -> bool:
    return hint.preferred and hint.mask is not None and hint.mask.bit_count() == 1


def _preferred(hints: tuple[Hint, ...]) -> frozenset[int]:
    return frozenset(hint.mask for hint in hints if hint.preferred and hint.mask is not None)


def _all(hints: tuple[Hint, ...]) -> frozenset[int]:
    return frozenset(hint.mask for hint in hints if hint.mask is not None)


def _sets(masks: frozenset[int]) -> str:
    ordered = sorted(masks, key=lambda mask: (mask.bit_count(), mask))
    named = " or ".join(map(_nodes, ordered[:_MOST_SETS]))
    more = len(ordered) - _MOST_SETS
    return f"{named} or one of {more} more" if more > 0 else named
