"""All rules about a cluster, in the order of a report, and the report."""

from collections.abc import Iterable, Mapping
from typing import Any

from agent.checks.engine import Report, judged, report_to_plain
from agent.cluster.cluster import Cluster
from agent.cluster.doctor import gangs, levels, nodes
from agent.cluster.doctor import nodes as doctor_owners
from agent.cluster.doctor.rule import ClusterRule

SCHEMA = "nodetopo/doctor/v1"
"""Names the JSON shape of a report, described by ``docs/reference/schema/doctor.json``."""

RULES: tuple[ClusterRule, ...] = (
    *levels.RULES,
    *doctor_owners.OWNERS_RULES,
    *nodes.RULES,
    *gangs.RULES,
)


def examine(cluster: Cluster, rules: Iterable[ClusterRule] = RULES) -> Report:
    """Judge *cluster* by *rules*; a claim whose inputs are missing is unknown, never passed."""
    results = (
        judged(rule, rule.check(cluster), rule.needs(cluster), rule.severity) for rule in rules
    )
    return Report(node=None, captured_at=None, results=tuple(results))


def examined_to_plain(cluster: Cluster, report: Report) -> Mapping[str, Any]:
    """Return *report* in JSON's own types, as ``doctor -o json`` prints it."""
    plain = report_to_plain(report)
    return {
        "schema": SCHEMA,
        "nodes": [node.name for node in cluster.nodes],
        "others": list(cluster.others),
        "topologies": [
            {"name": one.name, "levels": list(one.levels)} for one in cluster.topologies
        ],
        "results": plain["results"],
        "summary": plain["summary"],
    }
