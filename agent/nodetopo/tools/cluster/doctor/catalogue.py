"""All rules about a cluster, in the order of their page, and the report."""

from collections.abc import Iterable, Mapping
from typing import Any

from nodetopo.checks.engine import Report, judged, report_to_plain
from nodetopo.checks.rule import Finding, Missing
from nodetopo.pages import checks
from nodetopo.tools.cluster.cluster import Cluster
from nodetopo.tools.cluster.doctor import dra, gangs, levels, nodes
from nodetopo.tools.cluster.doctor.rule import PAGE, ClusterRule

SCHEMA = "nodetopo/doctor/v1"
"""Names the JSON shape of a report, described by ``docs/reference/schema/doctor.json``."""

_FOUND = {
    rule.code: rule
    for module in (levels, nodes, gangs, dra)
    for rule in vars(module).values()
    if isinstance(rule, ClusterRule)
}

RULES: tuple[ClusterRule, ...] = tuple(_FOUND[code] for code in checks(PAGE))


def examine(cluster: Cluster, rules: Iterable[ClusterRule] = RULES) -> Report:
    """Return the report of *rules* on *cluster*; a claim whose inputs are missing is unknown."""
    results = []
    for rule in rules:
        # Topologies often share their upper levels: each finding counts once.
        parts = tuple(dict.fromkeys(rule.judge(cluster)))
        findings = tuple(part for part in parts if isinstance(part, Finding))
        missing = tuple(part for part in parts if isinstance(part, Missing))
        results.append(judged(rule, findings, missing, rule.severity))
    return Report(node=None, captured_at=None, results=tuple(results))


def examined_to_plain(cluster: Cluster, report: Report) -> Mapping[str, Any]:
    """Return *report* in JSON's own types, as ``doctor -o json`` prints it."""
    plain = report_to_plain(report)
    return {
        "schema": SCHEMA,
        "nodes": [node.name for node in cluster.nodes],
        "others": list(cluster.others),
        "topologies": [
            {"name": topology.name, "levels": list(topology.levels)}
            for topology in cluster.topologies
        ],
        "results": plain["results"],
        "missing": plain["missing"],
        "summary": plain["summary"],
    }
