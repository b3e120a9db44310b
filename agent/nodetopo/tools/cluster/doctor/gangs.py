"""Rules about gangs, and the largest gang that the cluster could hold."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Missing, Severity
from nodetopo.model.digits import is_digits
from nodetopo.model.kubernetes import MIG_RESOURCES, go_bool
from nodetopo.tools.cluster.cluster import Cluster, Gang
from nodetopo.tools.cluster.doctor.rule import (
    ClusterArea,
    ClusterJudgement,
    cluster_rule,
)
from nodetopo.tools.cluster.node import ClusterNode, folded

COUNT = "nvidia.com/gpu.count"
"""GPUs of a node, as GFD and this program publish them."""


_REPLICAS = "nvidia.com/gpu.replicas"
"""How often each of them is offered, where they are shared in time (GFD, and this program)."""


_MAX_DIGITS = 9
"""Of a number in a label; more GPUs no node has."""


_ANY = 10**_MAX_DIGITS
"""Stands for unlimited pods without GPUs on a node."""


class Largest(Struct, frozen=True, kw_only=True):
    """The place of a level that fits the most pods of a gang."""

    value: str | None  # of the level; None if no node has the level
    nodes: int  # open to the gang
    pods: int  # of the gang that fit, by labels
    is_certain: bool  # no place can fit more


def largest(cluster: Cluster, gang: Gang) -> Largest:
    """Return the place that fits the most pods of *gang* when empty.

    Nodes that share a value are one place, regardless of broader levels. A node fits as many pods
    as its GPU count allows; other requests are ignored, so that no runnable gang is called too
    large. A pod with an unknown number of GPUs takes a whole node.
    """
    places: dict[str, list[ClusterNode]] = {}
    for node in cluster.nodes:
        if node.labels.get(gang.key):
            nodes = places.setdefault(node.labels[gang.key], [])
            if not (gang.is_of_kai and is_closed(node)):
                nodes.append(node)
    candidates = []
    for value, nodes in sorted(places.items()):
        pods, is_certain = len(nodes), gang.has_whole_nodes
        if gang.gpus == 0 and not gang.has_whole_nodes:
            pods, is_certain = _ANY, True
        elif gang.gpus is not None and not gang.has_whole_nodes:
            # GPUs that pods can request, replicas included; None without such a label.
            counts = [_number(node, COUNT) for node in nodes]
            shares = [max(_number(node, _REPLICAS) or 1, 1) for node in nodes]
            is_certain = None not in counts
            pods = sum(
                (count or 0) * share // gang.gpus
                for count, share in zip(counts, shares, strict=True)
            )
        candidates.append(Largest(value=value, nodes=len(nodes), pods=pods, is_certain=is_certain))
    if not candidates:
        return Largest(value=None, nodes=0, pods=0, is_certain=gang.is_label)
    best = max(candidates, key=lambda place: (place.pods, place.nodes))
    return replace(best, is_certain=all(place.is_certain for place in candidates))


def _number(node: ClusterNode, key: str) -> int | None:
    text = node.labels.get(key, "")
    return int(text) if is_digits(text) and len(text) <= _MAX_DIGITS else None


def is_closed(node: ClusterNode) -> bool:
    """Return whether KAI excludes *node* for pods of whole GPUs.

    It does with MIG strategy ``mixed`` if MIG is in use, by its label, or else by resources of MIG
    profiles (KAI v0.12.10 pkg/scheduler/api/node_info/node_info.go, PredicateByNodeResourcesType
    and IsMIGEnabled). These are in the Node's status; under ``mixed`` GFD and this program label
    each of them.
    """
    labels = node.labels
    if labels.get("nvidia.com/mig.strategy") != "mixed":
        return False
    is_enabled = labels.get("node-role.kubernetes.io/mig-enabled")
    if is_enabled is not None:
        return go_bool(is_enabled) is True
    return any(key.startswith(MIG_RESOURCES) and key.endswith(".count") for key in labels)


@cluster_rule("CLU-009", ClusterArea.GANGS, Severity.ERROR)
def gangs_fit(cluster: Cluster) -> ClusterJudgement:
    """Compare each gang with the place of its level that takes most of its pods."""
    yield from cluster.unread
    if cluster.gangs is None:
        yield Missing("gangs", "ask the API server, or give --objects FILE or --group SIZE@KEY")
    for gang, place in _placed(cluster):
        if gang.size <= place.pods:
            continue
        if not place.is_certain:
            if place.value is None:
                yield Missing(f"the label key of {gang.key} of {gang.name}")
            else:
                yield Missing(
                    f"{COUNT} of every node" if gang.gpus else f"GPUs of a pod of {gang.name}"
                )
            continue
        if gang.has_whole_nodes:
            pods = f"{gang.size} nodes"
        else:
            each = f" of {gang.gpus} GPU{'s' if gang.gpus > 1 else ''}" if gang.gpus else ""
            pods = f"{gang.size} pod{'s' if gang.size > 1 else ''}{each}"
        limit = "a level that nodes have: none carries it"
        if place.value is not None:
            nodes = f"{place.nodes} node{'s' if place.nodes != 1 else ''}"
            limit = f"up to {place.pods}: {place.value} has {nodes}"
        observed = f"{pods} within one {gang.key}"
        yield Finding(subject=gang.name, observed=observed, expected=limit)


def _placed(cluster: Cluster) -> Iterator[tuple[Gang, Largest]]:
    """Yield each gang with the place that takes most of its pods, worked out once for equals."""
    known: dict[Gang, Largest] = {}
    for gang in cluster.gangs or ():
        kind = replace(gang, name="", size=1)
        if kind not in known:
            known[kind] = largest(cluster, kind)
        yield gang, known[kind]


@cluster_rule("CLU-010", ClusterArea.GANGS, Severity.WARNING)
def closed_nodes(cluster: Cluster) -> ClusterJudgement:
    """Look for nodes on which KAI places no pod of whole GPUs."""
    names = [node.name for node in cluster.nodes if is_closed(node)]
    if names:
        yield Finding(
            subject="nvidia.com/mig.strategy",
            observed=f"mixed, with MIG devices, on {folded(names)}",
            expected="single, or no MIG devices, on nodes for whole GPUs",
        )
