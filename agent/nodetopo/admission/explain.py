"""Sentences on why a pod is admitted or not, for a person who knows NUMA but not the kubelet.

They have no full stop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from nodetopo.admission.errors import TOPOLOGY_AFFINITY_ERROR, Refusal
from nodetopo.admission.hints import Choices
from nodetopo.admission.merge import PER_MINUTE, SINGLE
from nodetopo.admission.requests import amount_text, unit_of
from nodetopo.admission.scope import ContainerOutcome, PodOutcome
from nodetopo.admission.snapshot import NodeManagers
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Pod
from nodetopo.model.qos import QosClass, asks_as_a_pod
from nodetopo.topology.node_sets import Family, nodes_of, one_set

Nodes = tuple[int, ...]
"""NUMA nodes, ascending."""

_OF_MEMORY = "[memorymanager]"
"""In the kubelet's messages."""
_GROUPS = (
    "the Memory Manager gives a NUMA node to containers either alone or, while they run, together "
    "with the same other nodes: no allowed combination has that much free memory"
)
_PASSED_OVER = "the kubelet ignores it, and the scheduler places no such pod here"
_MOST_SETS = 4
"""Sets of NUMA nodes that are named; more are counted."""
_STEPS_OF_A_SET, _STEPS_OF_OTHERS = {"cpu": 100}, 10
"""What a set of NUMA nodes takes the kubelet in combinations of hints (measured, 1.36.3)."""
_MOST_NAMES = 3
"""Pods that are named; more are counted."""


def of_pod(pod: Pod, outcome: PodOutcome) -> Iterator[str]:
    refusal, node = outcome.refusal, outcome.node
    pins = node.cpus is not None or node.memory is not None
    if pins and pod.qos_class != QosClass.GUARANTEED:
        yield f"the pod is {pod.qos_class}: neither its CPUs nor its memory are aligned"
    elif pins and asks_as_a_pod(pod):
        yield "the pod states resources as a whole: neither its CPUs nor its memory are aligned"
    if node.topology is None:
        yield "policy none: nothing is aligned, and the plugin's preference decides"
    requested = {name for it in pod.containers for name in it.limits or {} if "/" in name}
    allocatable = node.room.allocatable if node.room else {}
    for name in sorted(requested - node.devices.keys()):
        if not allocatable.get(name):
            yield f"{name}: no device plugin advertises it here; {_PASSED_OVER}"
    yield from _of_time(outcome)
    if refusal is None:
        return
    if refusal.reason != TOPOLOGY_AFFINITY_ERROR or node.topology is None:
        yield refusal.words
        if _OF_MEMORY in refusal.message:
            yield _GROUPS
        return
    failed = next(it for it in reversed(outcome.containers) if it.hints or it.merged)
    is_single = node.topology.policy == SINGLE
    who = "the whole pod" if node.scope == "pod" else f"container {failed.container.name}"
    where = "come from a single NUMA node" if is_single else "prefer the same NUMA nodes"
    yield f"under policy {node.topology.policy} all resources of {who} must {where}"
    yield from _disagreement(node, failed, is_single=is_single)


def _of_time(outcome: PodOutcome) -> Iterator[str]:
    """Yield how long the kubelet takes for the container that keeps it longest, if minutes."""
    topology = outcome.node.topology
    if topology is None:
        return
    longest = steps = 0
    for each in outcome.containers:
        combinations = topology.combinations((each.hints,))
        of_sets = sum(
            choices.fitting.count * _STEPS_OF_A_SET.get(name, _STEPS_OF_OTHERS)
            for name, choices in each.hints.items()
            if choices is not None
        )
        if combinations + of_sets > steps:
            longest, steps = combinations, combinations + of_sets
    if steps >= PER_MINUTE:
        minutes = f"about {steps // PER_MINUTE} min, during which it admits no other pod"
        yield f"the kubelet tries {longest:,} combinations of sets of NUMA nodes: {minutes}"


def of_company(
    rivals: Sequence[str], refusal: Refusal | None, mates: Sequence[str] = ()
) -> Iterator[str]:
    """Yield why a pod is admitted only without *rivals*, or alongside *mates*."""
    if mates:
        yield f"required affinity keeps it on the node of {listed(mates)}"
    if not rivals:
        return
    names = listed(rivals)
    if refusal is None and mates:
        yield f"with {listed(mates)} it is kept off the node of {names}"
    elif refusal is None:
        yield f"required anti-affinity keeps it off the node of {names}"
    else:
        yield f"beside {names} it is rejected: {refusal.reason}: {refusal.words}"
        if _OF_MEMORY in refusal.message:
            yield _GROUPS
    others = "other pods" if not mates else f"pods but {listed(mates)}"
    yield f"the answer below is for the node without the manifest's {others}"


