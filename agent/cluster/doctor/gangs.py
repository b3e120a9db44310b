"""Rules about gangs, and what the cluster could give them at best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agent.checks.rule import Finding, Severity
from agent.cluster.cluster import Cluster
from agent.cluster.doctor.rule import ClusterArea, ClusterRule
from agent.cluster.gang import Gang
from agent.cluster.node import ClusterNode, folded
from agent.model.kubernetes import go_bool

# How many pods of a gang the places of a level can take when they are empty.

COUNT = "nvidia.com/gpu.count"
"""GPUs of a node, as GFD and this program publish them."""


_REPLICAS = "nvidia.com/gpu.replicas"
"""How often each of them is offered, where they are shared in time (GFD, and this program)."""


_MAX_DIGITS = 9
"""Of a number in a label; more GPUs no node has."""


_ANY = 10**_MAX_DIGITS
"""Pods without GPUs that a node takes, as far as GPUs go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """The place of a level that takes the most pods of a gang.

    Attributes:
        value: of the level; ``None`` where no node has the level.
        nodes: how many it has that are open to the gang.
        pods: how many pods of the gang it takes, as far as labels tell.
        is_certain: whether no place can take more.
    """

    value: str | None
    nodes: int
    pods: int
    is_certain: bool


def largest(cluster: Cluster, gang: Gang) -> Largest:
    """Return the place that takes the most pods of *gang*, nothing else running there.

    Nodes that share a value are one place, whatever lies above. A node takes as many pods as
    its GPUs allow, by their count; what else pods need is not looked at, so no gang that could
    run is said to be too large. Of pods whose GPUs are not told each node is held to take one,
    or they could run nowhere.
    """
    places: dict[str, list[ClusterNode]] = {}
    for node in cluster.nodes:
        if node.labels.get(gang.key):
            nodes = places.setdefault(node.labels[gang.key], [])
            if not (gang.is_of_kai and is_closed(node)):
                nodes.append(node)
    found = [_place(value, nodes, gang) for value, nodes in sorted(places.items())]
    if not found:
        return Largest(value=None, nodes=0, pods=0, is_certain=gang.is_label)
    best = max(found, key=lambda one: (one.pods, one.nodes))
    is_certain = all(one.is_certain for one in found)
    return Largest(value=best.value, nodes=best.nodes, pods=best.pods, is_certain=is_certain)


def _place(value: str, nodes: Sequence[ClusterNode], gang: Gang) -> Largest:
    counts = [_gpus(node) for node in nodes]
    if gang.has_whole_nodes:
        pods, is_certain = len(nodes), True
    elif gang.gpus is None:
        pods, is_certain = len(nodes), False
    elif gang.gpus == 0:
        pods, is_certain = _ANY, True
    else:
        pods = sum((count or 0) // gang.gpus for count in counts)
        is_certain = None not in counts
    return Largest(value=value, nodes=len(nodes), pods=pods, is_certain=is_certain)


def _gpus(node: ClusterNode) -> int | None:
    """Return how many GPUs pods may ask for on *node*; ``None`` where no label tells."""
    count = _number(node, COUNT)
    return None if count is None else count * max(_number(node, _REPLICAS) or 1, 1)


def _number(node: ClusterNode, key: str) -> int | None:
    text = node.labels.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def is_closed(node: ClusterNode) -> bool:
    """Return whether KAI places no pod of whole GPUs on *node*.

    So it is with MIG strategy ``mixed`` where MIG is in use, by the label that says so, or else
    by resources of MIG profiles (KAI v0.12.10 pkg/scheduler/api/node_info/node_info.go,
    PredicateByNodeResourcesType and IsMIGEnabled). Those stand in the Node's status; under
    ``mixed`` GFD and this program label each of them.
    """
    labels = node.labels
    if labels.get("nvidia.com/mig.strategy") != "mixed":
        return False
    told = labels.get("node-role.kubernetes.io/mig-enabled")
    if told is not None:
        return go_bool(told) is True
    return any(key.startswith("nvidia.com/mig-") and key.endswith(".count") for key in labels)


_NOT_ASKED = "gangs (ask the API server, or give --objects FILE or --group SIZE@KEY)"


def _too_large(cluster: Cluster) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gang.name,
            observed=f"{_pods(gang)} within one {gang.key}",
            expected=_limit(place),
        )
        for gang, place in _placed(cluster)
        if place.is_certain and gang.size > place.pods
    )


