"""Rules about the labels that make the levels of a topology."""

import re

from nodetopo.checks.rule import Finding, Missing, Severity
from nodetopo.formats.names import PART
from nodetopo.tools.cluster.cluster import Cluster
from nodetopo.tools.cluster.doctor.rule import (
    ClusterArea,
    ClusterJudgement,
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


@cluster_rule("CLU-001", ClusterArea.LEVELS, Severity.ERROR)
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


@cluster_rule("CLU-002", ClusterArea.LEVELS, Severity.ERROR)
def empty_levels(cluster: Cluster) -> ClusterJudgement:
    for key in cluster.level_keys:
        names = [node.name for node in cluster.nodes if node.labels.get(key) == ""]
        if names:
            yield Finding(
                subject=key,
                observed=f"empty on {len(names)} of {len(cluster.nodes)}: {folded(names)}",
                expected="a value, or no label",
            )


@cluster_rule("CLU-003", ClusterArea.LEVELS, Severity.ERROR)
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


@cluster_rule("CLU-004", ClusterArea.LEVELS, Severity.ERROR)
def joined_values(cluster: Cluster) -> ClusterJudgement:
    """Look for places that are one when their values are joined by dots."""
    for topology in cluster.topologies:
        for clash in dot_clashes(cluster.members(topology), topology.levels):
            yield Finding(
                subject=f"{clash.key} {clash.name}",
                observed=f"stands for {' and '.join(' > '.join(path) for path in clash.paths)}",
                expected="one place",
            )


@cluster_rule("CLU-005", ClusterArea.LEVELS, Severity.WARNING)
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
