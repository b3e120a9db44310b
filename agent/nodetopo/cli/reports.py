"""The printed results of checks, for `health`, `audit`, `doctor` and the start page."""

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from types import MappingProxyType

from msgspec.structs import replace

from nodetopo.checks.engine import MissingInputs, Report, Result, report_to_plain
from nodetopo.checks.inputs import listed
from nodetopo.checks.rule import Finding, Verdict
from nodetopo.cli import output
from nodetopo.cli.output import Answer, Style, clean

_MARKS = {
    Verdict.PASS: ("✓", "32"),
    Verdict.WARN: ("!", "33"),
    Verdict.FAIL: ("✗", "31"),
    Verdict.UNKNOWN: ("?", "36"),
}
"""The character of each verdict, and its SGR colour on a terminal."""

_WAIVED, _SKIPPED = "~", "·"
_AREA_COLUMNS = 11

NO_CURES: Mapping[str, str] = MappingProxyType({})


def exit_code(report: Report, *, strict: bool) -> int:
    """Return 1 when a check failed (or warned, when *strict*), else 3 when one is unknown."""
    counts = report.summary
    if counts.failed or (strict and counts.warned):
        return 1
    return 3 if counts.unknown else 0


def answer(
    report: Report,
    style: Style,
    *,
    is_whole: bool = False,
    cures: Mapping[str, str] = NO_CURES,
    of_node: Collection[str] = (),
) -> Answer:
    """Return *report* in all formats; each missing input once, with the rules that it affects.

    The table lists what failed, warned, is unknown or waived, in this order, and counts the rest.

    Args:
        report: the results.
        style: of text.
        is_whole: list every rule in the table, by area.
        cures: by the cause of missing inputs.
        of_node: codes of rules that the table counts in one line.
    """
    node, rest = _parted(report, of_node)
    listed = [result for result in rest.results if not _is_merely_unknown(result)]
    if not is_whole:
        listed = sorted(filter(_needs_a_row, listed), key=_rank)
    rows = []
    for area, results in groupby(listed, key=lambda result: result.rule.area):
        for position, result in enumerate(results):
            lead = output.pad("" if position else area.value, _AREA_COLUMNS)
            rows.append(f"{lead}{_mark(result, style)} {_claim(result)}\n{_details(result)}")

    short = ""
    for result in report.results:
        if _is_fine(result) or result.verdict is Verdict.UNKNOWN:
            continue
        code = result.rule.code
        what = "; ".join(" ".join(_columns(finding)) for finding in result.findings)
        short += f"{_mark(result, style)} {code} {clean(result.rule.claim)}: {clean(what)} "
        short += f"→ `nodetopo explain {code}`\n"

    def unknown(part: Report) -> str:
        return "".join(_unknown(inputs, style, cures) for inputs in _alike(part.missing))

    return Answer(
        plain=report_to_plain(report),
        table="".join(rows) + unknown(rest) + _node_line(node) + _footer(rest, is_whole=is_whole),
        short=short + unknown(report),
    )


def _parted(report: Report, codes: Collection[str]) -> tuple[Report, Report]:
    """Return the part of *report* with the rules *codes*, and the rest."""
    inside = tuple(result for result in report.results if result.rule.code in codes)
    outside = tuple(result for result in report.results if result.rule.code not in codes)
    return replace(report, results=inside), replace(report, results=outside)


def _node_line(report: Report) -> str:
    """Return the counts of the rules about the node, with the codes of problems; or nothing."""
    if not report.results:
        return ""
    parts = [f"{report.summary.passed} passed"]
    for verdict, word in ((Verdict.WARN, "warned"), (Verdict.FAIL, "failed")):
        codes = [
            result.rule.code
            for result in report.results
            if result.verdict is verdict and result.waived is None
        ]
        parts += [f"{len(codes)} {word} ({', '.join(codes)})"] if codes else []
    if report.summary.unknown:
        parts.append(f"{report.summary.unknown} unknown")
    return f"node: {', '.join(parts)}; run `nodetopo audit` for them\n"


_OF = " of "
"""Stands between an input and the pod or the device that lacks it."""


