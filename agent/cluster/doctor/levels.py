"""Rules about the labels that make the levels of a topology."""

import re
from collections.abc import Iterable, Iterator

from agent.checks.rule import Finding, Severity
from agent.cluster.cluster import Cluster, Topology
from agent.cluster.doctor.rule import ClusterArea, ClusterRule
from agent.cluster.levels import (
    HOSTNAME,
    MAX_LEVELS,
    dot_clashes,
    is_from_labels,
    named,
    same_hosts,
    shared_values,
)
from agent.cluster.node import ClusterNode, folded, has_gpus
from agent.labels.label import PART

MAX_KEY = 63
"""Characters of a level's key, prefix included, that Grove takes (ai-dynamo/grove
operator/api/core/v1alpha1 clustertopologybinding.go); KAI and Kueue take 316."""

_VALUE = re.compile(PART)
"""A label value that is not empty (k8s.io/apimachinery validation, IsValidLabelValue)."""


def _missing(cluster: Cluster) -> tuple[Finding, ...]:
    """Return a finding for each level that keeps nodes out of every topology."""
    placed = {
        node.name
        for one in cluster.topologies
        for node in cluster.nodes
        if one.is_for(node.name) and all(key in node.labels for key in one.levels)
    }
    lost = [node for node in cluster.nodes if node.name not in placed]
    return _unique(
        Finding(
            subject=_level(cluster, topology, key),
            observed=f"missing on {len(names)} of {_count(cluster, topology)}: {folded(names)}",
            expected="on every node with GPUs",
        )
        for topology in cluster.topologies
        for key in topology.levels
        if (names := [node.name for node in _meant(topology, lost) if key not in node.labels])
    )


def _meant(topology: Topology, nodes: Iterable[ClusterNode]) -> Iterator[ClusterNode]:
    return (node for node in nodes if topology.is_for(node.name))


def _count(cluster: Cluster, topology: Topology) -> int:
    return sum(1 for _ in _meant(topology, cluster.nodes))


def _untold(cluster: Cluster) -> tuple[str, ...]:
    """Return what would be needed to know the levels, where labels alone have to tell of them."""
    if not any(map(is_from_labels, cluster.topologies)):
        return ()
    silent = [node.name for node in cluster.nodes if not has_gpus(node, cluster.prefix)]
    if silent:
        return (f"whether {folded(silent)} should have levels: no label tells of GPUs",)
    is_bare = any(not one.levels for one in cluster.topologies)
    return ("levels: no label makes one (name keys with --levels)",) if is_bare else ()


def _level(cluster: Cluster, topology: Topology, key: str) -> str:
    return key if len(cluster.topologies) == 1 else f"{key} of {topology.name}"


def _empty(cluster: Cluster) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=key,
            observed=f"empty on {len(names)} of {len(cluster.nodes)}: {folded(names)}",
            expected="a value, or no label",
        )
        for key in cluster.level_keys
        if (names := [node.name for node in cluster.nodes if node.labels.get(key) == ""])
    )


def _reused(cluster: Cluster) -> tuple[Finding, ...]:
    return _unique(
        Finding(
            subject=f"{shared.key}={shared.value}",
            observed=f"below {len(shared.parents)} values of {shared.parent_key}: "
            f"{named(shared.parents)}",
            expected="below one",
        )
        for topology in cluster.topologies
        for shared in shared_values(cluster.members(topology), topology.levels)
    )


def _reused_hosts(cluster: Cluster) -> tuple[Finding, ...]:
    return _unique(
        Finding(
            subject=f"{HOSTNAME}={host}",
            observed=f"on {len(names)} Nodes: {folded(names)}",
            expected="on one",
        )
        for topology in cluster.topologies
        for host, names in same_hosts(cluster.members(topology), topology.levels)
    )


def _joined(cluster: Cluster) -> tuple[Finding, ...]:
    return _unique(
        Finding(
            subject=f"{clash.key} {clash.name}",
            observed=f"stands for {' and '.join(' > '.join(path) for path in clash.paths)}",
            expected="one place",
        )
        for topology in cluster.topologies
        for clash in dot_clashes(cluster.members(topology), topology.levels)
    )


