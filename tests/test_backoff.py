"""Delays after failures: longer each time, never too long, and short again after a success."""

import pytest

from nodetopo.backoff import Backoff, note_answer


def test_delays_double_up_to_the_cap_until_reset() -> None:
    backoff = Backoff(1, 5)
    assert [backoff.next_s() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next_s() == 1


def test_random_delays_stay_within_bounds_that_double() -> None:
    bounds = []

    def spread(low: float, high: float) -> float:
        bounds.append((low, high))
        return high

    backoff = Backoff(1.0, 8.0, least_s=0.5, spread=spread)
    assert [backoff.next_s() for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert bounds == [(0.5, 1.0), (0.5, 2.0), (0.5, 4.0), (0.5, 8.0), (0.5, 8.0)]
    assert backoff.longest_s == 8.0


def test_the_default_spread_is_random() -> None:
    drawn = {Backoff(0.0, 1000.0, least_s=0.0).next_s() for _ in range(3)}
    assert drawn == {0.0}
    drawn = {Backoff(1000.0, 1000.0, least_s=0.0).next_s() for _ in range(3)}
    assert len(drawn) == 3


@pytest.mark.parametrize("least_s", [None, 1.0])
def test_the_delay_that_a_server_asked_for_is_added(least_s: float | None) -> None:
    assert Backoff(1.0, 8.0, least_s=least_s).next_s(30.0) == 31.0


def test_an_answer_ends_the_pause_that_the_server_asked_for_and_ours_stays() -> None:
    backoff = Backoff(1, 5)
    note_answer()
    assert backoff.next_s(30) == 31
    assert backoff.relief_s() == 0  # the answer was before
    note_answer()
    assert [backoff.relief_s(), backoff.relief_s()] == [30, 0]
    assert backoff.next_s() == 2
    note_answer()
    assert backoff.relief_s() == 0


def test_a_new_start_leaves_nothing_of_the_pause_that_the_server_asked_for() -> None:
    backoff = Backoff(1, 5)
    backoff.next_s(30)
    note_answer()
    backoff.reset()
    assert backoff.relief_s() == 0
