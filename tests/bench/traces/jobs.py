"""Jobs on one node: their arrivals, and when each can start."""

from bisect import bisect
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate
from math import cos, exp, log, pi, sqrt
from types import MappingProxyType
from typing import NamedTuple, Protocol

from msgspec import Struct


class Uniform(Protocol):
    """A source of random numbers, e.g. ``random.Random``.

    All draws come from it, so that a seed gives the same run on every Python: of ``random.Random``,
    only ``random()`` is guaranteed to repeat between versions, so no other method is used.
    """

    def random(self) -> float:
        """Return the next number, at least 0 and below 1."""
        ...


def exponential(source: Uniform, mean: float) -> float:
    """Return a waiting time of a Poisson process (inverse of its distribution function)."""
    return -mean * log(1 - source.random())


def normal(source: Uniform) -> float:
    """Return a draw of the standard normal distribution (Box and Muller 1958)."""
    radius = sqrt(-2 * log(1 - source.random()))
    return radius * cos(2 * pi * source.random())


class Weighted:
    """Values by weight; the weights need not add up to 1."""

    def __init__(self, values: Sequence[int], weights: Sequence[float]) -> None:
        self._values = tuple(values)
        self._ends = tuple(accumulate(weights))

    def draw(self, source: Uniform) -> int:
        """Return one of the values."""
        # Below 1 in steps of 2**-53, so the product stays below the last end.
        return self._values[bisect(self._ends, source.random() * self._ends[-1])]


NINETIETH = 1.2815515655446004
"""The standard normal's 0.9 quantile."""


class RunTimes(Protocol):
    """A distribution of run times."""

    def draw(self, source: Uniform) -> float:
        """Return the run time of one job, seconds, not negative."""
        ...


class LogNormal(Struct, frozen=True):
    """The log-normal distribution with a given median and mean, seconds; mean above median."""

    median_s: float
    mean_s: float

    def draw(self, source: Uniform) -> float:
        """Return one run time; the mean of a log-normal is median × exp(sigma² / 2)."""
        sigma = sqrt(2 * log(self.mean_s / self.median_s))
        return self.median_s * exp(sigma * normal(source))


class HeavyTailed(Struct, frozen=True):
    """Log-normal up to the 90th percentile, and log-normal with a wider sigma beyond.

    One log-normal cannot meet median, 90th percentile and mean at once where a few jobs run
    for weeks. *tail* is the sigma of the longest tenth, chosen so that the mean is met.
    """

    median_s: float
    ninetieth_s: float
    tail: float

    def draw(self, source: Uniform) -> float:
        """Return one run time."""
        z = normal(source)
        if z > NINETIETH:
            return self.ninetieth_s * exp(self.tail * (z - NINETIETH))
        return self.median_s * exp(log(self.ninetieth_s / self.median_s) / NINETIETH * z)


class Quantiles(Struct, frozen=True):
    """Points (share of jobs that run no longer, seconds), ascending in both, joined by lines."""

    points: Sequence[tuple[float, float]]

    def draw(self, source: Uniform) -> float:
        """Return one run time; below the first point it is that point's, above the last too."""
        share = source.random()
        before_share, before_s = self.points[0]
        for at_share, at_s in self.points:
            if share < at_share:
                width = at_share - before_share
                part = (share - before_share) / width if width > 0 else 0.0
                return before_s + (at_s - before_s) * max(part, 0.0)
            before_share, before_s = at_share, at_s
        return before_s


class Workload(Protocol):
    """A source of jobs."""

    def draw(self, source: Uniform) -> tuple[int, float]:
        """Return (GPUs, run time in seconds) of the next job."""
        ...

    def fitting(self, gpus: int) -> "tuple[Workload, float] | None":
        """Return the part whose jobs request at most *gpus*, and the share of jobs left out.

        ``None`` where no job fits.
        """
        ...


