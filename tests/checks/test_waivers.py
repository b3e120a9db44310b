"""Severities of the owner's own, and verdicts that are accepted for a while."""

from datetime import date

import pytest

from nodetopo.checks.engine import Result, Summary, evaluate
from nodetopo.checks.rule import Finding, Missing, Rule, Severity, Verdict
from nodetopo.checks.waivers import Overrides, Waiver
from nodetopo.model.snapshot import Snapshot
from tests.checks.rules import yielding

TODAY = date(2026, 11, 21)
GPU0 = Finding(subject="GPU0 0000:1b:00.0", observed="x8", expected="x16")
GPU3 = Finding(subject="GPU3 0000:52:00.0", observed="x8", expected="x16")


def a_waiver(until: date = TODAY, subject: str | None = None) -> Waiver:
    return Waiver(code="GPU-001", reason="ticket 7", until=until, subject=subject)


def judged(rule: Rule, *waivers: Waiver) -> Result:
    return evaluate(Snapshot(), (rule,), Overrides(waivers=waivers, today=TODAY)).results[0]


def test_a_waiver_keeps_the_verdict_and_counts_apart() -> None:
    rule = yielding(GPU0)
    report = evaluate(Snapshot(), (rule,), Overrides(waivers=(a_waiver(),), today=TODAY))
    assert report.results == (
        Result(
            rule=rule,
            severity=Severity.ERROR,
            verdict=Verdict.FAIL,
            findings=(GPU0,),
            waived="ticket 7; until 2026-11-21",
        ),
    )
    assert report.summary == Summary(passed=0, warned=0, failed=0, unknown=0, waived=1)


def test_a_waiver_accepts_what_is_unknown() -> None:
    assert judged(yielding(Missing("an input")), a_waiver()).waived == "ticket 7; until 2026-11-21"


def test_a_waiver_does_nothing_to_a_pass_or_to_another_rule() -> None:
    assert judged(yielding(), a_waiver()).waived is None
    other = Waiver(code="TST-002", reason="ticket 8", until=TODAY)
    assert judged(yielding(GPU0), other).waived is None


def test_a_waiver_ends_with_its_day_and_the_report_says_so() -> None:
    found = judged(yielding(GPU0), a_waiver(until=date(2026, 11, 20)))
    assert (found.waived, found.expired) == (None, "ticket 7; until 2026-11-20")
    assert found.verdict is Verdict.FAIL


def test_a_waiver_of_one_device_leaves_the_others() -> None:
    found = judged(yielding(GPU0, GPU3), a_waiver(subject="GPU3*"))
    assert (found.verdict, found.findings, found.accepted) == (Verdict.FAIL, (GPU0,), (GPU3,))
    assert found.waived is None


def test_waivers_of_every_device_found_waive_the_rule() -> None:
    found = judged(yielding(GPU0, GPU3), a_waiver(subject="GPU3*"), a_waiver(subject="GPU0*"))
    assert (found.verdict, found.waived) == (Verdict.FAIL, "ticket 7; until 2026-11-21")


def test_a_waiver_of_a_device_does_not_accept_what_is_unknown() -> None:
    found = judged(yielding(GPU3, Missing("the others")), a_waiver(subject="GPU3*"))
    assert (found.verdict, found.waived) == (Verdict.UNKNOWN, None)
    assert (found.findings, found.accepted) == ((), (GPU3,))


@pytest.mark.parametrize(
    ("severity", "verdict"),
    [(Severity.WARNING, Verdict.WARN), (Severity.INFO, Verdict.PASS)],
)
def test_another_severity_makes_another_verdict(severity: Severity, verdict: Verdict) -> None:
    terms = Overrides(severities={"GPU-001": severity})
    found = evaluate(Snapshot(), (yielding(GPU0),), terms).results[0]
    assert (found.severity, found.verdict) == (severity, verdict)
