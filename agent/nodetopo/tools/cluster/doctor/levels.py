"""Rules about the labels that make the levels of a topology."""

import re

from nodetopo.checks.rule import Finding, Missing, Severity
from nodetopo.formats.names import PART
from nodetopo.tools.cluster.cluster import Cluster
from nodetopo.tools.cluster.doctor.rule import (
    ClusterArea,
    ClusterJudgement,
    ClusterRule,
    cluster_rule,
)
from nodetopo.tools.cluster.levels import (
    HOSTNAME,
    MAX_LEVELS,
    dot_clashes,
    is_from_labels,
    named,
    same_hosts,
    shared_values,
)
from nodetopo.tools.cluster.node import folded, has_gpus

MAX_KEY = 63
"""Characters of a level's key, prefix included, that Grove takes (ai-dynamo/grove
operator/api/core/v1alpha1 clustertopologybinding.go); KAI and Kueue take 316."""

_VALUE = re.compile(PART)
"""A label value that is not empty (k8s.io/apimachinery validation, IsValidLabelValue)."""


@cluster_rule(
    "CLU-001",
    ClusterArea.LEVELS,
    Severity.ERROR,
    claim="Topology levels of GPU nodes",
    why="KAI, Kueue, kube-scheduler and Volcano silently skip a node that lacks any level "
    "of the topology that a workload requests: its GPUs stay idle. With several topologies, a "
    "node needs all levels of one",
    remedy="label the nodes, or omit the level; if only some machines have multi-node NVLink, "
    "use gpu.topology/nvlink-partition instead of nvidia.com/gpu.clique; check pools of different "
    "machines separately with --selector",
    reference="https://github.com/kubernetes-sigs/kueue/issues/6996",
)
def levels_on_every_node(cluster: Cluster) -> ClusterJudgement:
    """Look for levels that keep nodes out of every topology."""
    if any(map(is_from_labels, cluster.topologies)):
        silent = [node.name for node in cluster.nodes if not has_gpus(node, cluster.prefix)]
        if silent:
            yield Missing(f"whether {folded(silent)} should have levels: no label tells of GPUs")
        elif any(not topology.levels for topology in cluster.topologies):
            yield Missing("levels: no label makes one (name keys with --levels)")
    placed = {
        node.name
        for topology in cluster.topologies
        for node in cluster.nodes
        if topology.is_for(node.name) and all(key in node.labels for key in topology.levels)
    }
    for topology in cluster.topologies:
        meant = [node for node in cluster.nodes if topology.is_for(node.name)]
        for key in topology.levels:
            names = [
                node.name for node in meant if node.name not in placed and key not in node.labels
            ]
            if names:
                is_only = len(cluster.topologies) == 1
                yield Finding(
                    subject=key if is_only else f"{key} of {topology.name}",
                    observed=f"missing on {len(names)} of {len(meant)}: {folded(names)}",
                    expected="on every node with GPUs",
                )


@cluster_rule(
    "CLU-002",
    ClusterArea.LEVELS,
    Severity.ERROR,
    claim="Values of topology levels",
    why="KAI counts an empty value as a value, so that all these nodes are one place; other "
    "schedulers treat the level as missing",
    remedy="give the label a value or delete it",
    reference="https://github.com/NVIDIA/KAI-Scheduler/tree/v0.12.0/pkg/scheduler/plugins/topology",
)
def empty_levels(cluster: Cluster) -> ClusterJudgement:
    for key in cluster.level_keys:
        names = [node.name for node in cluster.nodes if node.labels.get(key) == ""]
        if names:
            yield Finding(
                subject=key,
                observed=f"empty on {len(names)} of {len(cluster.nodes)}: {folded(names)}",
                expected="a value, or no label",
            )