def listed(names: Sequence[str]) -> str:
    """Return *names* in one phrase, the first few of many."""
    more = len(names) - _MOST_NAMES
    if more > 0:
        return f"{', '.join(names[:_MOST_NAMES])} and {more} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def of_claims(
    outcome: PodOutcome, nodes: Callable[[CpuSet], Nodes], near: Mapping[str, Nodes]
) -> Iterator[str]:
    """Yield remarks on ResourceClaims and the alignment of the pod.

    DRA does not feed the Topology Manager: devices are prepared after admission, which aligns the
    rest without them (kubernetes 1.36 pkg/kubelet/cm/dra/manager.go PrepareResources; website issue
    56232).

    Args:
        near: the NUMA nodes of GPUs already allocated to claims, by container.
    """
    for each in outcome.containers:
        container = each.container
        if not container.claims:
            continue
        names = ", ".join(container.claims)
        who = f"container {container.name} gets devices by the claim {names}"
        if len(container.claims) > 1:
            who = f"container {container.name} gets devices by the claims {names}"
        yield f"{who}: the Topology Manager does not see them, and the verdict does not cover them"
        if not each.exclusive_cpus or outcome.refusal is not None:
            continue
        numa = nodes(each.cpus)
        pinned = f"its {each.exclusive_cpus} CPUs would come from NUMA {'+'.join(map(str, numa))}"
        there = near.get(container.name)
        if there is None:
            yield f"{pinned}, wherever the claim's GPUs are"
        elif set(there) == set(numa):
            yield f"{pinned}, where the claim's GPUs are: by chance"
        else:
            at = "+".join(map(str, there))
            yield f"{pinned}, while the claim's GPUs are on NUMA {at}: not aligned"


def of_container(outcome: ContainerOutcome) -> Iterator[str]:
    for name, hints in outcome.hints.items():
        if hints is None:
            yield f"{name}: no NUMA node is reported, so none is preferred"
        elif hints.preferred:
            yield f"{name}: prefers {_sets(hints.preferred)}"
        elif hints.fitting:
            yield f"{name}: could come from {_sets(hints.fitting)}, none preferred"
        else:
            yield f"{name}: fewer than requested are free"
    merged = outcome.merged
    if merged is not None and merged.mask is not None and outcome.hints:
        kind = "preferred by all" if merged.preferred else "the best remaining"
        yield f"together: {_sets(one_set(merged.mask))}, {kind}"


def _disagreement(
    node: NodeManagers, failed: ContainerOutcome, *, is_single: bool
) -> Iterator[str]:
    """Yield which resource is at fault: one that nothing can serve, else those that differ."""
    stated = {name: hints for name, hints in failed.hints.items() if hints is not None}
    problems = {name: _problem(node, name, hints, is_single) for name, hints in stated.items()}
    is_one_at_fault = any(problems.values())
    for name, hints in stated.items():
        amount = failed.requested[name]
        what = f"{amount_text(name, amount)}{unit_of(name, amount)}"
        if problems[name]:
            yield f"{what}: {problems[name]}"
        elif not is_one_at_fault:
            yield f"{what}: best from {_sets(hints.preferred)}"


def _problem(node: NodeManagers, name: str, hints: Choices, is_single: bool) -> str | None:
    """Return why these hints alone keep the pod out, if they do."""
    width = hints.fitting.narrowest
    if width is None and name in node.devices and node.devices[name].is_elsewhere:
        return "their plugin reports no NUMA node of this machine"
    if width is None:
        return "fewer are free"
    if not hints.preferred:
        spread = f"free only on {width} NUMA nodes together" if width > 1 else "free"
        return f"{spread}, but fewer have that many installed, which is what the kubelet counts"
    if is_single and not hints.preferred.of_size(1):
        return f"no single NUMA node has that many, they span {width}"
    return None


def _sets(family: Family) -> str:
    """Return the sets of NUMA nodes as people write them: ``NUMA 0+1 or NUMA 2``."""
    first = islice(family, _MOST_SETS)
    texts = [f"NUMA {'+'.join(map(str, nodes_of(mask)))}" for mask in first]
    more = family.count - _MOST_SETS
    return " or ".join(texts) + (f" or one of {more:,} more" if more > 0 else "")
