"""Traces as CSV files: our own format, and those of public traces as they are."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from math import nan
from types import MappingProxyType

from agent.cli.simulate.trace_words import counted
from agent.errors import InputError

WHOLE_GPU = 1000
"""``gpu_milli`` of a pod that has its GPUs to itself (alibaba/clusterdata, openb)."""

OWN_FORMAT = "arrival_s,duration_s,gpus"

MOST_SECONDS = 10**10
"""The largest number in a row: 317 years. Sums of numbers near 1e308 are infinite."""

MOST_COUNTED = 10**9
"""The largest count in a row, far above the jobs of any trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """What one file tells; an empty tuple where it says nothing of it.

    Attributes:
        jobs: (arrival in seconds or ``None``, run time in seconds, GPUs), in the file's order.
        sizes: (GPUs, how many jobs).
        run_times: quantiles, (share of jobs, seconds), ascending.
        skipped: why a row was left out → how many were.
    """

    name: str
    jobs: tuple[tuple[float | None, float, int], ...] = ()
    sizes: tuple[tuple[int, float], ...] = ()
    run_times: tuple[tuple[float, float], ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)


class _Row:
    """One row by column name; every complaint says where it stands."""

    def __init__(self, name: str, line: int, cells: Mapping[str, str]) -> None:
        self._name = name
        self._line = line
        self._cells = cells

    def has(self, column: str) -> bool:
        """Return whether the cell holds anything."""
        return bool(self._cells.get(column, "").strip())

    def number(self, column: str) -> float:
        """Return the cell as a number from 0 to :data:`MOST_SECONDS`."""
        return self._within(column, MOST_SECONDS)

    def count(self, column: str) -> int:
        """Return the cell as a whole number from 0 to :data:`MOST_COUNTED`."""
        return int(self._within(column, MOST_COUNTED, is_whole=True))

    def _within(self, column: str, most: int, *, is_whole: bool = False) -> float:
        text = self._cells[column].strip()
        try:
            value = float(text)
        except ValueError:
            value = nan
        if not 0 <= value <= most or (is_whole and not value.is_integer()):
            kind = "whole number" if is_whole else "number"
            raise self.wrong(f"{column}: not a {kind} from 0 to {most:,}: {text[:40]!r}")
        return value

    def wrong(self, problem: str) -> InputError:
        """Return the error for this row."""
        return InputError(f"{self._name} line {self._line}: {problem}", "correct or remove the row")


def parse(name: str, text: str) -> TraceFile:
    """Return what the CSV *text* of the file *name* tells; the header says which format it is.

    Raises:
        InputError: the header is not known, a row is wrong, or no row can be used.
    """
    lines = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        header = [column.strip().lower() for column in next(lines, [])]
        reader = next((one for columns, one in _FORMATS.items() if columns <= set(header)), None)
        if reader is None:
            raise _unknown(name, header)
        found = reader(name, list(_rows(name, header, lines)))
    except csv.Error as error:
        raise InputError(f"{name} line {lines.line_num}: {error}", "correct the row") from None
    if not (found.jobs or found.sizes or found.run_times):
        raise InputError(f"{name}: no job that can be used{_why(found)}", "name another file")
    return found


def _unknown(name: str, header: list[str]) -> InputError:
    seen = ", ".join(header)[:80] or "nothing"
    known = "; ".join(",".join(sorted(columns)) for columns in _FORMATS)
    return InputError(
        f"{name} line 1: not the header of a trace: {seen}",
        f"begin with {OWN_FORMAT}; also read: {known}",
    )


def _why(found: TraceFile) -> str:
    return "".join(
        f", {counted(count, 'row')}: {reason}" for reason, count in found.skipped.items()
    )


def _rows(name: str, header: list[str], lines: Iterator[list[str]]) -> Iterator[_Row]:
    for cells in lines:
        line: int = lines.line_num  # type: ignore[attr-defined] # of csv's reader, which has no name
        if not cells:
            continue
        if len(cells) != len(header):
            raise InputError(
                f"{name} line {line}: {len(cells)} columns, the header has {len(header)}",
                "correct or remove the row",
            )
        yield _Row(name, line, dict(zip(header, cells, strict=True)))


def _own(name: str, rows: list[_Row]) -> TraceFile:
    skipped: Counter[str] = Counter()
    jobs = []
    for row in rows:
        gpus = row.count("gpus")
        job = (
            row.number("arrival_s") if row.has("arrival_s") else None,
            row.number("duration_s"),
            gpus,
        )
        if gpus == 0:
            skipped["no GPU asked for"] += 1
        else:
            jobs.append(job)
    return TraceFile(name=name, jobs=tuple(jobs), skipped=skipped)


def _pods(name: str, rows: list[_Row]) -> TraceFile:
    """Read pods of alibaba/clusterdata's openb list with their times."""
    skipped: Counter[str] = Counter()
    jobs = []
    for row in rows:
        if reason := _not_whole(row):
            skipped[reason] += 1
        elif not (row.has("scheduled_time") and row.has("deletion_time")):
            skipped["never started, or no end known"] += 1
        else:
            seconds = row.number("deletion_time") - row.number("scheduled_time")
            if seconds < 0:
                raise row.wrong("deletion_time is before scheduled_time")
            jobs.append((row.number("creation_time"), seconds, row.count("num_gpu")))
    return TraceFile(name=name, jobs=tuple(jobs), skipped=skipped)


def _pod_sizes(name: str, rows: list[_Row]) -> TraceFile:
    """Read pods of which only the sizes are known."""
    skipped: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    for row in rows:
        if reason := _not_whole(row):
            skipped[reason] += 1
        else:
            sizes[row.count("num_gpu")] += 1
    return TraceFile(name=name, sizes=_sorted(sizes), skipped=skipped)


def _not_whole(row: _Row) -> str | None:
    if row.count("num_gpu") == 0:
        return "no GPU asked for"
    if row.has("gpu_milli") and row.number("gpu_milli") < WHOLE_GPU:
        return "a fraction of a GPU"
    return None


def _counted_sizes(name: str, rows: list[_Row]) -> TraceFile:
    skipped: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    for row in rows:
        gpus, jobs = row.count("gpus"), row.count("jobs")
        if gpus == 0:
            skipped["no GPU asked for"] += 1
        elif jobs:
            sizes[gpus] += jobs
    return TraceFile(name=name, sizes=_sorted(sizes), skipped=skipped)


def _quantiles(name: str, rows: list[_Row]) -> TraceFile:
    points: list[tuple[float, float]] = []
    for row in rows:
        point = row.number("quantile"), row.number("seconds")
        if point[0] > 1:
            raise row.wrong("quantile: above 1")
        if points and (point[0] < points[-1][0] or point[1] < points[-1][1]):
            raise row.wrong("quantiles must ascend, and so must their seconds")
        points.append(point)
    return TraceFile(name=name, run_times=tuple(points))


def _sorted(sizes: Mapping[int, int]) -> tuple[tuple[int, float], ...]:
    return tuple(sorted(sizes.items()))


_FORMATS: Mapping[frozenset[str], Callable[[str, list[_Row]], TraceFile]] = MappingProxyType(
    {
        frozenset({"duration_s", "gpus"}): _own,
        frozenset({"num_gpu", "creation_time", "scheduled_time", "deletion_time"}): _pods,
        frozenset({"num_gpu"}): _pod_sizes,
        frozenset({"gpus", "jobs"}): _counted_sizes,
        frozenset({"quantile", "seconds"}): _quantiles,
    },
)
"""Columns that a format needs → how to read it; the first that fits counts, others are ignored."""
