"""The alert rules: their texts, what is generated of them, and the runbook's entry for each."""

import re
import shlex
from collections.abc import Iterator

import pytest
import yaml

from nodetopo import pages
from nodetopo.cli.main import parser
from nodetopo.kernel.http.families import families
from nodetopo.pages import items
from nodetopo.tools.node_rules import node_rules
from scripts.generators.alerts import OBJECT, PAGE, RULES, alerts, recordings
from scripts.generators.metrics import minimal_pattern
from tests.docs.test_links import anchors

FAMILIES = [family for _, family in families()]

RUNBOOK = PAGE.with_name("runbook.md")
ENTRIES = items(pages.RUNBOOK, "Alerts")
PARTS = ["Means", "Impact", "Confirm", "Do"]
IN_POD = ["--host-root=/host", "--sysfs-root=/host/sys"]
"""What the function `agent` of the runbook adds to each command."""

FOREIGN = {"cluster", "job", "instance", "resource_name", "le"}
"""Labels of Prometheus, and of the kubelet's metrics."""


def commands() -> Iterator[list[str]]:
    """Yield the arguments of each command of ours in the runbook."""
    text = RUNBOOK.read_text("utf-8")
    for code in re.findall(r"`([^`\n]+)`", text):
        match shlex.split(code):
            case ["agent", *words]:
                yield [*words, *IN_POD]
            case ["nodetopo", *words] if words:
                yield words
            case _:
                continue


def test_the_object_has_the_rules_of_the_file() -> None:
    made = yaml.safe_load(OBJECT.read_text("utf-8"))
    assert made["spec"] == yaml.safe_load(RULES.read_text("utf-8"))
    assert (made["apiVersion"], made["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")


def test_every_alert_says_how_bad_it_is_and_what_it_means() -> None:
    for rule in alerts():
        name = rule["alert"]
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, name
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}, name
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, name
        assert all(text.strip() for text in rule["annotations"].values()), name
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)


def test_every_alert_has_an_entry_in_the_runbook() -> None:
    assert list(ENTRIES) == [rule["alert"] for rule in alerts()]
    there = anchors(RUNBOOK)
    for rule in alerts():
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (path, anchor) == ("docs/operate/runbook.md", rule["alert"].lower())
        assert anchor in there


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_it_means_costs_and_takes(name: str) -> None:
    assert list(ENTRIES[name]) == PARTS
    assert all(ENTRIES[name].values())


def test_every_command_of_the_runbook_can_be_run() -> None:
    known = list(commands())
    assert len(known) > 20
    whole = parser()
    for words in known:
        whole.parse_args(words)
    codes = {code for words in known for word in words for code in re.findall(r"[A-Z]+-\d+", word)}
    assert codes
    assert codes <= {rule.code for rule in node_rules()}


def test_rules_ask_for_metrics_and_labels_that_there_are() -> None:
    labels = {label for family in FAMILIES for label in family.labels}
    known = {family.full_name for family in FAMILIES}
    for rule in (*alerts(), *recordings()):
        named = set(re.findall(r"\bnodetopo_[a-z_]+", rule["expr"]))
        assert named <= known, rule
        grouped = re.findall(r"(?:by|on|group_left) \(([^)]*)\)", rule["expr"])
        used = {label.strip() for group in grouped for label in group.split(",")}
        assert used <= labels | FOREIGN, rule


def test_the_minimal_set_carries_critical_alerts_and_recordings() -> None:
    kept = re.compile(minimal_pattern())
    critical = [rule for rule in alerts() if rule["labels"]["severity"] == "critical"]
    assert critical
    for rule in (*critical, *recordings()):
        named = set(re.findall(r"\bnodetopo_[a-z_]+", rule["expr"]))
        assert all(kept.fullmatch(name) for name in named), rule
