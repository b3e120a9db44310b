"""Means over seeds and the interval of a difference."""

import pytest
from msgspec.structs import replace

from tests.bench.traces.outcome import Outcome, compare, half_width

RUN = Outcome(
    decisions=10,
    measured=4,
    mean_gb_s=20.0,
    harmonic_gb_s=10.0,
    mean_of_best=0.5,
    harmonic_of_best=0.4,
    offline_of_best=0.6,
    reached=0.8,
    numa_split=0.25,
    nvlink_split=0.0,
    rejected=None,
    fragmentation=0.1,
    crashes=1,
)


def test_counts_add_up_means_are_averaged_and_harmonic_means_stay_harmonic() -> None:
    other = replace(RUN, mean_gb_s=40.0, harmonic_gb_s=30.0, rejected=0.5, crashes=2)
    (row,) = compare({"best": [RUN, other]})
    total = row.total
    assert (total.decisions, total.measured, total.crashes) == (20, 8, 3)
    assert total.mean_gb_s == 30.0
    assert total.harmonic_gb_s == pytest.approx(15.0)
    assert total.rejected == 0.5  # of the one run that knows
    assert row.against_first is None


def test_a_difference_is_of_pairs_of_runs() -> None:
    first = [replace(RUN, mean_of_best=share) for share in (0.5, 0.7, 0.9)]
    second = [replace(RUN, mean_of_best=share) for share in (0.4, 0.5, 0.6)]
    gap = compare({"best": first, "other": second})[1].against_first
    assert gap is not None
    assert gap.mean == pytest.approx(-0.2)
    # Gaps -0.1, -0.2, -0.3: deviation 0.1, t = 4.303 for 2 degrees of freedom.
    assert gap.ci95 == pytest.approx(4.303 * 0.1 / 3**0.5)


def test_a_seed_without_figures_is_left_out_of_the_difference() -> None:
    unknown = replace(RUN, mean_of_best=None)
    gap = compare({"a": [RUN, unknown], "b": [replace(RUN, mean_of_best=0.25), unknown]})
    assert gap[1].against_first is not None
    assert (gap[1].against_first.mean, gap[1].against_first.ci95) == (-0.25, None)
    assert compare({"a": [unknown], "b": [unknown]})[1].against_first is None


def test_one_value_has_no_interval() -> None:
    assert half_width([1.0]) is None


def test_many_values_have_the_interval_of_the_normal_distribution() -> None:
    values = [0.0, 1.0] * 50
    deviation = (100 * 0.25 / 99) ** 0.5
    assert half_width(values) == pytest.approx(1.96 * deviation / 10)
