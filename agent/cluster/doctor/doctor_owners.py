"""Rules about who writes labels."""

from collections.abc import Iterator

from agent.checks.rule import Finding, Severity
from agent.cluster.cluster import Cluster
from agent.cluster.doctor.rule import ClusterArea, ClusterRule
from agent.cluster.node_names import folded

_NVIDIA = "nvidia.com/"

_GFD_MARK = "nvidia.com/gfd.timestamp"
"""GPU Feature Discovery alone writes it (k8s-device-plugin v0.19.0 internal/lm/timestamp.go)."""


def _shared(cluster: Cluster) -> tuple[Finding, ...]:
    nodes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for node in cluster.nodes:
        for key, managers in (node.owners or {}).items():
            if len(managers) > 1 and key.startswith((_NVIDIA, cluster.prefix)):
                nodes.setdefault((key, managers), []).append(node.name)
    return tuple(
        Finding(
            subject=key,
            observed=f"written by {' and '.join(managers)} on {folded(names)}",
            expected="one writer",
        )
        for (key, managers), names in sorted(nodes.items())
    )


def _unowned(cluster: Cluster) -> tuple[str, ...]:
    untold = [node.name for node in cluster.nodes if node.owners is None]
    whose = folded(untold) if len(untold) < len(cluster.nodes) else "every node"
    return (f"field managers of {whose}",) if untold else ()


def _beside(cluster: Cluster) -> tuple[Finding, ...]:
    names = [
        node.name
        for node in cluster.nodes
        if _GFD_MARK in node.labels and any(key.startswith(cluster.prefix) for key in node.labels)
    ]
    return tuple(_gfd(names)) if names else ()


def _gfd(names: list[str]) -> Iterator[Finding]:
    yield Finding(
        subject=_GFD_MARK,
        observed=f"beside labels of nodetopo on {folded(names)}",
        expected="absent: one of the two programs",
    )


RULES: tuple[ClusterRule, ...] = (
    ClusterRule(
        code="CLU-006",
        claim="every label of NVIDIA's and of ours has one writer",
        why="Two writers of one label overwrite each other, or one deletes what the other still "
        "means: the NVIDIA DRA driver removes nvidia.com/gpu.clique when it stops. Each change "
        "moves workloads to other nodes",
        area=ClusterArea.OWNERS,
        severity=Severity.WARNING,
        check=_shared,
        needs=_unowned,
        remedy="let one program write it: publish-clique for nvidia.com/gpu.clique, `nodetopo "
        "cleanup` for what an old installation left; a file needs `kubectl get nodes "
        "--show-managed-fields -o json`",
        reference="https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management",
    ),
    ClusterRule(
        code="CLU-007",
        claim="GPU Feature Discovery does not run beside nodetopo",
        why="Both publish the nvidia.com/gpu family. GFD takes its labels away with it when it "
        "stops or loses a GPU, and with them nodes from every topology",
        area=ClusterArea.OWNERS,
        severity=Severity.WARNING,
        check=_beside,
        remedy="turn GFD off (gfd.enabled=false of NVIDIA's charts), then delete "
        "nvidia.com/gfd.timestamp where it stays behind",
        reference="https://github.com/NVIDIA/k8s-device-plugin/tree/v0.19.0/docs/gpu-feature-discovery",
    ),
)
