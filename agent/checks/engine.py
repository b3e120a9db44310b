"""Run rules over a snapshot and collect a report; rendering is the caller's."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from agent.checks.rule import Claim, Finding, Rule, Severity, Verdict
from agent.model.codec import to_plain
from agent.model.snapshot import Snapshot

SCHEMA = "nodetopo/checks/v1"
"""Names the JSON shape of a report, described by ``docs/schema/checks.json``."""

_NONE: Mapping[str, Any] = MappingProxyType({})
_BROKEN: Mapping[Severity, Verdict] = MappingProxyType(
    {Severity.ERROR: Verdict.FAIL, Severity.WARNING: Verdict.WARN},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one rule.

    Attributes:
        severity: the rule's own, unless overridden.
        findings: also present on a pass when the severity is INFO: remarks.
        missing: inputs that were not there; on a failed rule, what else is not known.
        waived: the reason given for accepting a verdict that is not a pass; the verdict
            itself stays what it is. ``None`` when nothing had to be waived.
    """

    rule: Claim
    severity: Severity
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    waived: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How many results there are of each kind; a waived one counts as waived only."""

    passed: int
    warned: int
    failed: int
    unknown: int
    waived: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of some rules on one node, or on a cluster (then no *node*), in their order."""

    node: str | None
    captured_at: datetime | None
    results: tuple[Result, ...]

    @property
    def summary(self) -> Summary:
        """The counts, from which a command takes its exit code."""
        count = Counter(None if result.waived else result.verdict for result in self.results)
        return Summary(
            passed=count[Verdict.PASS],
            warned=count[Verdict.WARN],
            failed=count[Verdict.FAIL],
            unknown=count[Verdict.UNKNOWN],
            waived=count[None],
        )


def evaluate(
    snapshot: Snapshot,
    rules: Iterable[Rule],
    *,
    overrides: Mapping[str, Severity] = _NONE,
    waivers: Mapping[str, str] = _NONE,
) -> Report:
    """Judge *snapshot* by *rules*.

    *overrides* (code → severity) and *waivers* (code → reason) may name rules that are not
    run here; whoever reads them from a person validates the codes with
    :func:`agent.checks.catalogue.rule`.
    """
    results = (
        _judge(rule, snapshot, overrides.get(rule.code, rule.severity), waivers.get(rule.code))
        for rule in rules
    )
    return Report(node=snapshot.node, captured_at=snapshot.captured_at, results=tuple(results))


def _judge(rule: Rule, snapshot: Snapshot, severity: Severity, waiver: str | None) -> Result:
    found = judged(rule, rule.check(snapshot), rule.needs(snapshot), severity)
    return found if found.verdict is Verdict.PASS else replace(found, waived=waiver)


def judged(
    rule: Claim,
    findings: tuple[Finding, ...],
    missing: tuple[str, ...],
    severity: Severity,
) -> Result:
    """Return what *findings*, and what is *missing*, make of *rule*."""
    return Result(
        rule=rule,
        severity=severity,
        verdict=_verdict(severity, has_findings=bool(findings), is_complete=not missing),
        findings=findings,
        missing=missing,
    )


def _verdict(severity: Severity, *, has_findings: bool, is_complete: bool) -> Verdict:
    # A proven finding outranks what is unknown beside it: the claim is broken either way.
    if has_findings and severity in _BROKEN:
        return _BROKEN[severity]
    return Verdict.PASS if is_complete else Verdict.UNKNOWN


def report_to_plain(report: Report) -> dict[str, Any]:
    """Return *report* in JSON's own types, as ``health -o json`` and ``audit -o json`` print it."""
    counts = report.summary
    return {
        "schema": SCHEMA,
        "node": report.node,
        "captured_at": to_plain(report.captured_at),
        "results": [_result_to_plain(result) for result in report.results],
        "summary": {
            "pass": counts.passed,
            "warn": counts.warned,
            "fail": counts.failed,
            "unknown": counts.unknown,
            "waived": counts.waived,
        },
    }


def _result_to_plain(result: Result) -> dict[str, Any]:
    return {
        "id": result.rule.code,
        "area": result.rule.area.value,
        "claim": result.rule.claim,
        "verdict": result.verdict.value,
        "severity": result.severity.value,
        "findings": [to_plain(finding) for finding in result.findings],
        "missing": list(result.missing),
        "waived": result.waived,
        "hint": result.rule.remedy,
        "url": result.rule.url,
    }
