"""The jobs that a simulated trace is made of: from files, or built in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.cli.simulate.trace_csv import TraceFile
from agent.errors import InputError
from agent.simulate.draws import Uniform
from agent.simulate.jobs import Job, offered_load, poisson
from agent.simulate.run_times import Quantiles, RunTimes
from agent.simulate.workloads import PHILLY, Mix, Recorded, Workload

LOAD = 0.7
"""Offered load where none is asked for: busy enough that sets break up, with room to choose."""

JOBS = 2_000
"""Jobs per seed where none are asked for."""

FULL = 1.0
"""Offered load above which recorded arrivals are those of more than this node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The jobs of every seed on a node of *gpus* GPUs.

    Attributes:
        source: where the jobs are from, for the reader.
        recorded: the jobs with the arrivals of the file, equal for every seed; ``None`` where
            they are drawn.
        workload: what jobs are drawn from; every one of them fits the node.
        load: offered load; ``None`` where recorded jobs take no time at all.
        count: jobs per seed.
        left_out: share of the jobs that ask for more GPUs than the node has.
        skipped: rows of the files that were not used, by reason.
        overload: what recorded arrivals would have offered where that was too much to keep
            them; else ``None``.
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
) -> Plan:
    """Return the plan; *load* and *count* are what the person asked for.

    Arrivals recorded in a file are kept unless a load is asked for, or they offer more than
    the node can do: then the jobs are those of a cluster, and arrive anew.

    Raises:
        InputError: no job fits the node.
    """
    fitting = workload.fitting(gpus)
    if fitting is None:
        raise InputError(f"no job of {source} fits {gpus} GPUs", "name a larger machine")
    kept, left_out = fitting
    drawn = Plan(
        source=source,
        gpus=gpus,
        recorded=None,
        workload=kept,
        load=load or LOAD,
        count=count or JOBS,
        left_out=left_out,
        skipped=_skipped(files),
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


def _skipped(files: Sequence[TraceFile]) -> dict[str, int]:
    total: dict[str, int] = {}
    for file in files:
        for reason, count in file.skipped.items():
            total[reason] = total.get(reason, 0) + count
    return total


def from_files(files: Sequence[TraceFile]) -> tuple[str, Workload]:
    """Return a name for the reader, and the workload that *files* describe together.

    Sizes or run times that none of them tells are Philly's.

    Raises:
        InputError: two of them tell the same.
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
