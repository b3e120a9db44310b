"""What rules need, as their pages say it."""

import pytest

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import SILENT, Rule, Verdict, needed
from nodetopo.components.audit.catalogue import RULES, rule
from nodetopo.model.snapshot import Snapshot


@pytest.mark.parametrize("entry", RULES, ids=lambda entry: entry.code)
def test_every_rule_needs_something(entry: Rule) -> None:
    assert needed(entry)


@pytest.mark.parametrize("snapshot", SILENT, ids=["no HCA known", "one HCA"])
@pytest.mark.parametrize("entry", RULES, ids=lambda entry: entry.code)
def test_no_rule_passes_on_a_node_that_tells_nothing(entry: Rule, snapshot: Snapshot) -> None:
    (found,) = evaluate(snapshot, (entry,)).results
    assert found.verdict is Verdict.UNKNOWN or found.skipped is not None


def test_devices_are_told_of_in_general() -> None:
    assert needed(rule("GPU-001")) == ("recovery action of every GPU",)
    assert needed(rule("RDM-001")) == ("HCAs", "port states of every HCA")
    assert needed(rule("PCI-006"))[-1] == "IOMMU group of every GPU and HCA"
    assert needed(rule("QOS-001")) == ("pods",)
