"""What `health` and `audit` share: choose rules, run them, print, tell by the exit status."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from agent.checks.alignment.record import Alignment, NvlinkSpan, PodAlignment, to_plain
from agent.checks.catalogue import select
from agent.checks.engine import Report, Result, evaluate, report_to_plain
from agent.checks.rule import Finding, Rule, Verdict
from agent.checks.waivers import USUAL, Terms
from agent.cli import output
from agent.cli.output import Answer, Style, clean, emit
from agent.cli.source import settings
from agent.errors import InputError
from agent.model.snapshot import Snapshot

# Results of checks as text: grouped by area, one line a claim, then what broke it.

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
            lead = output.pad("" if position else area.value, _AREA_COLUMNS)
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
    text = output.table(map(_finding, result.findings), indent=indent)
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


# What running pods really got, as a table for people and as JSON.

_HEAD = ("POD", "CONTAINER", "GPUS", "GPU", "CPU", "MEMORY", "HCA", "NVLINK", "VERDICT", "CAUSE")


_COLOURS = {
    Alignment.ALIGNED: "32",
    Alignment.MISALIGNED: "31",
    Alignment.UNKNOWN: "36",
}
"""SGR colours, those of the verdicts of rules."""


_UNKNOWN = "?"


_NONE = "-"


def text(rows: Sequence[PodAlignment], style: Style) -> str:
    """Return the table, with a heading; empty without rows.

    The columns between GPUS and NVLINK hold NUMA nodes: ``*`` behind them means that the CPUs are
    shared, or that nothing binds the memory.
    """
    if not rows:
        return ""
    table = output.table([_HEAD, *map(_row, rows)])
    head, *lines = table.splitlines()
    painted = (_painted(line, row, style) for line, row in zip(lines, rows, strict=True))
    return "\n".join(["measured alignment, by NUMA node:", head, *painted]) + "\n"


def plain(rows: Iterable[PodAlignment]) -> list[dict[str, Any]]:
    """Return the rows in JSON's own types."""
    return [to_plain(row) for row in rows]


def _row(row: PodAlignment) -> tuple[str, ...]:
    return (
        f"{row.namespace}/{row.pod}",
        row.container,
        ",".join(_runs(row.gpus)) or _NONE,
        _nodes(row.gpu_nodes) if row.gpus else _NONE,
        _nodes(row.cpu_nodes) + ("*" if row.has_own_cpus is False else ""),
        _nodes(row.memory_nodes) + ("*" if row.is_memory_bound is False else ""),
        _nodes(row.hca_nodes) if row.hcas else _NONE,
        _nvlink(row),
        row.verdict.value,
        ", ".join(cause.code for cause in row.causes) or _NONE,
    )


def _painted(line: str, row: PodAlignment, style: Style) -> str:
    word = row.verdict.value
    before, found, after = line.rpartition(f" {word} ")
    return f"{before} {style.paint(word, _COLOURS[row.verdict])} {after}" if found else line


def _nodes(nodes: tuple[int, ...] | None) -> str:
    return _UNKNOWN if nodes is None else ",".join(map(str, nodes)) or _NONE


def _nvlink(row: PodAlignment) -> str:
    match row.nvlink:
        case NvlinkSpan.ALL | NvlinkSpan.SOME | NvlinkSpan.NONE:
            return row.nvlink.value
        case None:
            return _NONE


def _runs(gpus: Sequence[str]) -> Iterator[str]:
    """Yield names of GPUs, those that follow each other as ``0-3``."""
    run: list[int] = []
    for name in gpus:
        number = name.removeprefix("GPU")
        index = int(number) if number.isdecimal() and len(number) < len("1000") else None
        if run and index == run[-1] + 1:
            run.append(index)
            continue
        if run:
            yield _run(run)
        run = [] if index is None else [index]
        if index is None:
            yield name
    if run:
        yield _run(run)


def _run(run: Sequence[int]) -> str:
    return f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])


def selected(rules: Sequence[Rule], only: Sequence[str], command: str) -> Sequence[Rule]:
    """Return those of *rules* that ``--only`` names; all of them when it was not given.

    Raises:
        InputError: a name is unknown, or none of this command's rules has it.
    """
    names = [name for argument in only for name in argument.split(",")]
    if not names:
        return rules
    found = select(rules, names)
    if not found:
        areas = ", ".join(dict.fromkeys(rule.area.value for rule in rules))
        raise InputError(f"`{command}` checks nothing about {', '.join(names)}", f"try: {areas}")
    return found


def _as_it_is(answer: Answer) -> Answer:
    return answer


def judge(
    snapshot: Snapshot,
    rules: Sequence[Rule],
    args: Namespace,
    add: Callable[[Answer], Answer] = _as_it_is,
) -> int:
    """Print the report of *rules* on *snapshot* and return the exit status.

    *add* puts into the answer what the command has to say beside the rules.
    """
    result = evaluate(snapshot, rules, _terms(args))
    emit(add(answer(result, output.style(no_color=args.no_color))), args)
    code = exit_code(result, strict=args.strict)
    return 3 if code == 0 and args.incomplete else code


def _terms(args: Namespace) -> Terms:
    path = settings(args).checks_file
    if path is None:
        return USUAL
    from agent.config.data_files import load_checks  # noqa: PLC0415 - loads yaml

    return load_checks(path, datetime.now(UTC).date())
