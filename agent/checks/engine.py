"""Run rules over a snapshot and collect a report; rendering is the caller's."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from agent.checks.rule import Claim, Finding, Rule, Severity, Verdict
from agent.checks.waivers import USUAL, Terms
from agent.model.codec import to_plain
from agent.model.snapshot import Snapshot

SCHEMA = "nodetopo/checks/v1"
"""Names the JSON shape of a report, described by ``docs/reference/schema/checks.json``."""

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
        skipped: why the claim says nothing about this node; the verdict is then a pass.
        accepted: findings that a waiver covers, where others are left.
        expired: waivers that hold no more, of a verdict that they would have covered.
    """

    rule: Claim
    severity: Severity
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    waived: str | None = None
    skipped: str | None = None
    accepted: tuple[Finding, ...] = ()
    expired: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How many results there are of each kind; a waived one counts as waived only.

    Attributes:
        skipped: claims that say nothing about this node; they are not among the passed.
    """

    passed: int
    warned: int
    failed: int
    unknown: int
    waived: int
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of some rules on one node, or on a cluster (then no *node*), in their order."""

    node: str | None
    captured_at: datetime | None
    results: tuple[Result, ...]

    @property
    def summary(self) -> Summary:
        """The counts, from which a command takes its exit code."""
        count = Counter(map(_kind, self.results))
        return Summary(
            passed=count[Verdict.PASS],
            warned=count[Verdict.WARN],
            failed=count[Verdict.FAIL],
            unknown=count[Verdict.UNKNOWN],
            waived=count["waived"],
            skipped=count["skipped"],
        )


def _kind(result: Result) -> str:
    if result.waived is not None:
        return "waived"
    return result.verdict if result.skipped is None else "skipped"


def evaluate(snapshot: Snapshot, rules: Iterable[Rule], terms: Terms = USUAL) -> Report:
    """Judge *snapshot* by *rules* on *terms*, which may name rules that are not among them."""
    results = (_judge(rule, snapshot, terms) for rule in rules)
    return Report(node=snapshot.node, captured_at=snapshot.captured_at, results=tuple(results))


def _judge(rule: Rule, snapshot: Snapshot, terms: Terms) -> Result:
    severity = terms.severities.get(rule.code, rule.severity)
    if (reason := rule.skips(snapshot)) is not None:
        return Result(rule=rule, severity=severity, verdict=Verdict.PASS, skipped=reason)
    found = judged(rule, rule.check(snapshot), rule.needs(snapshot), severity)
    if found.verdict is Verdict.PASS:
        return found
    return _excused(found, terms)


def _excused(found: Result, terms: Terms) -> Result:
    """Return *found* without the findings that are accepted, or waived where that is all of it."""
    code = found.rule.code
    expired = "; ".join(map(str, terms.expired(code))) or None
    waivers = terms.in_force(code)
    whole = [one for one in waivers if one.subject is None]
    accepted = {
        finding: waiver
        for finding in found.findings
        for waiver in reversed(waivers)
        if waiver.covers(finding)
    }
    left = tuple(finding for finding in found.findings if finding not in accepted)
    if whole or (accepted and not left and not found.missing):
        said = dict.fromkeys(map(str, whole or accepted.values()))
        return replace(found, waived="; ".join(said))
    if not accepted:
        return replace(found, expired=expired)
    rest = judged(found.rule, left, found.missing, found.severity)
    return replace(rest, accepted=tuple(accepted), expired=expired)


def judged(
    rule: Claim,
    findings: tuple[Finding, ...],
    missing: tuple[str, ...],
    severity: Severity,
) -> Result:
    """Return what *findings*, and what is *missing*, make of *rule*; each input is named once."""
    return Result(
        rule=rule,
        severity=severity,
        verdict=_verdict(severity, has_findings=bool(findings), is_complete=not missing),
        findings=findings,
        missing=tuple(dict.fromkeys(missing)),
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
            "skipped": counts.skipped,
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
        "skipped": result.skipped,
        "accepted": [to_plain(finding) for finding in result.accepted],
        "expired": result.expired,
        "hint": result.rule.remedy,
        "url": result.rule.url,
    }
