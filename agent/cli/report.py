"""Results of checks as text: grouped by area, one line a claim, then what broke it."""

from collections.abc import Iterator
from itertools import groupby

from agent.checks.engine import Report, Result, report_to_plain
from agent.checks.rule import Finding, Verdict
from agent.cli import render
from agent.cli.output import Answer
from agent.cli.render import Style, clean

_MARKS = {
    Verdict.PASS: ("✓", "32"),
    Verdict.WARN: ("!", "33"),
    Verdict.FAIL: ("✗", "31"),
    Verdict.UNKNOWN: ("?", "36"),
}
"""What a verdict looks like: a character, and the SGR colour it has on a terminal."""

_AREA_COLUMNS = 9
_WAIVED = "~"


def exit_code(report: Report, *, strict: bool) -> int:
    """Return 1 when a check failed (or warned, when *strict*), else 3 when one is unknown."""
    counts = report.summary
    if counts.failed or (strict and counts.warned):
        return 1
    return 3 if counts.unknown else 0


def answer(report: Report, style: Style) -> Answer:
    """Return *report* in all formats; the short one holds only what is not a pass."""
    problems = [result for result in report.results if not _is_fine(result)]
    return Answer(
        plain=report_to_plain(report),
        table="".join(_areas(report, style)) + _footer(report),
        short="".join(_short(result, style) for result in problems),
    )


def _is_fine(result: Result) -> bool:
    return result.verdict is Verdict.PASS or result.waived is not None


def _areas(report: Report, style: Style) -> Iterator[str]:
    for area, results in groupby(report.results, key=lambda result: result.rule.area):
        for position, result in enumerate(results):
            lead = render.pad("" if position else area.value, _AREA_COLUMNS)
            yield f"{lead}{_line(result, style)}\n"
            yield _details(result)


def _line(result: Result, style: Style) -> str:
    text = f"{_mark(result, style)} {result.rule.code} {clean(result.rule.claim)}"
    return f"{text} (waived: {clean(result.waived)})" if result.waived else text


def _mark(result: Result, style: Style) -> str:
    if result.waived:
        return _WAIVED
    mark, colour = _MARKS[result.verdict]
    return style.paint(mark, colour)


def _details(result: Result) -> str:
    indent = _AREA_COLUMNS + 4
    text = render.table(map(_finding, result.findings), indent=indent)
    if result.missing:
        text += f"{' ' * indent}not known: {clean(', '.join(result.missing))}\n"
    if not _is_fine(result) and result.findings:
        remedy = clean(result.rule.remedy)
        text += f"{' ' * indent}→ {remedy}; `nodetopo explain {result.rule.code}`\n"
    return text


def _finding(finding: Finding) -> tuple[str, str, str]:
    return (
        finding.subject,
        f"observed {finding.observed}",
        f"expected {finding.expected}",
    )


def _short(result: Result, style: Style) -> str:
    what = "; ".join(" ".join(_finding(finding)) for finding in result.findings)
    if not what:
        what = f"not known: {', '.join(result.missing)}"
    code = result.rule.code
    hint = f"→ `nodetopo explain {code}`"
    return f"{_mark(result, style)} {code} {clean(result.rule.claim)}: {clean(what)} {hint}\n"


def _footer(report: Report) -> str:
    counts = report.summary
    parts = [
        f"{counts.passed} passed",
        f"{counts.warned} warned",
        f"{counts.failed} failed",
        f"{counts.unknown} unknown",
    ]
    if counts.waived:
        parts.append(f"{counts.waived} waived")
    where = f"node {clean(report.node)}" if report.node else ""
    when = f"captured {report.captured_at:%Y-%m-%dT%H:%M:%SZ}" if report.captured_at else ""
    context = " · ".join(filter(None, (where, when)))
    return " · ".join(parts) + (f"   {context}" if context else "") + "\n"
