"""The built-in workloads have the published figures."""

from random import Random
from statistics import fmean, median, quantiles

import pytest

from tests.bench.traces.jobs import (
    HELIOS_SATURN_RUN_TIMES,
    HELIOS_VENUS_RUN_TIMES,
    PAI_RUN_TIMES,
    PHILLY,
    PHILLY_RUN_TIMES,
    WORKLOADS,
    HeavyTailed,
    LogNormal,
    Mix,
    Quantiles,
    Recorded,
)


def _drawn(run_times: HeavyTailed | LogNormal, count: int = 200_000) -> list[float]:
    source = Random(7)
    return [run_times.draw(source) for _ in range(count)]


def test_philly_runs_as_long_as_published() -> None:
    drawn = _drawn(PHILLY_RUN_TIMES)
    assert median(drawn) == pytest.approx(1_186, rel=0.03)
    assert quantiles(drawn, n=10)[8] == pytest.approx(12_860, rel=0.03)
    assert fmean(drawn) == pytest.approx(14_613, rel=0.15)  # a few jobs hold much of it


def test_pai_runs_as_long_as_published() -> None:
    drawn = _drawn(PAI_RUN_TIMES)
    assert median(drawn) == pytest.approx(655, rel=0.03)
    assert quantiles(drawn, n=10)[8] == pytest.approx(7_389, rel=0.03)
    assert fmean(min(one, 200_000) for one in drawn) == pytest.approx(5_303, rel=0.03)


@pytest.mark.parametrize(
    ("run_times", "middle", "mean"),
    [(HELIOS_SATURN_RUN_TIMES, 124, 5_253), (HELIOS_VENUS_RUN_TIMES, 204, 13_041)],
)
def test_helios_runs_as_long_as_published(run_times: LogNormal, middle: int, mean: int) -> None:
    drawn = _drawn(run_times)
    assert median(drawn) == pytest.approx(middle, rel=0.03)
    assert fmean(drawn) == pytest.approx(mean, rel=0.25)  # sigma is 2.7: slow to settle


def test_quantiles_are_joined_by_lines() -> None:
    class Fixed:
        def __init__(self, value: float) -> None:
            self.value = value

        def random(self) -> float:
            return self.value

    run_times = Quantiles(((0.0, 10), (0.5, 20), (0.5, 40), (0.9, 80)))
    asked = (0.0, 0.25, 0.5, 0.7, 0.95)
    assert [run_times.draw(Fixed(one)) for one in asked] == pytest.approx([10, 15, 40, 60, 80])


def test_quantiles_below_the_first_are_the_first() -> None:
    class Zero:
        def random(self) -> float:
            return 0.0

    assert Quantiles(((0.5, 20), (1.0, 40))).draw(Zero()) == 20


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_draws_jobs_that_fit(name: str) -> None:
    found = WORKLOADS[name].fitting(4)
    assert found is not None
    source = Random(1)
    drawn = [found[0].draw(source) for _ in range(2_000)]
    assert {size for size, _ in drawn} == {1, 2, 4}
    assert min(seconds for _, seconds in drawn) > 0


def test_what_does_not_fit_is_counted() -> None:
    found = PHILLY.fitting(8)
    assert found is not None
    mix, left_out = found
    assert isinstance(mix, Mix)
    assert [size for size, _ in mix.shares] == [1, 2, 4, 8]
    assert left_out == pytest.approx(2.4 / 100.1)


def test_nothing_that_fits_is_none() -> None:
    assert Mix(((8, 1),), PHILLY_RUN_TIMES).fitting(4) is None
    assert Recorded([(8, 1.0)]).fitting(4) is None


def test_recorded_jobs_keep_size_and_run_time_together() -> None:
    found = Recorded([(1, 10.0), (2, 20.0), (9, 90.0), (2, 40.0)]).fitting(8)
    assert found is not None
    source = Random(1)
    assert {found[0].draw(source) for _ in range(100)} == {(1, 10.0), (2, 20.0), (2, 40.0)}
    assert found[1] == 0.25
