"""Jobs on one node: their arrivals, and when each can start."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from agent.simulate.draws import Uniform, exponential
from agent.simulate.workloads import Workload

LONGEST_S = 200_000.0
"""Drawn run times are cut to this, 2.3 days: a few jobs of weeks would decide a whole run."""


@dataclass(frozen=True, slots=True)
class Job:
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

    *load* is the GPU time asked for, as a share of what a node of *gpus* has to give in the
    mean time over which the jobs arrive. All jobs of *workload* must fit the node.
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
    """Return the GPU time that *jobs* ask for, as a share of what *gpus* GPUs have to give.

    The time counted is from the first arrival to the last end if no job waited, so that what
    one node has really run is at most 1. ``None`` where that is no time at all.
    """
    first = min(job.arrival_s for job in jobs)
    span = max(job.arrival_s + job.duration_s for job in jobs) - first
    asked = sum(job.gpus * job.duration_s for job in jobs)
    return asked / (span * gpus) if span > 0 else None


def schedule(jobs: Sequence[Job], gpus: int) -> tuple[Step, ...]:
    """Return the starts and ends of *jobs* in order of time, on a node of *gpus* GPUs.

    First come, first served, with backfill: when a job arrives or ends, waiting jobs start in
    order of arrival, and one that does not fit lets those behind it pass, as pods do in
    Kubernetes. Which GPUs a job gets plays no part, so one schedule serves every policy.
    """
    return tuple(_Node(jobs, gpus).run())


class _Node:
    def __init__(self, jobs: Sequence[Job], gpus: int) -> None:
        self._jobs = jobs
        self._free = gpus
        self._waiting: dict[int, deque[int]] = {}
        self._ends: list[tuple[float, int]] = []
        self._steps: list[Step] = []

    def run(self) -> list[Step]:
        jobs = self._jobs
        for place in sorted(range(len(jobs)), key=lambda one: (jobs[one].arrival_s, one)):
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
        while (place := self._next()) is not None:
            job = self._jobs[place]
            self._waiting[job.gpus].popleft()
            self._free -= job.gpus
            heappush(self._ends, (now + job.duration_s, place))
            self._steps.append(Step(now, place, job.gpus, is_start=True))

    def _next(self) -> int | None:
        """Return the first in the queue that fits; of one size only the first counts."""
        heads = [queue[0] for size, queue in self._waiting.items() if queue and size <= self._free]
        return min(heads, key=lambda place: (self._jobs[place].arrival_s, place), default=None)
