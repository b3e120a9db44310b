"""Results of checks as text: grouped by area, one line a claim, then what broke it."""

from collections.abc import Iterable, Iterator
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

_AREA_COLUMNS = 11
_WAIVED = "~"
_SKIPPED = "·"


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
        short="".join((*_broken(problems, style), *_unknown(problems, style))),
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
    if result.skipped is not None:
        return f"{text} (does not apply: {clean(result.skipped)})"
    if _is_merely_unknown(result):
        return f"{text} (not known: {_missing(result)})"
    return f"{text} (waived: {clean(result.waived)})" if result.waived else text


def _mark(result: Result, style: Style) -> str:
    if result.waived:
        return _WAIVED
    if result.skipped is not None:
        return _SKIPPED
    mark, colour = _MARKS[result.verdict]
    return style.paint(mark, colour)


def _details(result: Result) -> str:
    indent = _AREA_COLUMNS + 4
    text = render.table(map(_finding, result.findings), indent=indent)
    if result.accepted:
        subjects = ", ".join(finding.subject for finding in result.accepted)
        text += f"{' ' * indent}accepted: {clean(subjects)}\n"
    if result.expired is not None:
        text += f"{' ' * indent}waiver expired: {clean(result.expired)}\n"
    if result.missing and not _is_merely_unknown(result):
        text += f"{' ' * indent}not known: {_missing(result)}\n"
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


def _is_merely_unknown(result: Result) -> bool:
    is_unknown = result.verdict is Verdict.UNKNOWN and result.waived is None
    return is_unknown and not (result.findings or result.accepted or result.expired)


def _missing(result: Result) -> str:
    return clean(", ".join(result.missing))


def _broken(problems: Iterable[Result], style: Style) -> Iterator[str]:
    for result in problems:
        if result.verdict is not Verdict.UNKNOWN:
            yield _short(result, style)


def _short(result: Result, style: Style) -> str:
    what = "; ".join(" ".join(_finding(finding)) for finding in result.findings)
    code = result.rule.code
    hint = f"→ `nodetopo explain {code}`"
    return f"{_mark(result, style)} {code} {clean(result.rule.claim)}: {clean(what)} {hint}\n"


def _unknown(problems: Iterable[Result], style: Style) -> Iterator[str]:
    """Yield one line for each thing that is missing, with the codes of all that need it."""
    codes: dict[str, list[str]] = {}
    for result in problems:
        if result.verdict is Verdict.UNKNOWN:
            codes.setdefault(_missing(result), []).append(result.rule.code)
    mark, colour = _MARKS[Verdict.UNKNOWN]
    for missing, needing in codes.items():
        yield f"{style.paint(mark, colour)} not known: {missing}: {', '.join(needing)}\n"


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
    if counts.skipped:
        parts.append(f"{counts.skipped} do not apply")
    where = f"node {clean(report.node)}" if report.node else ""
    when = f"captured {report.captured_at:%Y-%m-%dT%H:%M:%SZ}" if report.captured_at else ""
    context = " · ".join(filter(None, (where, when)))
    return " · ".join(parts) + (f"   {context}" if context else "") + "\n"
