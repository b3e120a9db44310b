"""The page of the alert rules, ``docs/operate/alerts.md``, and the PrometheusRule of kustomize."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from scripts.generators.chart import values
from scripts.generators.registry import with_rows

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "helm" / "files" / "alerts.yaml"
PAGE = ROOT / "docs" / "operate" / "alerts.md"
OBJECT = ROOT / "deploy" / "daemonset" / "components" / "alerts" / "prometheusrule.yaml"


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
    """Return the page with its tables renewed; its text stays."""
    rows = [
        f"| [{rule['alert']}](runbook.md#{rule['alert'].lower()}) | {rule['labels']['severity']} | "
        f"{rule['for']} | {plain(rule['annotations']['summary'])} |\n"
        for rule in alerts()
    ]
    recorded = [
        f"| `{rule['record']}` | `{' '.join(rule['expr'].split())}` |\n" for rule in recordings()
    ]
    return with_rows(
        PAGE,
        {
            "| alert | severity | for | summary |": rows,
            "| series | expression |": recorded,
        },
    )


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
