"""What running pods really got, as a table for people and as JSON."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent.checks.alignment.record import Alignment, NvlinkSpan, PodAlignment, to_plain
from agent.cli import render
from agent.cli.render import Style

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
    table = render.table([_HEAD, *map(_row, rows)])
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
