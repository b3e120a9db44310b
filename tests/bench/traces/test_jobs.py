"""Arrivals and the schedule."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.traces.jobs import (
    LONGEST_S,
    PHILLY,
    Job,
    LogNormal,
    Mix,
    Step,
    offered_load,
    poisson,
    schedule,
)

GPUS = 8
jobs_of_a_node = st.lists(
    st.builds(
        Job,
        arrival_s=st.integers(0, 50).map(float),
        duration_s=st.integers(0, 20).map(float),
        gpus=st.integers(1, GPUS),
    ),
    max_size=30,
)


def _poisson(load: float, seed: int = 1, count: int = 5_000) -> list[Job]:
    found = PHILLY.fitting(GPUS)
    assert found is not None
    return poisson(found[0], count=count, gpus=GPUS, load=load, source=Random(seed))


@pytest.mark.parametrize("load", [0.3, 0.7, 1.2])
def test_jobs_offer_the_load_asked_for(load: float) -> None:
    assert offered_load(_poisson(load), GPUS) == pytest.approx(load, rel=0.05)


def test_a_seed_repeats() -> None:
    assert _poisson(0.7, seed=3, count=50) == _poisson(0.7, seed=3, count=50)
    assert _poisson(0.7, seed=3, count=50) != _poisson(0.7, seed=4, count=50)


def test_run_times_are_cut() -> None:
    endless = Mix(((1, 1),), LogNormal(median_s=300_000, mean_s=300_001))
    jobs = poisson(endless, count=5, gpus=GPUS, load=0.5, source=Random(1))
    assert {job.duration_s for job in jobs} == {LONGEST_S}


def test_a_node_that_was_busy_all_the_time_had_a_load_of_1() -> None:
    assert offered_load([Job(5, 10, 8), Job(15, 20, 2), Job(15, 20, 6)], GPUS) == 1


def test_jobs_that_take_no_time_have_no_load() -> None:
    assert offered_load([Job(5, 0, 1), Job(5, 0, 2)], GPUS) is None


def test_a_small_job_passes_a_large_one_that_must_wait() -> None:
    jobs = [Job(0, 10, 6), Job(1, 10, 8), Job(2, 3, 2), Job(3, 1, 1)]
    assert schedule(jobs, GPUS) == (
        Step(0, 0, 6, is_start=True),
        Step(2, 2, 2, is_start=True),
        Step(5, 2, 2, is_start=False),
        Step(5, 3, 1, is_start=True),
        Step(6, 3, 1, is_start=False),
        Step(10, 0, 6, is_start=False),
        Step(10, 1, 8, is_start=True),
        Step(20, 1, 8, is_start=False),
    )


def test_a_job_that_ends_makes_room_before_one_that_arrives_is_looked_at() -> None:
    jobs = [Job(0, 10, 6), Job(1, 5, 4), Job(10, 5, 2)]
    starts = [(step.at_s, step.job) for step in schedule(jobs, GPUS) if step.is_start]
    assert starts == [(0, 0), (10, 1), (10, 2)]


@given(jobs_of_a_node)
def test_every_job_starts_after_its_arrival_and_runs_its_time(jobs: list[Job]) -> None:
    steps = schedule(jobs, GPUS)
    starts = {step.job: step.at_s for step in steps if step.is_start}
    ends = {step.job: step.at_s for step in steps if not step.is_start}
    assert len(steps) == 2 * len(jobs)
    assert all(starts[place] >= job.arrival_s for place, job in enumerate(jobs))
    assert ends == {place: starts[place] + job.duration_s for place, job in enumerate(jobs)}


@given(jobs_of_a_node)
def test_a_node_is_never_overbooked_and_steps_are_in_order_of_time(jobs: list[Job]) -> None:
    free, before = GPUS, 0.0
    for step in schedule(jobs, GPUS):
        free += -step.gpus if step.is_start else step.gpus
        assert 0 <= free <= GPUS
        assert step.at_s >= before
        before = step.at_s


@given(jobs_of_a_node)
def test_no_job_waits_while_there_is_room_for_it(jobs: list[Job]) -> None:
    steps = schedule(jobs, GPUS)
    starts = {step.job: step.at_s for step in steps if step.is_start}
    times = sorted({step.at_s for step in steps})
    for now in times:
        held = sum(
            job.gpus
            for place, job in enumerate(jobs)
            if starts[place] <= now < starts[place] + job.duration_s
        )
        waiting = [p for p, job in enumerate(jobs) if job.arrival_s <= now < starts[p]]
        assert all(jobs[place].gpus > GPUS - held for place in waiting)


@given(jobs_of_a_node)
def test_equal_jobs_start_in_the_order_of_their_arrival(jobs: list[Job]) -> None:
    starts = {step.job: step.at_s for step in schedule(jobs, GPUS) if step.is_start}
    for size in {job.gpus for job in jobs}:
        alike = [place for place, job in enumerate(jobs) if job.gpus == size]
        alike.sort(key=lambda place: (jobs[place].arrival_s, place))
        assert sorted(starts[place] for place in alike) == [starts[place] for place in alike]
