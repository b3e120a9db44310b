"""The engine: verdicts, counts, JSON."""

import pytest

from nodetopo.checks.engine import Summary, evaluate
from nodetopo.checks.rule import Finding, Missing, Rule, Severity, Skip, Verdict
from nodetopo.model.snapshot import Snapshot
from tests.checks.rules import yielding

FOUND = Finding(subject="it", observed="this", expected="that")


def a_rule(severity: Severity, *, finds: bool, misses: bool) -> Rule:
    parts = [FOUND] * finds + [Missing("an input")] * misses
    return yielding(*parts, severity=severity)


@pytest.mark.parametrize(
    ("severity", "finds", "misses", "verdict"),
    [
        (Severity.ERROR, False, False, Verdict.PASS),
        (Severity.ERROR, True, False, Verdict.FAIL),
        (Severity.ERROR, False, True, Verdict.UNKNOWN),
        (Severity.ERROR, True, True, Verdict.FAIL),
        (Severity.WARNING, True, False, Verdict.WARN),
        (Severity.WARNING, False, True, Verdict.UNKNOWN),
        (Severity.WARNING, True, True, Verdict.WARN),
        (Severity.INFO, True, False, Verdict.PASS),
        (Severity.INFO, True, True, Verdict.UNKNOWN),
    ],
)
def test_the_verdict_follows_from_severity_findings_and_knowledge(
    severity: Severity,
    finds: bool,
    misses: bool,
    verdict: Verdict,
) -> None:
    report = evaluate(Snapshot(), (a_rule(severity, finds=finds, misses=misses),))
    assert report.results[0].verdict is verdict


def test_a_rule_that_does_not_apply_neither_passes_nor_fails() -> None:
    report = evaluate(Snapshot(), (yielding(Skip("no GPU")),))
    (found,) = report.results
    assert (found.verdict, found.skipped, found.findings) == (Verdict.PASS, "no GPU", ())
    assert report.summary == Summary(passed=0, warned=0, failed=0, unknown=0, waived=0, skipped=1)


def test_an_input_that_is_missing_twice_is_named_once() -> None:
    rule_ = yielding(Missing("GPUs"), Missing("NUMA nodes"), Missing("GPUs"))
    (result,) = evaluate(Snapshot(), [rule_]).results
    assert result.missing == ("GPUs", "NUMA nodes")


def test_the_summary_counts_each_result_once() -> None:
    rules = (
        a_rule(Severity.ERROR, finds=False, misses=False),
        a_rule(Severity.ERROR, finds=True, misses=False),
        a_rule(Severity.ERROR, finds=True, misses=True),
        a_rule(Severity.WARNING, finds=True, misses=False),
        a_rule(Severity.ERROR, finds=False, misses=True),
    )
    assert evaluate(Snapshot(), rules).summary == Summary(
        passed=1, warned=1, failed=2, unknown=1, waived=0
    )
