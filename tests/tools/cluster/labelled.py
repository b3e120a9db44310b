"""Nodes as they stand in a cluster after this program labelled them."""

from msgspec.structs import replace

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.rules import LabelRules
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.node import ClusterNode

CLUSTER = "6b0e1b2c-0000-4000-8000-000000000072"
"""The cluster UUID that the machine gb200-nvl72 reports."""

DOMAIN, PARTITION = "gpu.topology/nvlink-domain", "gpu.topology/nvlink-partition"
CLIQUE, HOSTNAME = "nvidia.com/gpu.clique", "kubernetes.io/hostname"
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
TIER_0, TIER_1 = "gpu.topology/tier-0", "gpu.topology/tier-1"

RUNAI = "71f69d83-ba66-4822-adf5-55ce55efd210"
"""A cluster's UUID in Run:ai."""

_NO_RULES = LabelRules()


def labelled(
    name: str, model: str, more: dict[str, str] | None = None, rules: LabelRules = _NO_RULES
) -> ClusterNode:
    """Return the node *name*, a bundled machine of *model*, with the labels *more* beside ours."""
    return _node(replace(machine(model), node=name), more or {}, rules)


def tray(
    name: str, clique: int, uuid: str = CLUSTER, more: dict[str, str] | None = None
) -> ClusterNode:
    """Return a compute tray of an NVL72 rack."""
    snapshot = machine("gb200-nvl72")
    gpus = tuple(
        replace(gpu, fabric=replace(gpu.fabric, cluster_uuid=uuid, clique_id=clique))
        for gpu in snapshot.gpus
        if gpu.fabric is not None
    )
    return _node(replace(snapshot, node=name, gpus=gpus), more or {}, _NO_RULES)


def bare(name: str, **labels_: str) -> ClusterNode:
    """Return a node without GPUs and with *labels_*; ``__`` in a name stands for a slash."""
    found = {key.replace("__", "/"): value for key, value in labels_.items()}
    return ClusterNode(name=name, labels={HOSTNAME: name, **found})


def with_labels(node: ClusterNode, more: dict[str, str]) -> ClusterNode:
    """Return *node* with *more* labels."""
    return replace(node, labels={**node.labels, **more})


def without(node: ClusterNode, *keys: str) -> ClusterNode:
    """Return *node* without the labels *keys*."""
    kept = {key: value for key, value in node.labels.items() if key not in keys}
    return replace(node, labels=kept)


def _node(snapshot: Snapshot, more: dict[str, str], rules: LabelRules) -> ClusterNode:
    name = snapshot.node or ""
    return ClusterNode(name=name, labels={HOSTNAME: name, **labels(snapshot, rules), **more})
