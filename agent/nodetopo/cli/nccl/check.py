"""``nodetopo nccl check``: compares a bandwidth test's log with the node's expected bandwidth."""

from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nodetopo.allocation.measured import Operation
from nodetopo.allocation.requests import resolve
from nodetopo.checks.rule import Verdict
from nodetopo.cli import judging, output
from nodetopo.cli.bandwidth_table import measured_table, read_table
from nodetopo.cli.files import STDIO, read_text, reading
from nodetopo.cli.lists import device_names
from nodetopo.cli.output import Answer, clean, emit, note, warn
from nodetopo.cli.reports import finding_rows, mark
from nodetopo.cli.source import files_of, load
from nodetopo.cli.writing import write_text
from nodetopo.drawing.devices import find
from nodetopo.errors import InputError
from nodetopo.formats.signatures import Reader
from nodetopo.kernel.settings.data_files import MAX_YAML_BYTES
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.plain import to_plain
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.bandwidth.compare import Compared, Comparison, Explanation, compare
from nodetopo.tools.bandwidth.expectation import text as expectation
from nodetopo.tools.bandwidth.expectation import to_plain as expectation_to_plain
from nodetopo.tools.bandwidth.log import Log, Problem
from nodetopo.tools.bandwidth.read import read
from nodetopo.tools.bandwidth.table import Merged, merge

SCHEMA = "nodetopo/nccl-check/v1"
"""Names the JSON shape, described by ``docs/reference/schema/nccl-check.json``."""

MOST_LINES = 20
"""Pairs of one test that the table lists one by one; JSON has all."""


def run(args: Namespace) -> int:
    """Print the comparison; 1 if a figure or the test failed, 3 if one could not be compared.

    Raises:
        InputError: the log, a device or a table cannot be used.
    """
    sources = (*files_of(args), args.bandwidth_table)
    if args.file == STDIO and STDIO in sources:
        raise InputError("standard input can be read only once", "name one of the two files")
    if args.save == STDIO:
        raise InputError("a bandwidth table is kept in a file", "name one with --save FILE")
    text = read_text(args.file)
    with reading(args.file, text, Reader.LOG):
        log = read(text)
    snapshot = load(args, in_full=True)
    gpus, hcas = devices(snapshot, args.gpus, args.hca)
    table = measured_table(args, snapshot)
    comparison = compare(
        log,
        snapshot,
        gpus=gpus,
        hcas=hcas,
        measured=None if table is None else table.on(snapshot),
        table=f"bandwidth table {args.bandwidth_table}",
        operation=table.operation if table else Operation.ALL_REDUCE,
        terms=judging.overrides(args),
    )
    saved = None if args.save is None else _save(args, log, comparison, snapshot)
    emit(_answer(log, comparison, snapshot, args, saved), args)
    return _exit_code(log, comparison, strict=args.strict)


def devices(
    snapshot: Snapshot, gpus: Sequence[str], hcas: Sequence[str]
) -> tuple[tuple[Gpu, ...], tuple[Hca, ...]]:
    """Return the devices that ``--gpus`` and ``--hca`` name.

    Raises:
        InputError: one is unknown, or of another kind.
    """
    found_gpus = [resolve(snapshot, name) for name in device_names(gpus)]
    if len({gpu.index for gpu in found_gpus}) < len(found_gpus):
        raise InputError("--gpus names a GPU twice", "name each once")
    found_hcas = []
    for name in device_names(hcas):
        device = find(snapshot, name)
        if not isinstance(device, Hca):
            raise InputError(f"{name} is no HCA", "name one as sysfs does, e.g. mlx5_0")
        found_hcas.append(device)
    return tuple(found_gpus), tuple(found_hcas)


def _save(args: Namespace, log: Log, comparison: Comparison, snapshot: Snapshot) -> Merged:
    """Write the figures to the table ``--save``; report replaced and omitted ones.

    Raises:
        InputError: it cannot be read or written, or belongs to another machine.
    """
    name: str = args.save
    before = None
    if Path(name).exists():
        before = read_table(
            name, snapshot, "save to another file: this table is of another machine"
        )
    merged = merge(comparison.figures, snapshot, log.tool, before)
    for reason in merged.left_out:
        note("note", f"not saved: {reason}")
    if "pairs" not in merged.document and "sets" not in merged.document:
        warn(args, f"{name} not written: the log holds no figure for a bandwidth table")
        return merged
    for change in merged.replaced:
        gpus = ", ".join(change.gpus)
        note("note", f"{name}: {gpus} was {change.before:g} GB/s, now {change.after:g}")
    if merged.suspect:
        plural = "" if merged.suspect == 1 else "s"
        warn(args, f"{name} holds {merged.suspect} figure{plural} of devices that fell short")
    write_text(name, _document(name, merged))
    kept = f", {merged.kept} kept" if merged.kept else ""
    counts = f"{merged.added} added, {len(merged.replaced)} replaced{kept}"
    note("note", f"{name}: {counts}; use it with --bandwidth-table")
    return merged


