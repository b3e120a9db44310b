"""Rules about writers of labels, and the agreement of NVLink fabric labels with NVML."""

from nodetopo.checks.inputs import because
from nodetopo.checks.rule import Finding, Missing, Severity
from nodetopo.components.labels.catalogue import is_complete, labels
from nodetopo.components.labels.rules import LabelRules
from nodetopo.tools.cluster.cluster import Cluster
from nodetopo.tools.cluster.doctor.rule import (
    ClusterArea,
    ClusterJudgement,
    cluster_rule,
)
from nodetopo.tools.cluster.levels import CLIQUE, has_false_clique, nvlink_keys
from nodetopo.tools.cluster.node import ClusterNode, folded
from nodetopo.topology.domains import Interconnect

_GFD_MARK = "nvidia.com/gfd.timestamp"
"""GPU Feature Discovery alone writes it (k8s-device-plugin v0.19.0 internal/lm/timestamp.go)."""


@cluster_rule("CLU-006", ClusterArea.OWNERS, Severity.WARNING)
def one_writer(cluster: Cluster) -> ClusterJudgement:
    """Find labels of NVIDIA's and ours with several field managers."""
    unknown = [node.name for node in cluster.nodes if node.owners is None]
    if unknown:
        whose = folded(unknown) if len(unknown) < len(cluster.nodes) else "every node"
        yield Missing(f"field managers of {whose}")
    nodes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for node in cluster.nodes:
        for key, managers in (node.owners or {}).items():
            if len(managers) > 1 and key.startswith(("nvidia.com/", cluster.prefix)):
                nodes.setdefault((key, managers), []).append(node.name)
    for (key, managers), names in sorted(nodes.items()):
        yield Finding(
            subject=key,
            observed=f"written by {' and '.join(managers)} on {folded(names)}",
            expected="one writer",
        )


@cluster_rule("CLU-007", ClusterArea.OWNERS, Severity.WARNING)
def gpu_feature_discovery(cluster: Cluster) -> ClusterJudgement:
    """Find the label of GPU Feature Discovery alongside ours."""
    names = [
        node.name
        for node in cluster.nodes
        if _GFD_MARK in node.labels and any(key.startswith(cluster.prefix) for key in node.labels)
    ]
    if names:
        yield Finding(
            subject=_GFD_MARK,
            observed=f"alongside labels of nodetopo on {folded(names)}",
            expected="absent: one of the two programs",
        )


@cluster_rule("CLU-008", ClusterArea.NVLINK, Severity.ERROR)
def stale_fabric_labels(cluster: Cluster) -> ClusterJudgement:
    """Compare labels of the NVLink fabric with snapshots, or else with other labels."""
    silent = [
        node.name
        for node in cluster.nodes
        if node.labels.get(CLIQUE)
        and node.name not in cluster.snapshots
        and not _by_labels(cluster, node)
    ]
    partial = [name for name, snapshot in cluster.snapshots.items() if not is_complete(snapshot)]
    if unknown := sorted({*silent, *partial}):
        reasons = (because(cluster.snapshots[name], "nvml") for name in sorted(partial))
        reason = "; ".join(dict.fromkeys(filter(None, reasons))) or None
        yield Missing(f"what NVML says of the fabric of {folded(unknown)}", reason)

    # Nodes by key, observed value and expected value, which is None for no label.
    nodes: dict[tuple[str, str, str | None], list[str]] = {}
    for node in cluster.nodes:
        snapshot = cluster.snapshots.get(node.name)
        if snapshot is None:
            truth = _by_labels(cluster, node)
        elif is_complete(snapshot):
            by_nvml = labels(snapshot, LabelRules(prefix=cluster.prefix))
            truth = {key: by_nvml.get(key) for key in nvlink_keys(cluster.prefix)}
        else:
            continue
        for key, expected in truth.items():
            observed = node.labels.get(key)
            if observed and observed != expected:
                nodes.setdefault((key, observed, expected), []).append(node.name)
    for (key, observed, expected), names in nodes.items():
        yield Finding(
            subject=f"{key} on {folded(names)}",
            observed=observed,
            expected="no label" if expected is None else f"{expected}, as NVML says",
        )


def _by_labels(cluster: Cluster, node: ClusterNode) -> dict[str, str | None]:
    """Return the clique by our labels, which follow NVML, or by the product; empty if unknown."""
    if has_false_clique(node, cluster.prefix):
        return {CLIQUE: None}
    _domain, partition, _clique = nvlink_keys(cluster.prefix)
    is_fabric = node.labels.get(f"{cluster.prefix}interconnect") == Interconnect.MNNVL
    return {CLIQUE: node.labels[partition]} if is_fabric and partition in node.labels else {}