def _alike(missing: Iterable[MissingInputs]) -> list[MissingInputs]:
    """Return *missing* with one entry for an input that many pods or devices lack.

    Those are of the same checks and reasons, and differ only in their names.
    """
    groups: dict[tuple[object, ...], list[MissingInputs]] = {}
    for inputs in missing:
        kinds = tuple(dict.fromkeys(name.partition(_OF)[0] for name in inputs.inputs))
        groups.setdefault((kinds, inputs.reasons, inputs.checks), []).append(inputs)
    return [
        replace(group[0], inputs=_shortened([name for one in group for name in one.inputs]))
        for group in groups.values()
    ]


def _shortened(inputs: Iterable[str]) -> tuple[str, ...]:
    """Return *inputs* with the names of one kind of input behind one another, the first few."""
    names: dict[str, list[str]] = {}
    for text in inputs:
        kind, of, name = text.partition(_OF)
        names.setdefault(f"{kind}{of}", []).append(name)
    return tuple(f"{kind}{listed(of_kind)}" for kind, of_kind in names.items())


def _unknown(inputs: MissingInputs, style: Style, cures: Mapping[str, str]) -> str:
    """Return the line about *inputs*: why they are missing, and which checks that affects."""
    reasons = "; ".join(inputs.reasons)
    text = ", ".join(inputs.inputs) + (f" ({reasons})" if reasons else "")
    line = f"{mark(Verdict.UNKNOWN, style)} not known: {clean(text)}: {', '.join(inputs.checks)}\n"
    for cause, cure in cures.items():
        if cause in reasons:
            line += f"  → {clean(cure)}\n"
    return line


def mark(verdict: Verdict, style: Style) -> str:
    """Return the character for *verdict*."""
    return style.paint(*_MARKS[verdict])


def finding_rows(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
    """Return *findings* as rows of a table."""
    return [_columns(finding) for finding in findings]


def _mark(result: Result, style: Style) -> str:
    if result.waived:
        return _WAIVED
    if result.skipped is not None:
        return _SKIPPED
    return mark(result.verdict, style)


def _claim(result: Result) -> str:
    """Return the code and the claim of a rule, with the reason where it was not decided."""
    text = f"{result.rule.code} {clean(result.rule.claim)}"
    if result.skipped is not None:
        return f"{text} (does not apply: {clean(result.skipped)})"
    return f"{text} (waived: {clean(result.waived)})" if result.waived else text


def _details(result: Result) -> str:
    """Return the lines below a claim: findings, waivers, missing inputs, and the remedy."""
    indent = _AREA_COLUMNS + 4
    text = output.table(map(_columns, result.findings), indent=indent)
    if result.accepted:
        subjects = ", ".join(finding.subject for finding in result.accepted)
        text += f"{' ' * indent}accepted: {clean(subjects)}\n"
    if result.expired is not None:
        text += f"{' ' * indent}waiver expired: {clean(result.expired)}\n"
    if not _is_fine(result) and result.findings:
        remedy = clean(result.remedy)
        text += f"{' ' * indent}→ {remedy}; `nodetopo explain {result.rule.code}`\n"
    return text


def _columns(finding: Finding) -> tuple[str, str, str]:
    return finding.subject, f"observed {finding.observed}", f"expected {finding.expected}"


def _is_fine(result: Result) -> bool:
    return result.verdict is Verdict.PASS or result.waived is not None


def _is_merely_unknown(result: Result) -> bool:
    is_unknown = result.verdict is Verdict.UNKNOWN and result.waived is None
    return is_unknown and not (result.findings or result.accepted or result.expired)


def _needs_a_row(result: Result) -> bool:
    return result.waived is not None or result.verdict is not Verdict.PASS


def _rank(result: Result) -> int:
    """Return the place of *result* in a list that begins with failures."""
    order = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)
    return len(order) if result.waived is not None else order.index(result.verdict)


def _footer(report: Report, *, is_whole: bool) -> str:
    counts = report.summary
    parts = [
        f"{counts.failed} failed",
        f"{counts.warned} warned",
        f"{counts.unknown} unknown",
    ]
    if counts.waived:
        parts.append(f"{counts.waived} waived")
    parts.append(f"{counts.passed} passed")
    if counts.skipped:
        parts.append(f"{counts.skipped} not applicable")
    if not is_whole and counts.passed + counts.skipped:
        parts[-1] += " (--all lists them)"
    where = f"node {clean(report.node)}" if report.node else ""
    when = f"captured {report.captured_at:%Y-%m-%dT%H:%M:%SZ}" if report.captured_at else ""
    context = " · ".join(filter(None, (where, when)))
    return " · ".join(parts) + (f"   {context}" if context else "") + "\n"
