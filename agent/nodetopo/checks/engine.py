"""Evaluate rules on a snapshot and collect a report; rendering is the caller's."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.checks.rule import Claim, Finding, Missing, Rule, Severity, Skip, Verdict
from nodetopo.checks.waivers import NO_OVERRIDES, Overrides
from nodetopo.model.plain import to_plain
from nodetopo.model.snapshot import Snapshot

SCHEMA = "nodetopo/checks/v1"
"""Names the JSON shape of a report, described by ``docs/reference/schema/checks.json``."""

_BROKEN: Mapping[Severity, Verdict] = MappingProxyType(
    {Severity.ERROR: Verdict.FAIL, Severity.WARNING: Verdict.WARN},
)


class Result(Struct, frozen=True, kw_only=True):
    """The result of one rule.

    Attributes:
        severity: the rule's own, unless overridden.
        findings: also present on a pass when the severity is INFO: remarks.
        missing: inputs that the snapshot lacks; on a failed rule, what else is not known.
        waived: the reason given for accepting a verdict that is not a pass; the verdict
            itself stays what it is. ``None`` when nothing had to be waived.
        skipped: why the rule does not apply to this node; the verdict is then a pass.
        accepted: findings that a waiver covers, where others are left.
        expired: waivers that have expired, of a verdict that they would have covered.
        caution: known bugs of this kubelet that the remedy would bring about; ``None`` where it
            brings about none.
    """

    rule: Claim
    severity: Severity
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    missing: tuple[Missing, ...] = ()
    waived: str | None = None
    skipped: str | None = None
    accepted: tuple[Finding, ...] = ()
    expired: str | None = None
    caution: str | None = None

    @property
    def remedy(self) -> str:
        """The remedy for the findings on this node, with the caution."""
        parts = (self.rule.remedy, self.caution)
        return "; ".join(part for part in parts if part is not None)


class Summary(Struct, frozen=True, kw_only=True):
    """How many results there are of each kind; a waived one counts as waived only.

    Attributes:
        skipped: rules that do not apply to this node; they are not among the passed.
    """

    passed: int
    warned: int
    failed: int
    unknown: int
    waived: int
    skipped: int = 0


class MissingInputs(Struct, frozen=True, kw_only=True):
    """Inputs that were not there, all for the same *reasons*.

    Attributes:
        inputs: their names, in the order of the report.
        reasons: what kept them from being read; empty if that is not known.
        checks: codes of the rules that needed any of them.
    """

    inputs: tuple[str, ...]
    reasons: tuple[str, ...]
    checks: tuple[str, ...]


class Report(Struct, frozen=True, kw_only=True):
    """The results of some rules on one node, or on a cluster (then no *node*), in their order."""

    node: str | None
    captured_at: datetime | None
    results: tuple[Result, ...]

    @property
    def summary(self) -> Summary:
        """The counts, from which a command takes its exit code."""
        count: Counter[str] = Counter()
        for result in self.results:
            kind = result.verdict if result.skipped is None else "skipped"
            count[kind if result.waived is None else "waived"] += 1
        return Summary(
            passed=count[Verdict.PASS],
            warned=count[Verdict.WARN],
            failed=count[Verdict.FAIL],
            unknown=count[Verdict.UNKNOWN],
            waived=count["waived"],
            skipped=count["skipped"],
        )

    @property
    def missing(self) -> tuple[MissingInputs, ...]:
        """Missing inputs, each once, without those of waived results."""
        reasons: dict[str, dict[str, None]] = {}
        checks: dict[str, dict[str, None]] = {}
        for result in self.results:
            for part in result.missing if result.waived is None else ():
                reasons.setdefault(part.what, {}).update(
                    dict.fromkeys(filter(None, (part.reason,)))
                )
                checks.setdefault(part.what, {})[result.rule.code] = None
        alike: dict[tuple[str, ...], list[str]] = {}  # inputs that one failure took away
        for what, of_input in reasons.items():
            alike.setdefault(tuple(of_input) or (what,), []).append(what)
        order = [result.rule.code for result in self.results]
        return tuple(
            MissingInputs(
                inputs=tuple(inputs),
                reasons=tuple(reasons[inputs[0]]),
                checks=tuple(sorted({c for one in inputs for c in checks[one]}, key=order.index)),
            )
            for inputs in alike.values()
        )


def evaluate(snapshot: Snapshot, rules: Iterable[Rule], terms: Overrides = NO_OVERRIDES) -> Report:
    """Return the report of *rules*; *terms* may name rules that are not among them."""
    results = (_judge(rule, snapshot, terms) for rule in rules)
    return Report(node=snapshot.node, captured_at=snapshot.captured_at, results=tuple(results))


def _judge(rule: Rule, snapshot: Snapshot, terms: Overrides) -> Result:
    severity = terms.severities.get(rule.code, rule.severity)
    findings: list[Finding] = []
    missing: list[Missing] = []
    for part in rule.judge(snapshot):
        match part:
            case Skip():
                return Result(
                    rule=rule, severity=severity, verdict=Verdict.PASS, skipped=part.reason
                )
            case Missing():
                missing.append(part)
            case Finding():
                findings.append(part)
    result = judged(rule, tuple(findings), tuple(missing), severity)
    if findings and rule.cure is not None and rule.caution is not None:
        result = replace(result, caution=rule.caution(snapshot, rule.cure(snapshot)))
    return result if result.verdict is Verdict.PASS else _with_waivers(result, terms)


def _with_waivers(result: Result, terms: Overrides) -> Result:
    """Return *result* without the findings that are accepted, or waived where all of it is."""
    code = result.rule.code
    expired = "; ".join(map(str, terms.expired(code))) or None
    waivers = terms.in_force(code)
    of_all = [waiver for waiver in waivers if waiver.subject is None]
    accepted = {
        finding: waiver
        for finding in result.findings
        for waiver in reversed(waivers)
        if waiver.covers(finding)
    }
    left = tuple(finding for finding in result.findings if finding not in accepted)
    if of_all or (accepted and not left and not result.missing):
        reasons = dict.fromkeys(map(str, of_all or accepted.values()))
        return replace(result, waived="; ".join(reasons))
    if not accepted:
        return replace(result, expired=expired)
    rest = judged(result.rule, left, result.missing, result.severity)
    return replace(rest, accepted=tuple(accepted), expired=expired, caution=result.caution)


def judged(
    rule: Claim,
    findings: tuple[Finding, ...],
    missing: tuple[Missing, ...],
    severity: Severity,
) -> Result:
    """Return the result of *rule*; each missing input is named once.

    A proven finding outranks what is unknown beside it: the claim is broken either way.
    """
    verdict = Verdict.UNKNOWN if missing else Verdict.PASS
    if findings and severity in _BROKEN:
        verdict = _BROKEN[severity]
    return Result(
        rule=rule,
        severity=severity,
        verdict=verdict,
        findings=findings,
        missing=tuple(dict.fromkeys(missing)),
    )


def report_to_plain(report: Report) -> dict[str, Any]:
    """Return *report* in JSON's own types, as ``health -o json`` and ``audit -o json`` print it."""
    counts = report.summary
    return {
        "schema": SCHEMA,
        "node": report.node,
        "captured_at": to_plain(report.captured_at),
        "results": [
            {
                "id": result.rule.code,
                "area": result.rule.area.value,
                "claim": result.rule.claim,
                "verdict": result.verdict.value,
                "severity": result.severity.value,
                "findings": [to_plain(finding) for finding in result.findings],
                "missing": list(dict.fromkeys(part.what for part in result.missing)),
                "waived": result.waived,
                "skipped": result.skipped,
                "accepted": [to_plain(finding) for finding in result.accepted],
                "expired": result.expired,
                "hint": result.remedy,
                "url": result.rule.url,
            }
            for result in report.results
        ],
        "missing": [to_plain(inputs) for inputs in report.missing],
        "summary": {
            "pass": counts.passed,
            "warn": counts.warned,
            "fail": counts.failed,
            "unknown": counts.unknown,
            "waived": counts.waived,
            "skipped": counts.skipped,
        },
    }
