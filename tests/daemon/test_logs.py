"""A problem that lasts is reported once."""

from agent.daemon.logs import LastProblem


def test_a_problem_is_new_when_it_begins_changes_or_ends() -> None:
    problem = LastProblem()
    seen = [problem.is_new(each) for each in (None, "a", "a", "b", "b", None, None, "b")]
    assert seen == [False, True, False, True, False, True, False, True]
