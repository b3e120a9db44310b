"""The engine with all rules: their order, what they miss, JSON."""

import json
from datetime import UTC, date, datetime
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

from nodetopo.checks.engine import evaluate, report_to_plain
from nodetopo.checks.waivers import Overrides, Waiver
from nodetopo.components.audit.catalogue import HEALTH, RULES, rule
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy, with_gpu

SCHEMA = Path(__file__).parents[3] / "docs" / "reference" / "schema" / "checks.json"
TERMS = Overrides(
    waivers=(
        Waiver(code="PCI-002", reason="known", until=date(2027, 1, 31)),
        Waiver(code="QOS-001", reason="known", until=date(2026, 1, 31)),
    ),
    today=date(2026, 11, 21),
)


def lost(snapshot: Snapshot) -> Snapshot:
    return with_gpu(snapshot, 0, lambda gpu: replace(gpu, is_lost=True))


def test_inputs_that_one_failure_took_away_are_listed_once_with_all_checks() -> None:
    broken = ProbeIssue(probe="nvml", subject="library", reason="no such file")
    report = evaluate(Snapshot(issues=(broken,)), HEALTH)
    by_reason = {one.reasons: one for one in report.missing}
    found = by_reason["library: no such file",]
    assert found.inputs == ("GPUs", "NVLinks")
    unknown = [one.rule.code for one in report.results if "GPUs (library" in " ".join(one.missing)]
    assert list(found.checks) == unknown
    assert len(unknown) > 10
    inputs = [name for one in report.missing for name in one.inputs]
    assert len(inputs) == len(set(inputs))
    # Those without a reason have nothing but their name in common, so each stands alone.
    assert all(len(one.inputs) == 1 for one in report.missing if not one.reasons)


def test_results_stand_in_the_order_of_the_rules() -> None:
    report = evaluate(healthy(), reversed(HEALTH))
    assert [result.rule for result in report.results] == list(reversed(HEALTH))


def test_the_plain_report_carries_all_that_a_program_needs() -> None:
    failed = evaluate(lost(healthy()), (rule("PCI-002"),))
    dated = replace(failed, node="gpu-17", captured_at=datetime(2026, 8, 22, 9, 14, 3, tzinfo=UTC))
    assert report_to_plain(dated) == {
        "schema": "nodetopo/checks/v1",
        "node": "gpu-17",
        "captured_at": "2026-08-22T09:14:03Z",
        "results": [
            {
                "id": "PCI-002",
                "area": "pcie",
                "claim": "GPU access through PCI and the driver",
                "verdict": "fail",
                "severity": "error",
                "findings": [
                    {
                        "subject": "GPU0 0000:1b:00.0",
                        "observed": "lost",
                        "expected": "answers the driver",
                    }
                ],
                "missing": [],
                "waived": None,
                "skipped": None,
                "accepted": [],
                "expired": None,
                "hint": rule("PCI-002").remedy,
                "url": "docs/reference/checks.md#pci-002",
            }
        ],
        "missing": [],
        "summary": {
            "pass": 0,
            "warn": 0,
            "fail": 1,
            "unknown": 0,
            "waived": 0,
            "skipped": 0,
        },
    }


@pytest.mark.parametrize("snapshot", [healthy(), lost(healthy()), Snapshot()])
def test_the_plain_report_keeps_to_its_schema(snapshot: Snapshot) -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    plain = report_to_plain(evaluate(snapshot, RULES, TERMS))
    jsonschema.validate(json.loads(json.dumps(plain)), schema)
