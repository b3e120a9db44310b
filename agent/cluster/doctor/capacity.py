"""How many pods of a gang the places of a level can take when they are empty."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.cluster.cluster import Cluster
from agent.cluster.gang import Gang
from agent.cluster.node import ClusterNode
from agent.model.go_bool import go_bool

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
