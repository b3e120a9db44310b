"""A problem that lasts is reported once, and one that passes soon is not."""

from agent.daemon.logs import LastProblem, Outage


def test_a_problem_is_new_when_it_begins_changes_or_ends() -> None:
    problem = LastProblem()
    seen = [problem.is_new(each) for each in (None, "a", "a", "b", "b", None, None, "b")]
    assert seen == [False, True, False, True, False, True, False, True]


def test_an_outage_is_reported_when_it_lasts_and_when_it_ends() -> None:
    outage = Outage(attempts=3)
    assert [outage.has_failed() for _ in range(2)] == [False, False]
    assert not outage.has_ended()
    assert [outage.has_failed() for _ in range(5)] == [False, False, True, False, False]
    assert [outage.has_ended() for _ in range(2)] == [True, False]
    assert not outage.has_failed()
