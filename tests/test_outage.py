"""A lasting problem is reported once, a short one not at all."""

from nodetopo.outage import Outage


def test_a_problem_is_reported_when_it_begins_or_changes() -> None:
    outage = Outage()
    reports = [outage.failed(problem) for problem in ("a", "a", "b", "b", "a")]
    assert reports == [True, False, True, False, True]


def test_the_end_of_a_reported_problem_counts_the_failures() -> None:
    outage = Outage()
    for problem in ("a", "a", "b"):
        outage.failed(problem)
    assert [outage.ended() for _ in range(2)] == [3, 0]
    assert outage.failed("b")


def test_a_change_is_a_new_problem_or_the_end_of_one() -> None:
    outage = Outage()
    changes = [outage.changed(problem) for problem in (None, "a", "a", "b", "b", None, None, "b")]
    assert changes == [False, True, False, True, False, True, False, True]


def test_failures_are_reported_once_enough_of_them_follow_each_other() -> None:
    outage = Outage(after=3)
    assert [outage.failed() for _ in range(2)] == [False, False]
    assert outage.ended() == 0
    assert [outage.failed() for _ in range(5)] == [False, False, True, False, False]
    assert [outage.ended() for _ in range(2)] == [5, 0]
    assert not outage.failed()
