"""The page of the alert rules, ``docs/operate/alerts.md``, and the PrometheusRule of kustomize."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from scripts.generators.chart import values

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "helm" / "files" / "alerts.yaml"
PAGE = ROOT / "docs" / "operate" / "alerts.md"
OBJECT = ROOT / "deploy" / "daemonset" / "components" / "alerts" / "prometheusrule.yaml"

_INTRODUCTION = """\
# Alerts

Alerting and recording rules for Prometheus. Generated from `deploy/helm/files/alerts.yaml`, which
is in Prometheus' format. Load the rules in one of these ways:

| Prometheus | how to load the rules |
| --- | --- |
| its operator, with the Helm chart | enable the rules in the chart's values |
| its operator, with kustomize | add the component `alerts` ([install.md](install.md#components)) |
| without an operator | list the file under `rule_files` |

The operator takes only the rules that its `ruleSelector` selects. If the selector needs a label,
add it with a patch or a value of the chart. Scrape the pods' port `metrics` under a job whose
name contains `nodetopo`. Adjust `for` and thresholds to your fleet.

Alerts about a node have its name in the label `node`. If several clusters share a Prometheus, the
label `cluster` separates their alerts and recordings. [runbook.md](runbook.md#alerts) explains
the response to each alert, and [metrics.md](../reference/metrics.md) describes every metric.
`deploy/helm/files/dashboard.json` is a Grafana dashboard: import it, or mount it as a ConfigMap
for Grafana's sidecar. With Helm, set `metrics.dashboard.create=true`. The installation works if
the panel *Nodes* of the row *Fleet* shows all GPU nodes, *Nodes not ready* shows 0, *Devices*
shows your GPUs, and *Misaligned pods* is empty.

## Rules

| alert | severity | for | summary |
| --- | --- | --- | --- |
"""

_RECORDINGS = """
## Recording rules

A few series for each cluster, model or resource. In a large fleet, a query over every GPU takes
too long:

| series | expression |
| --- | --- |
"""


def groups() -> list[dict[str, Any]]:
    """Return the rule groups of the file."""
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return found


def alerts() -> list[dict[str, Any]]:
    """Return the alerts of the file in its order."""
    return [rule for group in groups() for rule in group["rules"] if "alert" in rule]


def recordings() -> list[dict[str, Any]]:
    """Return the recording rules of the file in its order."""
    return [rule for group in groups() for rule in group["rules"] if "record" in rule]


def page() -> str:
    """Return the page as Markdown."""
    rows = [
        f"| [{rule['alert']}](runbook.md#{rule['alert'].lower()}) | {rule['labels']['severity']} | "
        f"{rule['for']} | {plain(rule['annotations']['summary'])} |\n"
        for rule in alerts()
    ]
    recorded = [
        f"| `{rule['record']}` | `{' '.join(rule['expr'].split())}` |\n" for rule in recordings()
    ]
    return _INTRODUCTION + "".join(rows) + _RECORDINGS + "".join(recorded)


def plain(text: str) -> str:
    """Return a text of a rule with words in place of what Prometheus puts in."""
    text = re.sub(r"{{ \$labels\.(\w+) }}{{ \$labels\.(\w+) }}", r"*\1*", text)
    text = re.sub(r"{{ (?:or )?\$labels\.(\w+)[^}]* }}", r"*\1*", text)
    return re.sub(r"{{ \$value[^}]*}}", "*N*", text)


def prometheus_rule() -> str:
    """Return the object for Prometheus' operator as YAML: the file below ``spec``.

    The runbook's links begin as those of the chart, which a release stamps.
    """
    prefix = values()["metrics"]["rules"]["runbookPrefix"]
    text = RULES.read_text("utf-8").replace("runbook_url: ", f"runbook_url: {prefix}")
    lines = text.splitlines(keepends=True)
    start = lines.index("groups:\n")
    return (
        "# Generated from deploy/helm/files/alerts.yaml: scripts/generate alerts\n"
        "apiVersion: monitoring.coreos.com/v1\n"
        "kind: PrometheusRule\n"
        "metadata:\n"
        "  name: nodetopo\n"
        "  namespace: nodetopo\n"
        "spec:\n" + indent("".join(lines[start:]), "  ")
    )


def made() -> Mapping[Path, str]:
    """Return the page and the object."""
    return {PAGE: page(), OBJECT: prometheus_rule()}


def owned() -> Iterable[Path]:
    """Return the files of this generator."""
    return (PAGE, OBJECT)
