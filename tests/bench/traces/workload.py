"""The jobs that a simulated trace is made of: from files, or built in."""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from math import nan
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.errors import InputError
from nodetopo.model.digits import number
from tests.bench.traces.jobs import (
    PHILLY,
    Job,
    Mix,
    Quantiles,
    Recorded,
    RunTimes,
    Uniform,
    Workload,
    offered_load,
    poisson,
)

# Words of a simulated trace.


def counted(count: int, what: str) -> str:
    """Return *count* of *what*, in the plural unless it is one: "1 job", "2,000 jobs"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


# Traces as CSV files: our format, and public traces unchanged.

WHOLE_GPU = 1000
"""``gpu_milli`` of a pod that has its GPUs to itself (alibaba/clusterdata, openb)."""


OWN_FORMAT = "arrival_s,duration_s,gpus"


MOST_SECONDS = 10**10
"""The largest number in a row: 317 years. Sums of numbers near 1e308 are infinite."""


MOST_COUNTED = 10**9
"""The largest count in a row, far above the jobs of any trace."""


MAX_LINE = 1 << 16
"""Characters of a line; lines of public traces have a few hundred."""


MAX_TRACE_ROWS = 1_000_000
"""Rows of a trace, which is twelve times the Philly trace's jobs and some 200 MiB of memory."""

MAX_QUANTILES = 10_000
"""Points of a distribution of run times; each drawn run time searches them from the start."""


class TraceFile(Struct, frozen=True, kw_only=True):
    """The contents of one file; an empty tuple for missing parts.

    Attributes:
        jobs: (arrival in seconds or ``None``, run time in seconds, GPUs), in the file's order.
        sizes: (GPUs, number of jobs).
        run_times: quantiles, (share of jobs, seconds), ascending.
        skipped: reason for leaving rows out → number of rows.
    """

    name: str
    jobs: tuple[tuple[float | None, float, int], ...] = ()
    sizes: tuple[tuple[int, float], ...] = ()
    run_times: tuple[tuple[float, float], ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)


class _Row:
    """One row by column name; every error includes its position."""

    def __init__(self, name: str, line: int, cells: Mapping[str, str]) -> None:
        self._name = name
        self._line = line
        self._cells = cells

    def has(self, column: str) -> bool:
        """Return whether the cell is filled."""
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
            value = number(text)
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
    """Return the content of the CSV *text* of the file *name*, by the format in its header.

    Raises:
        InputError: the header is unknown, a row is invalid, or no row is usable.
    """
    if text.count("\n") > MAX_TRACE_ROWS + 1:  # counted in no time, before any row is built
        cure = "split the file, or take every second job"
        raise InputError(f"{name}: more than {MAX_TRACE_ROWS:,} rows", cure)
    lines = csv.reader(_lines(name, text), strict=True)
    try:
        header = [column.strip().lower() for column in next(lines, [])]
        reader = next((one for columns, one in _FORMATS.items() if columns <= set(header)), None)
        if reader is None:
            seen = ", ".join(header)[:80] or "nothing"
            known = "; ".join(",".join(sorted(columns)) for columns in _FORMATS)
            raise InputError(
                f"{name} line 1: not the header of a trace: {seen}",
                f"begin with {OWN_FORMAT}; also read: {known}",
            )
        found = reader(name, _rows(name, header, lines))
    except csv.Error as error:
        raise InputError(f"{name} line {lines.line_num}: {error}", "correct the row") from None
    if not (found.jobs or found.sizes or found.run_times):
        why = "".join(
            f", {counted(count, 'row')}: {reason}" for reason, count in found.skipped.items()
        )
        raise InputError(f"{name}: no job that can be used{why}", "name another file")
    return found


def _lines(name: str, text: str) -> Iterator[str]:
    for line_number, line in enumerate(StringIO(text, newline=""), 1):
        if len(line) > MAX_LINE:
            problem = f"{len(line):,} characters, of which {MAX_LINE:,} are read at most"
            raise InputError(f"{name} line {line_number}: {problem}", "name a trace")
        yield line


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


def _own(name: str, rows: Iterable[_Row]) -> TraceFile:
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


def _pods(name: str, rows: Iterable[_Row]) -> TraceFile:
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


def _pod_sizes(name: str, rows: Iterable[_Row]) -> TraceFile:
    """Read pods with known sizes but no times."""
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


def _counted_sizes(name: str, rows: Iterable[_Row]) -> TraceFile:
    skipped: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    for row in rows:
        gpus, jobs = row.count("gpus"), row.count("jobs")
        if gpus == 0:
            skipped["no GPU asked for"] += 1
        elif jobs:
            sizes[gpus] += jobs
    return TraceFile(name=name, sizes=_sorted(sizes), skipped=skipped)


def _quantiles(name: str, rows: Iterable[_Row]) -> TraceFile:
    points: list[tuple[float, float]] = []
    for row in rows:
        point = row.number("quantile"), row.number("seconds")
        if point[0] > 1:
            raise row.wrong("quantile: above 1")
        if points and (point[0] < points[-1][0] or point[1] < points[-1][1]):
            raise row.wrong("quantiles must ascend, and so must their seconds")
        points.append(point)
        if len(points) > MAX_QUANTILES:
            raise row.wrong(f"more than {MAX_QUANTILES:,} quantiles")
    return TraceFile(name=name, run_times=tuple(points))