class Mix(Struct, frozen=True, dict=True):
    """Sizes and run times that do not depend on each other; *shares* are (GPUs, weight)."""

    shares: Sequence[tuple[int, float]]
    run_times: RunTimes

    @cached_property
    def sizes(self) -> "Weighted":
        """The sizes by weight."""
        return Weighted(*zip(*self.shares, strict=True))

    def draw(self, source: Uniform) -> tuple[int, float]:
        """Return the next job."""
        return self.sizes.draw(source), self.run_times.draw(source)

    def fitting(self, gpus: int) -> tuple[Workload, float] | None:
        """Return the mix of the sizes that fit, and the share of the others."""
        kept = [(size, weight) for size, weight in self.shares if size <= gpus]
        total = sum(weight for _, weight in self.shares)
        left_out = 1 - sum(weight for _, weight in kept) / total
        return (Mix(kept, self.run_times), max(left_out, 0.0)) if kept else None


class Recorded(Struct, frozen=True):
    """Jobs of a trace, (GPUs, seconds), drawn one by one with replacement."""

    jobs: Sequence[tuple[int, float]]

    def draw(self, source: Uniform) -> tuple[int, float]:
        """Return the next job."""
        return self.jobs[int(source.random() * len(self.jobs))]

    def fitting(self, gpus: int) -> tuple[Workload, float] | None:
        """Return the jobs that fit, and the share of the others."""
        kept = [job for job in self.jobs if job[0] <= gpus]
        return (Recorded(kept), 1 - len(kept) / len(self.jobs)) if kept else None


PHILLY_RUN_TIMES = HeavyTailed(median_s=1_186, ninetieth_s=12_860, tail=2.627)
"""Microsoft's Philly cluster (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU
Clusters", USENIX ATC 2019): 83,154 run times that alibaba/clusterdata holds as
``philly_runtime.csv``, median 1,186 s, 90th percentile 12,860 s, mean 14,613 s."""

PHILLY = Mix(((1, 68.7), (2, 3.0), (4, 13.4), (8, 12.6), (16, 2.4)), PHILLY_RUN_TIMES)
"""Sizes of 15,264 jobs in 15 virtual clusters of Philly, counted in the traces of
stanford-futuredata/gavel (Narayanan et al., OSDI 2020); 16 stands for all above 8."""

HELIOS_VENUS_RUN_TIMES = LogNormal(median_s=204, mean_s=13_041)

HELIOS_SATURN_RUN_TIMES = LogNormal(median_s=124, mean_s=5_253)
"""Clusters of SenseTime (Hu et al., "Characterization and Prediction of Deep Learning
Workloads in Large-Scale GPU Datacenters", SC 2021): the authors' summary of run times."""

PAI_RUN_TIMES = HeavyTailed(median_s=655, ninetieth_s=7_389, tail=2.68)
"""6,203 pods that started, of the 2023 ``openb`` pod list of alibaba/clusterdata: median
655 s, 90th percentile 7,389 s, mean 5,303 s with the longest cut to 200,000 s (30,851 s
uncut, most of it from pods that ran for all of the five months)."""

WORKLOADS: Mapping[str, Mix] = MappingProxyType(
    {
        "philly": PHILLY,
        "helios-venus": Mix(
            ((1, 51.8), (2, 5.6), (4, 7.4), (8, 25.2), (16, 10.0)),
            HELIOS_VENUS_RUN_TIMES,
        ),
        "helios-earth": Mix(
            ((1, 89.2), (2, 0.8), (4, 2.1), (8, 5.4), (16, 2.5)),
            HELIOS_SATURN_RUN_TIMES,
        ),
        "helios-saturn": Mix(
            ((1, 68.3), (2, 2.7), (4, 8.4), (8, 15.5), (16, 5.1)),
            HELIOS_SATURN_RUN_TIMES,
        ),
        "helios-uranus": Mix(
            ((1, 66.3), (2, 3.1), (4, 4.3), (8, 18.6), (16, 7.7)),
            HELIOS_SATURN_RUN_TIMES,
        ),
        "pai": Mix(((1, 6_989), (2, 222), (4, 206), (8, 556)), PAI_RUN_TIMES),
        "mixed": Mix(((1, 30), (2, 40), (4, 30)), PHILLY_RUN_TIMES),
    },
)
"""The built-in workloads, from published figures; no trace is copied.

Sizes that a source gives as a range count as its upper end. Jobs larger than a node would go to
several nodes and are left out.

``helios-*``: sizes of SenseTime's four clusters (Hu et al., SC 2021; read off the figure in
the authors' S-Lab-System-Group/HeliosArtifact), in classes of 1, 2, up to 4, up to 8 and more.
Run times of Earth and Uranus are not published apart; Saturn's stand in for them.
``pai``: 7,973 pods of Alibaba's PAI, variant ``multigpu50`` of the 2023 ``openb`` list, whose
fractions of a GPU count as whole ones. ``mixed``: made up, for nodes shared by many small
jobs; run times of Philly."""

