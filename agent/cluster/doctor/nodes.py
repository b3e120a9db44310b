"""A rule that holds labels of the NVLink fabric against NVML, whose word is the newest."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.checks.rule import Finding, Severity
from agent.cluster.cluster import Cluster
from agent.cluster.doctor.rule import ClusterArea, ClusterRule
from agent.cluster.levels import CLIQUE, nvlink_keys
from agent.cluster.node import ClusterNode, folded
from agent.labels.catalogue import is_complete, labels
from agent.labels.rules import LabelRules
from agent.topology.domains import Interconnect

# Rules about who writes labels.

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


OWNERS_RULES: tuple[ClusterRule, ...] = (
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


_ABSENT = "no label"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """A label that says something else than NVML; ``None`` for no label."""

    key: str
    observed: str
    expected: str | None


def _stale(cluster: Cluster) -> tuple[Finding, ...]:
    names: dict[_Difference, list[str]] = {}
    for node in cluster.nodes:
        for difference in _differences(cluster, node):
            names.setdefault(difference, []).append(node.name)
    return tuple(
        Finding(
            subject=f"{one.key} on {folded(found)}",
            observed=one.observed,
            expected=f"{one.expected or _ABSENT}, as NVML says",
        )
        for one, found in names.items()
    )


def _differences(cluster: Cluster, node: ClusterNode) -> Iterator[_Difference]:
    snapshot = cluster.snapshots.get(node.name)
    if snapshot is not None:
        if not is_complete(snapshot):
            return
        told = labels(snapshot, LabelRules(prefix=cluster.prefix))
        truth = {key: told.get(key) for key in nvlink_keys(cluster.prefix)}
    else:
        truth = _own_word(cluster, node)
    for key, expected in truth.items():
        observed = node.labels.get(key)
        if observed and observed != expected:
            yield _Difference(key=key, observed=observed, expected=expected)


def _own_word(cluster: Cluster, node: ClusterNode) -> dict[str, str | None]:
    """Return what our labels, which follow NVML, say of the clique; empty where there are none."""
    _domain, partition, _clique = nvlink_keys(cluster.prefix)
    interconnect = node.labels.get(f"{cluster.prefix}interconnect")
    if interconnect is None:
        return {}
    is_fabric = interconnect == Interconnect.MNNVL
    if is_fabric and partition not in node.labels:
        return {}
    return {CLIQUE: node.labels[partition] if is_fabric else None}


def _untold(cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes with a clique of which neither our labels nor a snapshot tell the truth."""
    silent = [
        node.name
        for node in cluster.nodes
        if node.labels.get(CLIQUE)
        and node.name not in cluster.snapshots
        and not _own_word(cluster, node)
    ]
    partial = [name for name, snapshot in cluster.snapshots.items() if not is_complete(snapshot)]
    unknown = sorted({*silent, *partial})
    return (f"what NVML says of the fabric of {folded(unknown)}",) if unknown else ()


RULES: tuple[ClusterRule, ...] = (
    ClusterRule(
        code="CLU-008",
        claim="labels of the NVLink fabric say what NVML says",
        why="The partition of a node changes when the fabric is configured anew. A label that "
        "stayed behind sends a gang to nodes that do not reach each other over NVLink",
        area=ClusterArea.NVLINK,
        severity=Severity.ERROR,
        check=_stale,
        needs=_untold,
        remedy="restart the program that writes the label (GFD, the DRA driver), or let nodetopo "
        "write it; where nobody does any more, delete it",
        reference="https://docs.nvidia.com/multi-node-nvlink-systems/mnnvl-user-guide/overview.html",
    ),
)
