"""Draws follow their distributions and repeat with their seed."""

from collections import Counter
from random import Random
from statistics import fmean, pstdev

import pytest

from tests.bench.traces.jobs import Weighted, exponential, normal


def test_waiting_times_have_the_mean_asked_for() -> None:
    source = Random(1)
    drawn = [exponential(source, 30) for _ in range(20_000)]
    assert min(drawn) >= 0
    assert fmean(drawn) == pytest.approx(30, rel=0.03)
    assert pstdev(drawn) == pytest.approx(30, rel=0.03)


def test_normal_draws_have_mean_0_and_deviation_1() -> None:
    source = Random(1)
    drawn = [normal(source) for _ in range(20_000)]
    assert fmean(drawn) == pytest.approx(0, abs=0.02)
    assert pstdev(drawn) == pytest.approx(1, rel=0.02)
    assert sum(one < -1.2816 for one in drawn) / len(drawn) == pytest.approx(0.1, abs=0.01)


def test_values_come_as_often_as_they_weigh() -> None:
    source, sizes = Random(1), Weighted((1, 2, 8), (3, 0, 1))
    drawn = Counter(sizes.draw(source) for _ in range(20_000))
    assert set(drawn) == {1, 8}
    assert drawn[8] / 20_000 == pytest.approx(0.25, abs=0.01)


class _Last:
    def random(self) -> float:
        return 1 - 2**-53


def test_the_largest_number_of_a_source_is_no_error() -> None:
    assert Weighted((1, 2), (0.1, 0.2)).draw(_Last()) == 2
    assert exponential(_Last(), 1) > 30
