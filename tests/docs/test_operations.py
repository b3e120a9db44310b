"""What docs/operations.md says of reasons, components and alerts is what there is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from agent.publish.metrics.families import FAMILIES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "operations.md").read_text("utf-8")
REASON = re.compile(r"((?:[A-Z][a-z]+){2,})(?::.*)?")
"""Alone, or as the beginning of a line of /readyz."""
SPEAKERS = (
    "agent/health/notices.py",
    "agent/health/trouble.py",
    "agent/daemon/gpu_health.py",
    "agent/daemon/alignment_loop.py",
    "agent/daemon/reconcile_loop.py",
    "agent/daemon/rejections_loop.py",
    "agent/daemon/reload.py",
)
"""Where the reasons of Events are written."""


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(title: str) -> set[str]:
    """Return the words in the first column of the section's tables."""
    rows = re.findall(r"^\| ([^|]+) \|", section(title), re.MULTILINE)
    return {word.strip(" `") for row in rows for word in row.split(",")}


def reasons_in(path: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.Constant) and (found := REASON.fullmatch(str(node.value))):
            yield found[1]


def test_every_reason_of_an_event_is_explained() -> None:
    spoken = {reason for path in SPEAKERS for reason in reasons_in(path)}
    assert spoken == first_cells("Events") - {"reason", "---"}


def test_every_reason_for_not_being_ready_is_explained() -> None:
    spoken = set(reasons_in("agent/publish/metrics/server.py")) - {"MetricsServer", "MetricsState"}
    assert spoken == first_cells("Ready and alive") - {"reason", "---"}


def test_every_component_is_listed() -> None:
    components = {path.name for path in (ROOT / "deploy/daemonset/components").iterdir()}
    assert first_cells("Install") - {"component", "---"} == components


def alerts() -> list[dict[str, Any]]:
    (text,) = re.findall(r"```yaml\n(.*?)```", section("Alerts"), re.DOTALL)
    (group,) = yaml.safe_load(text)["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_every_alert_can_be_loaded_and_tells_how_bad_it_is() -> None:
    keys = {"alert", "expr", "for", "labels", "annotations"}
    odd = [
        rule["alert"]
        for rule in alerts()
        if not {"alert", "expr", "labels", "annotations"} <= set(rule) <= keys
        or rule["labels"]["severity"] not in {"info", "warning", "critical"}
        or not rule["annotations"]["summary"]
    ]
    assert odd == []


def test_an_alert_uses_only_labels_that_its_metric_has() -> None:
    labels = {family.full_name: {*family.labels, "instance"} for family in FAMILIES}
    for rule in alerts():
        (name, *_) = re.findall(r"nodetopo_[a-z_]+", rule["expr"])
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert used <= labels[name], rule["alert"]


def test_every_link_inside_the_documentation_leads_somewhere() -> None:
    for page, anchor in re.findall(r"\]\(([a-z-]*\.md)?#?([a-z-]*)\)", TEXT):
        target = (ROOT / "docs" / page).read_text("utf-8") if page else TEXT
        headings = re.findall(r"^#+ (.+)$", target, re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}
        assert not anchor or anchor in anchors, (page, anchor)
