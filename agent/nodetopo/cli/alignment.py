"""Prints how pods with GPUs or HCAs are aligned, for ``audit``."""

from collections.abc import Iterable, Sequence
from typing import Any

from nodetopo.cli import output
from nodetopo.cli.output import Style
from nodetopo.components.audit.alignment.record import Alignment, PodAlignment, to_plain
from nodetopo.model.digits import is_digits

_HEAD = (
    "POD",
    "CONTAINER",
    "GPUS",
    "GPU",
    "CPU",
    "MEMORY",
    "HCA",
    "NVLINK",
    "VERDICT",
    "CAUSE",
)
_COLOURS = {
    Alignment.ALIGNED: "32",
    Alignment.MISALIGNED: "31",
    Alignment.UNKNOWN: "36",
}
"""SGR colours, the same as for rules."""

_UNKNOWN, _NONE = "?", "-"


def plain(rows: Iterable[PodAlignment]) -> list[dict[str, Any]]:
    """Return the measured alignment of pods in JSON's own types."""
    return [to_plain(row) for row in rows]


def text(rows: Sequence[PodAlignment], style: Style) -> str:
    """Return the measured alignment of pods as a table with a heading; empty without rows.

    The columns between GPUS and NVLINK hold NUMA nodes: ``*`` behind them means that the CPUs are
    shared, or that nothing binds the memory.
    """
    if not rows:
        return ""
    cells = [
        (
            f"{row.namespace}/{row.pod}",
            row.container,
            ",".join(_ranges(row.gpus)) or _NONE,
            _nodes(row.gpu_nodes) if row.gpus else _NONE,
            _nodes(row.cpu_nodes) + ("*" if row.has_own_cpus is False else ""),
            _nodes(row.memory_nodes) + ("*" if row.is_memory_bound is False else ""),
            _nodes(row.hca_nodes) if row.hcas else _NONE,
            _NONE if row.nvlink is None else row.nvlink.value,
            row.verdict.value,
            ", ".join(cause.code for cause in row.causes) or _NONE,
        )
        for row in rows
    ]
    head, *lines = output.table([_HEAD, *cells]).splitlines()
    painted = ["measured alignment, by NUMA node:", head]
    for line, row in zip(lines, rows, strict=True):
        word = row.verdict.value
        before, verdict, after = line.rpartition(f" {word} ")
        coloured = f"{before} {style.paint(word, _COLOURS[row.verdict])} {after}"
        painted.append(coloured if verdict else line)
    return "\n".join(painted) + "\n"


def _nodes(nodes: tuple[int, ...] | None) -> str:
    return _UNKNOWN if nodes is None else ",".join(map(str, nodes)) or _NONE


def _ranges(gpus: Sequence[str]) -> list[str]:
    """Return the names of GPUs, consecutive indices as ``0-3``; other names as they are."""
    ranges: list[str] = []
    first = last = -2
    for name in gpus:
        number = name.removeprefix("GPU")
        if not is_digits(number) or len(number) >= len("1000"):
            first = last = -2
            ranges.append(name)
            continue
        index = int(number)
        if index == last + 1:
            ranges[-1] = f"{first}-{index}"
        else:
            first = index
            ranges.append(str(index))
        last = index
    return ranges