def _document(name: str, merged: Merged) -> str:
    if name.endswith(".json"):
        return output.json_text(dict(merged.document))
    document = dict(merged.document)
    text = output.yaml_text(document, default_flow_style=None)
    if len(text) > MAX_YAML_BYTES:
        raise InputError(f"{name} would be too large as YAML", "name a file that ends in .json")
    return text


def _exit_code(log: Log, comparison: Comparison, *, strict: bool) -> int:
    verdicts = {result.verdict for result in comparison.figures}
    if Verdict.FAIL in verdicts or any(problem.is_error for problem in log.problems):
        return 1
    if strict and (Verdict.WARN in verdicts or log.problems):
        return 1
    lacks = not comparison.figures or any(problem.is_missing for problem in log.problems)
    return 3 if lacks or Verdict.UNKNOWN in verdicts else 0


def _verdict(problem: Problem) -> Verdict:
    if problem.is_missing:
        return Verdict.UNKNOWN
    return Verdict.FAIL if problem.is_error else Verdict.WARN


# The answer.


def _answer(
    log: Log,
    comparison: Comparison,
    snapshot: Snapshot,
    args: Namespace,
    merged: Merged | None,
) -> Answer:
    style = output.style(no_color=args.no_color)
    head = f"{log.tool}: {len(log.figures)} figure{'' if len(log.figures) == 1 else 's'}"
    head += f" on node {clean(snapshot.node)}\n" if snapshot.node else "\n"
    rows = list(_rows(comparison.figures))
    width = max((len(output.clean(row[1])) for row in rows), default=0)
    listed = ""
    for verdict, name, text, more in rows:
        listed += f"{mark(verdict, style)} {output.pad(clean(name), width + 2)}{clean(text)}\n"
        listed += "".join(f"    {clean(line)}\n" for line in more)
    problems = "".join(
        f"{mark(_verdict(problem), style)} line {problem.line}: {clean(problem.text)}\n"
        for problem in log.problems
    )
    others = f"not compared: {clean(', '.join(log.others))}\n" if log.others else ""
    causes = _causes(comparison, args)
    short = "".join(
        f"{mark(verdict, style)} {clean(name)}: {clean(text)}\n"
        for verdict, name, text, _ in rows
        if verdict.value != "pass"
    )
    short += problems
    short += "".join(
        f"  explained by {cause.result.rule.code} {clean(cause.result.rule.claim)} "
        f"→ `nodetopo explain {cause.result.rule.code}`\n"
        for cause in comparison.explanations
    )
    if not log.figures:
        is_there = log.others or any(problem.is_missing for problem in log.problems)
        listed = "no figure\n" if is_there else "no figure: the test printed no result\n"
    return Answer(
        plain=_plain(log, comparison, snapshot, args, merged),
        table=head + listed + problems + others + causes,
        short=short or ("" if log.figures else listed),
    )


def _rows(figures: Iterable[Compared]) -> Iterator[tuple[Any, str, str, tuple[str, ...]]]:
    """Yield verdict, name, text and more lines; pairs of a test that pass, as one row."""

    def alike(result: Compared) -> tuple[str, str, str, str]:
        shown = expectation(result.expected)
        return (
            result.figure.test,
            result.figure.kind.value,
            result.host or "",
            f"{result.verdict}{shown}{result.reason}",
        )

    ordered = (
        sorted(figures, key=alike) if len({alike(result) for result in figures}) > 1 else figures
    )
    for _, group in groupby(ordered, key=alike):
        same = list(group)
        first = same[0]
        where = "" if first.host is None else f" on {first.host}"
        is_many = len(same) > 1 and first.figure.kind.value in ("pair", "host")
        if is_many and (first.verdict in (Verdict.PASS, Verdict.UNKNOWN)):
            speeds = [result.figure.gb_per_s for result in same]
            what = "pairs" if first.figure.kind.value == "pair" else "GPUs"
            low, high = f"{min(speeds):.1f}", f"{max(speeds):.1f}"
            span = f"{low} GB/s" if low == high else f"{low} to {high} GB/s"
            name = f"{first.figure.test} {len(same)} {what}{where}"
            yield first.verdict, name, _beside(first, span), ()
            continue
        for result in same[:MOST_LINES]:
            name = f"{result.figure.test} {_devices(result)}{where}"
            text = _beside(result, f"{result.figure.gb_per_s:.1f} GB/s")
            yield result.verdict, name, text, tuple(_more(result))
        if len(same) > MOST_LINES:
            count = len(same) - MOST_LINES
            yield (
                first.verdict,
                f"{first.figure.test} {count} more{where}",
                "-o json lists them",
                (),
            )