@cluster_rule(
    "CLU-003",
    ClusterArea.LEVELS,
    Severity.ERROR,
    claim="Nesting of topology levels",
    why="kube-scheduler, Volcano, LWS and JobSet treat equal values as one place: rack 1 of "
    "block A and rack 1 of block B are one rack. KAI and Kueue treat a place below two "
    "others as two places. For all of them, nodes with the same host name are one place",
    remedy="give places unique names such as block1-rack1, or omit the level above if it does "
    "not contain this one; a host's name is the kubelet's --hostname-override",
    reference="https://github.com/volcano-sh/volcano/tree/v1.15.1/pkg/controllers/hypernode/discovery/label",
)
def reused_values(cluster: Cluster) -> ClusterJudgement:
    """Look for values below two others, and for host names of several Nodes."""
    for topology in cluster.topologies:
        for shared in shared_values(cluster.members(topology), topology.levels):
            yield Finding(
                subject=f"{shared.key}={shared.value}",
                observed=f"below {len(shared.parents)} values of {shared.parent_key}: "
                f"{named(shared.parents)}",
                expected="below one",
            )
    for topology in cluster.topologies:
        for host, names in same_hosts(cluster.members(topology), topology.levels):
            yield Finding(
                subject=f"{HOSTNAME}={host}",
                observed=f"on {len(names)} Nodes: {folded(names)}",
                expected="on one",
            )


@cluster_rule(
    "CLU-004",
    ClusterArea.LEVELS,
    Severity.ERROR,
    claim="Names of places in joined levels",
    why="KAI joins values with dots and cannot tell r.1 > a from r > 1.a: it has spread a "
    "gang that requires one place over two",
    remedy="use values without dots, or values that begin with the value of the level above",
    reference="https://github.com/NVIDIA/KAI-Scheduler/blob/v0.12.0/pkg/scheduler/plugins/topology/topology_structs.go",
)
def joined_values(cluster: Cluster) -> ClusterJudgement:
    """Look for places that are one when their values are joined by dots."""
    for topology in cluster.topologies:
        for clash in dot_clashes(cluster.members(topology), topology.levels):
            yield Finding(
                subject=f"{clash.key} {clash.name}",
                observed=f"stands for {' and '.join(' > '.join(path) for path in clash.paths)}",
                expected="one place",
            )


@cluster_rule(
    "CLU-005",
    ClusterArea.LEVELS,
    Severity.WARNING,
    claim="Syntax of topology levels",
    why="Grove takes keys of 63 characters, KAI and Kueue 16 levels with the host as the "
    "last; the API server rejects invalid values",
    remedy="choose a shorter --label-prefix, or other keys and values",
    reference="https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set",
)
def malformed_levels(cluster: Cluster) -> ClusterJudgement:
    """Look for numbers and order of levels, keys and values that a scheduler refuses."""
    for topology in cluster.topologies:
        count = len(topology.levels)
        if count > MAX_LEVELS:
            expected = f"up to {MAX_LEVELS}"
            yield Finding(subject=topology.name, observed=f"{count} levels", expected=expected)
        if HOSTNAME in topology.levels[:-1]:
            observed = f"level {topology.levels.index(HOSTNAME) + 1} of {count}"
            yield Finding(subject=HOSTNAME, observed=observed, expected="the last level")
    own = {key for node in cluster.nodes for key in node.labels if key.startswith(cluster.prefix)}
    for key in sorted({*own, *cluster.level_keys}):
        if len(key) > MAX_KEY:
            yield Finding(
                subject=key, observed=f"{len(key)} characters", expected=f"up to {MAX_KEY}"
            )
    values = {
        (key, node.labels[key])
        for node in cluster.nodes
        for key in (*cluster.level_keys, *own)
        if node.labels.get(key)
    }
    for key, value in sorted(values):
        if not _VALUE.fullmatch(value):
            yield Finding(
                subject=key,
                observed=repr(value),
                expected="up to 63 letters, digits, - _ . with a letter or digit at both ends",
            )


RULES: tuple[ClusterRule, ...] = (
    levels_on_every_node,
    empty_levels,
    reused_values,
    joined_values,
    malformed_levels,
)
