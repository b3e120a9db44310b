"""Rules about gangs, and what the cluster could give them at best."""

from collections.abc import Iterator
from dataclasses import replace

from agent.checks.rule import Finding, Severity
from agent.cluster.cluster import Cluster
from agent.cluster.doctor.capacity import COUNT, Largest, is_closed, largest
from agent.cluster.doctor.rule import ClusterArea, ClusterRule
from agent.cluster.gang import Gang
from agent.cluster.node_names import folded

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