def _placed(cluster: Cluster) -> Iterator[tuple[Gang, Largest]]:
    """Yield each gang with the place that takes the most of its pods; alike gangs share one."""
    known: dict[Gang, Largest] = {}
    for gang in cluster.gangs or ():
        wish = replace(gang, name="", size=1)
        if wish not in known:
            known[wish] = largest(cluster, wish)
        yield gang, known[wish]


def _pods(gang: Gang) -> str:
    if gang.has_whole_nodes:
        return f"{gang.size} nodes"
    each = f" of {gang.gpus} GPU{'s' if gang.gpus > 1 else ''}" if gang.gpus else ""
    return f"{gang.size} pod{'s' if gang.size > 1 else ''}{each}"


def _limit(place: Largest) -> str:
    if place.value is None:
        return "a level that nodes have: none carries it"
    return f"up to {place.pods}: {place.value} has {place.nodes} node{'s'[: place.nodes != 1]}"


def _unjudged(cluster: Cluster) -> tuple[str, ...]:
    if cluster.gangs is None:
        return (*cluster.unread, _NOT_ASKED)
    return (*cluster.unread, *dict.fromkeys(_doubts(cluster)))


def _doubts(cluster: Cluster) -> Iterator[str]:
    """Yield what would be needed to judge gangs that may be too large."""
    for gang, place in _placed(cluster):
        if place.is_certain or gang.size <= place.pods:
            continue
        if place.value is None:
            yield f"the label key of {gang.key} of {gang.name}"
        else:
            yield f"{COUNT} of every node" if gang.gpus else f"GPUs of a pod of {gang.name}"


def _closed(cluster: Cluster) -> tuple[Finding, ...]:
    names = [node.name for node in cluster.nodes if is_closed(node)]
    return (
        (
            Finding(
                subject="nvidia.com/mig.strategy",
                observed=f"mixed, with MIG devices, on {folded(names)}",
                expected="single, or no MIG devices, on nodes for whole GPUs",
            ),
        )
        if names
        else ()
    )


RULES: tuple[ClusterRule, ...] = (
    ClusterRule(
        code="CLU-009",
        claim="every gang fits into a place of the level that it requires",
        why="A gang larger than the largest place waits for ever; most schedulers say only that "
        "no node fits. Counted are GPUs of empty nodes: a gang that passes may still have to "
        "wait for others to end",
        area=ClusterArea.GANGS,
        severity=Severity.ERROR,
        check=_too_large,
        needs=_unjudged,
        remedy="ask for fewer pods, for a broader level, or for slices of a size that fits "
        "(Kueue's podset-slice-size, KAI's segment-size)",
        reference="https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/",
    ),
    ClusterRule(
        code="CLU-010",
        claim="no GPU node is closed to whole-GPU gangs by MIG",
        why="KAI places no pod of whole GPUs on a node whose MIG strategy is mixed and that has "
        "MIG devices, although some of its GPUs may be whole: to a gang the place is smaller "
        "by a node",
        area=ClusterArea.GANGS,
        severity=Severity.WARNING,
        check=_closed,
        remedy="keep MIG devices to nodes of their own, outside the topology's node pool",
        reference="https://github.com/NVIDIA/KAI-Scheduler/blob/v0.12.10/pkg/scheduler/api/node_info/node_info.go",
    ),
)