def _sorted(sizes: Mapping[int, int]) -> tuple[tuple[int, float], ...]:
    return tuple(sorted(sizes.items()))


_FORMATS: Mapping[frozenset[str], Callable[[str, Iterable[_Row]], TraceFile]] = MappingProxyType(
    {
        frozenset({"duration_s", "gpus"}): _own,
        frozenset({"num_gpu", "creation_time", "scheduled_time", "deletion_time"}): _pods,
        frozenset({"num_gpu"}): _pod_sizes,
        frozenset({"gpus", "jobs"}): _counted_sizes,
        frozenset({"quantile", "seconds"}): _quantiles,
    },
)
"""Columns that a format needs → how to read it; the first that fits counts, others are ignored."""


LOAD = 0.7
"""Default offered load: busy enough that sets break up, with room to choose."""


JOBS = 2_000
"""Default number of jobs per seed."""


FULL = 1.0
"""Offered load above which recorded arrivals come from more than this node."""


class TracePlan(Struct, frozen=True, kw_only=True):
    """The jobs of every seed on a node of *gpus* GPUs.

    Attributes:
        source: of the jobs, for the reader.
        recorded: the jobs with the arrivals of the file, equal for every seed; ``None`` if drawn.
        workload: the distribution of drawn jobs, all of which fit the node.
        load: offered load; ``None`` if recorded jobs take no time.
        count: jobs per seed.
        left_out: share of the jobs that request more GPUs than the node has.
        skipped: unused rows of the files, by reason.
        overload: load of the recorded arrivals if too high to keep them; else ``None``.
    """

    source: str
    gpus: int
    recorded: tuple[Job, ...] | None
    workload: Workload
    load: float | None
    count: int
    left_out: float
    skipped: dict[str, int]
    overload: float | None = None

    def jobs(self, source: Uniform) -> Sequence[Job]:
        """Return the jobs of one seed."""
        if self.recorded is not None:
            return self.recorded
        assert self.load is not None
        return poisson(
            self.workload, count=self.count, gpus=self.gpus, load=self.load, source=source
        )


def plan(
    *,
    source: str,
    workload: Workload,
    files: Sequence[TraceFile] = (),
    gpus: int,
    load: float | None,
    count: int | None,
) -> TracePlan:
    """Return the plan; *load* and *count* come from the user.

    Recorded arrivals are kept unless a load is given, or they exceed the node's capacity: then the
    jobs come from a cluster, and get new arrival times.

    Raises:
        InputError: no job fits the node.
    """
    fitting = workload.fitting(gpus)
    if fitting is None:
        raise InputError(f"no job of {source} fits {gpus} GPUs", "name a larger machine")
    kept, left_out = fitting
    skipped: Counter[str] = Counter()
    for file in files:
        skipped.update(file.skipped)
    drawn = TracePlan(
        source=source,
        gpus=gpus,
        recorded=None,
        workload=kept,
        load=load or LOAD,
        count=count or JOBS,
        left_out=left_out,
        skipped=dict(skipped),
    )
    recorded = None if load is not None else _recorded(files, gpus)
    if recorded is None:
        return drawn
    offered = offered_load(recorded, gpus)
    if offered is None or offered > FULL:
        return replace(drawn, overload=offered)
    recorded = recorded[:count]
    return replace(drawn, recorded=recorded, load=offered_load(recorded, gpus), count=len(recorded))


def _recorded(files: Sequence[TraceFile], gpus: int) -> tuple[Job, ...] | None:
    """Return the jobs that fit, by arrival; ``None`` where a file does not tell all arrivals."""
    jobs = []
    for arrival_s, duration_s, size in (job for file in files for job in file.jobs):
        if arrival_s is None:
            return None
        if size <= gpus:
            jobs.append(Job(arrival_s, duration_s, size))
    return tuple(sorted(jobs, key=lambda job: job.arrival_s)) or None


def from_files(files: Sequence[TraceFile]) -> tuple[str, Workload]:
    """Return a name for the reader, and the workload that *files* describe together.

    Missing sizes or run times are taken from Philly.

    Raises:
        InputError: two of them have the same part.
    """
    sizing = [file for file in files if file.jobs or file.sizes]
    timing = [file for file in files if file.jobs or file.run_times]
    for clash, what in ((sizing, "sizes"), (timing, "run times")):
        if len(clash) > 1:
            names = " and ".join(file.name for file in clash[:2])
            raise InputError(f"{names} both tell the {what} of jobs", "name only one of them")
    name = " + ".join(file.name for file in files)
    if sizing and sizing[0].jobs:
        return name, Recorded([(size, seconds) for _, seconds, size in sizing[0].jobs])
    run_times: RunTimes = Quantiles(timing[0].run_times) if timing else PHILLY.run_times
    if not sizing:
        return f"{name}, sizes of philly", Mix(PHILLY.shares, run_times)
    note = "" if timing else ", run times of philly"
    return f"{name}{note}", Mix(sizing[0].sizes, run_times)