LONGEST_S = 200_000.0
"""Drawn run times are cut to this, 2.3 days: a few jobs of weeks would decide a whole run."""


class Job(Struct, frozen=True):
    """One job, times in seconds; it holds its *gpus* from its start to its end."""

    arrival_s: float
    duration_s: float
    gpus: int


class Step(NamedTuple):
    """A job starts or ends; *job* is its place among the jobs."""

    at_s: float
    job: int
    gpus: int
    is_start: bool


def poisson(
    workload: Workload, *, count: int, gpus: int, load: float, source: Uniform
) -> list[Job]:
    """Return *count* jobs that arrive by a Poisson process and offer *load*.

    *load* is the requested GPU time, as a share of the capacity of a node of *gpus* in the mean
    time over which the jobs arrive. All jobs of *workload* must fit the node.
    """
    drawn = [workload.draw(source) for _ in range(count)]
    drawn = [(size, min(seconds, LONGEST_S)) for size, seconds in drawn]
    gap_s = sum(size * seconds for size, seconds in drawn) / (count * gpus * load)
    jobs, now = [], 0.0
    for size, seconds in drawn:
        now += exponential(source, gap_s)
        jobs.append(Job(now, seconds, size))
    return jobs


def offered_load(jobs: Sequence[Job], gpus: int) -> float | None:
    """Return the GPU time that *jobs* request, as a share of the capacity of *gpus* GPUs.

    The time counted is from the first arrival to the last end if no job waited, so that what one
    node has really run is at most 1. ``None`` where that is no time at all.
    """
    first = min(job.arrival_s for job in jobs)
    span = max(job.arrival_s + job.duration_s for job in jobs) - first
    requested = sum(job.gpus * job.duration_s for job in jobs)
    return requested / (span * gpus) if span > 0 else None


def schedule(jobs: Sequence[Job], gpus: int) -> tuple[Step, ...]:
    """Return the starts and ends of *jobs* in order of time, on a node of *gpus* GPUs.

    First come, first served, with backfill: when a job arrives or ends, waiting jobs start in order
    of arrival, and a job that does not fit lets later ones pass, like pods in Kubernetes. The
    schedule does not depend on the chosen GPUs, so it serves every policy.
    """
    return tuple(_Node(jobs, gpus).run())


class _Node:
    """A node with its queue of jobs."""

    def __init__(self, jobs: Sequence[Job], gpus: int) -> None:
        self._jobs = jobs
        self._free = gpus
        self._waiting: dict[int, deque[int]] = {}
        self._ends: list[tuple[float, int]] = []
        self._steps: list[Step] = []

    def run(self) -> list[Step]:
        jobs = self._jobs
        for place in sorted(range(len(jobs)), key=lambda place: (jobs[place].arrival_s, place)):
            self._end_until(jobs[place].arrival_s)
            self._waiting.setdefault(jobs[place].gpus, deque()).append(place)
            self._start(jobs[place].arrival_s)
        self._end_until(float("inf"))
        return self._steps

    def _end_until(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            at_s, place = heappop(self._ends)
            self._free += self._jobs[place].gpus
            self._steps.append(Step(at_s, place, self._jobs[place].gpus, is_start=False))
            self._start(at_s)

    def _start(self, now: float) -> None:
        """Start the jobs that fit, in order of arrival; of one size only the first counts."""
        while heads := [
            queue[0] for size, queue in self._waiting.items() if queue and size <= self._free
        ]:
            place = min(heads, key=lambda place: (self._jobs[place].arrival_s, place))
            job = self._jobs[place]
            self._waiting[job.gpus].popleft()
            self._free -= job.gpus
            heappush(self._ends, (now + job.duration_s, place))
            self._steps.append(Step(now, place, job.gpus, is_start=True))