def _malformed(cluster: Cluster) -> tuple[Finding, ...]:
    keys = {key for node in cluster.nodes for key in node.labels if key.startswith(cluster.prefix)}
    values = {
        (key, node.labels[key])
        for node in cluster.nodes
        for key in (*cluster.level_keys, *keys)
        if node.labels.get(key)
    }
    return (
        *(found for topology in cluster.topologies for found in _unfit(topology)),
        *(
            Finding(subject=key, observed=f"{len(key)} characters", expected=f"up to {MAX_KEY}")
            for key in sorted({*keys, *cluster.level_keys})
            if len(key) > MAX_KEY
        ),
        *(
            Finding(
                subject=key,
                observed=repr(value),
                expected="up to 63 letters, digits, - _ . with a letter or digit at both ends",
            )
            for key, value in sorted(values)
            if not _VALUE.fullmatch(value)
        ),
    )


def _unfit(topology: Topology) -> Iterator[Finding]:
    count = len(topology.levels)
    if count > MAX_LEVELS:
        expected = f"up to {MAX_LEVELS}"
        yield Finding(subject=topology.name, observed=f"{count} levels", expected=expected)
    if HOSTNAME in topology.levels[:-1]:
        observed = f"level {topology.levels.index(HOSTNAME) + 1} of {count}"
        yield Finding(subject=HOSTNAME, observed=observed, expected="the last level")


def _unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return *findings* each once: topologies often share their upper levels."""
    return tuple(dict.fromkeys(findings))


RULES: tuple[ClusterRule, ...] = (
    ClusterRule(
        code="CLU-001",
        claim="every GPU node carries every level of a topology",
        why="KAI, Kueue, kube-scheduler and Volcano leave a node out that lacks any level of the "
        "topology that a workload asks for, and say nothing: its GPUs stand idle. Where there "
        "are several topologies, a node needs all levels of one",
        area=ClusterArea.LEVELS,
        severity=Severity.ERROR,
        check=_missing,
        needs=_untold,
        remedy="label the nodes, or leave the level out; where only some machines have "
        "multi-node NVLink, gpu.topology/nvlink-partition takes the place of "
        "nvidia.com/gpu.clique; pools of different machines are judged one by one with --selector",
        reference="https://github.com/kubernetes-sigs/kueue/issues/6996",
    ),
    ClusterRule(
        code="CLU-002",
        claim="no level is an empty label",
        why="To KAI an empty value is a value, so that all these nodes are one place; to others "
        "the node lacks the level",
        area=ClusterArea.LEVELS,
        severity=Severity.ERROR,
        check=_empty,
        remedy="give the label a value or delete it",
        reference="https://github.com/NVIDIA/KAI-Scheduler/tree/v0.12.0/pkg/scheduler/plugins/topology",
    ),
    ClusterRule(
        code="CLU-003",
        claim="no value of a level lies below two values of the level above",
        why="kube-scheduler, Volcano, LWS and JobSet take a value for one place wherever they "
        "meet it, so that rack 1 of two blocks is one rack to them; KAI and Kueue take a place "
        "that lies below two others for two places. Nodes that bear one host name are one place "
        "to all",
        area=ClusterArea.LEVELS,
        severity=Severity.ERROR,
        check=lambda cluster: (*_reused(cluster), *_reused_hosts(cluster)),
        remedy="give places names of their own, e.g. block1-rack1, or leave out the level above "
        "if it does not contain this one; a host's name is the kubelet's --hostname-override",
        reference="https://github.com/volcano-sh/volcano/tree/v1.15.1/pkg/controllers/hypernode/discovery/label",
    ),
    ClusterRule(
        code="CLU-004",
        claim="no two places have one name when the values of their levels are joined by dots",
        why="KAI joins them so, and r.1 > a is r > 1.a to it: a gang that requires one place was "
        "seen spread over two",
        area=ClusterArea.LEVELS,
        severity=Severity.ERROR,
        check=_joined,
        remedy="use values without dots, or values that begin with that of the level above",
        reference="https://github.com/NVIDIA/KAI-Scheduler/blob/v0.12.0/pkg/scheduler/plugins/topology/topology_structs.go",
    ),
    ClusterRule(
        code="CLU-005",
        claim="keys and values of levels are such that every scheduler takes them",
        why="Grove takes keys of 63 characters, KAI and Kueue 16 levels with the host as the "
        "last; the API server refuses other values than these",
        area=ClusterArea.LEVELS,
        severity=Severity.WARNING,
        check=_malformed,
        remedy="choose a shorter --label-prefix, or other keys and values",
        reference="https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set",
    ),
)