def _beside(result: Compared, measured: str) -> str:
    if result.expected.low is None:
        return f"{measured}, not compared: {result.reason}"
    text = f"{measured}, expected {expectation(result.expected)}"
    gate = result.expected.gate_of(result.figure.size)
    if gate is not None and result.verdict.value in ("fail", "warn"):
        text += f", fails below {gate:.1f}"
    return f"{text} ({result.reason})" if result.reason else text


def _more(result: Compared) -> Iterator[str]:
    if result.verdict.value == "pass":
        return
    if result.now is not None:
        yield f"as the node is now: {expectation(result.now)}"
    if result.checks:
        yield f"explained by {', '.join(result.checks)}"


def _devices(result: Compared) -> str:
    names = [gpu.name for gpu in result.gpus]
    if len(names) > 4 and names == [f"GPU{gpu.index}" for gpu in result.gpus]:
        indices = sorted(gpu.index for gpu in result.gpus)
        if indices == list(range(indices[0], indices[-1] + 1)):
            names = [f"GPU{indices[0]} to GPU{indices[-1]}"]
    if result.hca is not None:
        names.append(result.hca.name)
    if not names:
        count = len(result.figure.gpus)
        return result.figure.hca or f"{count or 'unnamed'} GPU{'' if count == 1 else 's'}"
    return ", ".join(names)


def _causes(comparison: Comparison, args: Namespace) -> str:
    """Return the causes of the shortfalls, and the checks without a verdict."""
    short = [figure for figure in comparison.figures if figure.verdict.value in ("fail", "warn")]
    if comparison.report is None or not short:
        return ""
    style = output.style(no_color=args.no_color)
    text = "\nexplained by\n" if comparison.explanations else ""
    for cause in comparison.explanations:
        rule = cause.result.rule
        text += f"{mark(cause.result.verdict, style)} {rule.code} {clean(rule.claim)}\n"
        text += output.table(finding_rows(cause.findings), indent=4)
        text += f"    → {clean(cause.result.remedy)}; `nodetopo explain {rule.code}`\n"
    if not text:
        text = "\nno check of this node explains it\n"
    for inputs in comparison.report.missing:
        why = f" ({'; '.join(inputs.reasons)})" if inputs.reasons else ""
        names = f"{', '.join(inputs.inputs)}{why}"
        text += f"? not known: {clean(names)}: {', '.join(inputs.checks)}\n"
    return text


def _plain(
    log: Log,
    comparison: Comparison,
    snapshot: Snapshot,
    args: Namespace,
    merged: Merged | None,
) -> dict[str, Any]:
    counts = Counter(figure.verdict.value for figure in comparison.figures)
    report = comparison.report
    return {
        "schema": SCHEMA,
        "node": snapshot.node,
        "tool": log.tool,
        "figures": [_figure(figure) for figure in comparison.figures],
        "problems": [
            {
                "line": problem.line,
                "text": problem.text,
                "verdict": _verdict(problem).value,
            }
            for problem in log.problems
        ],
        "not_compared": list(log.others),
        "checks": [_check(result) for result in comparison.explanations],
        "missing": [] if report is None else [to_plain(inputs) for inputs in report.missing],
        "saved": None
        if merged is None
        else {
            "file": args.save,
            "added": merged.added,
            "replaced": [
                {
                    "gpus": list(figure.gpus),
                    "before_gb_per_s": figure.before,
                    "gb_per_s": figure.after,
                }
                for figure in merged.replaced
            ],
            "kept": merged.kept,
            "left_out": list(merged.left_out),
        },
        "summary": {name: counts[name] for name in ("pass", "warn", "fail", "unknown")},
    }


def _figure(result: Compared) -> dict[str, Any]:
    return {
        "test": result.figure.test,
        "kind": result.figure.kind.value,
        "gpus": [gpu.name for gpu in result.gpus],
        "hca": None if result.hca is None else result.hca.name,
        "hosts": list(result.figure.hosts),
        "line": result.figure.line,
        "bytes": result.figure.size,
        "gb_per_s": round(result.figure.gb_per_s, 2),
        "verdict": result.verdict.value,
        "reason": result.reason,
        "expected": expectation_to_plain(result.expected),
        "now": None if result.now is None else expectation_to_plain(result.now),
        "checks": list(result.checks),
    }


def _check(explanation: Explanation) -> dict[str, Any]:
    return {
        "id": explanation.result.rule.code,
        "claim": explanation.result.rule.claim,
        "verdict": explanation.result.verdict.value,
        "findings": [to_plain(finding) for finding in explanation.findings],
        "hint": explanation.result.remedy,
        "url": explanation.result.rule.url,
    }
