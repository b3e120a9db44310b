"""A call that takes too long, and those after it."""

from threading import Event, Thread
from threading import enumerate as running

import pytest

from nodetopo.deviceplugin.service import MOST_WORKERS, DeadlineExecutor
from tests.deviceplugin.eventually import eventually
from tests.generous_deadlines import PATIENCE_S


def workers() -> set[Thread]:
    """Return the threads of calls; those of earlier tests may still be about to end."""
    return {thread for thread in running() if thread.name == "deadline call"}


def test_a_call_returns_what_the_function_returns() -> None:
    assert DeadlineExecutor(PATIENCE_S).call(lambda a, b: a + b, 1, 2) == 3


def test_a_call_raises_what_the_function_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        DeadlineExecutor(PATIENCE_S).call(lambda: 1 / 0)


def test_a_call_that_takes_too_long_is_left_to_itself() -> None:
    may_end, executor = Event(), DeadlineExecutor(0.05)
    with pytest.raises(TimeoutError, match="no answer within"):
        executor.call(may_end.wait)
    may_end.set()
    executor._limit_s = PATIENCE_S
    assert executor.call(lambda: "the next") == "the next"


def test_the_answer_of_a_late_call_is_nobody_elses() -> None:
    may_end, executor = Event(), DeadlineExecutor(0.05)

    def late() -> str:
        may_end.wait()
        return "late"

    with pytest.raises(TimeoutError):
        executor.call(late)
    may_end.set()
    executor._limit_s = PATIENCE_S
    answers = {DeadlineExecutor(PATIENCE_S).call(lambda: "own")} | {
        executor.call(lambda: "own") for _ in range(50)
    }
    assert answers == {"own"}


def test_calls_in_turn_share_one_thread() -> None:
    before, executor = workers(), DeadlineExecutor(PATIENCE_S)
    for _ in range(100):
        executor.call(lambda: None)
    assert len(workers() - before) == 1


def test_calls_that_hang_keep_so_many_threads_and_no_more() -> None:
    may_end, executor = Event(), DeadlineExecutor(0.01)
    before = workers()
    for _ in range(MOST_WORKERS + 5):
        with pytest.raises(TimeoutError):
            executor.call(may_end.wait)
    hanging = workers() - before
    may_end.set()
    assert len(hanging) == MOST_WORKERS
    assert eventually(lambda: executor._count == len(executor._idle))
    executor.close()
    assert eventually(lambda: workers() <= before)


def test_a_thread_that_cannot_be_had_counts_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")  # at the limit of the container's processes

    executor = DeadlineExecutor(PATIENCE_S)
    with monkeypatch.context() as limited:
        limited.setattr(Thread, "start", refuse)
        for _ in range(MOST_WORKERS + 1):
            with pytest.raises(RuntimeError, match="can't start"):
                executor.call(lambda: None)
    assert executor.call(lambda: "answer") == "answer"


def test_a_call_that_ends_after_the_end_leaves_no_thread() -> None:
    may_end, executor = Event(), DeadlineExecutor(0.01)
    before = workers()
    with pytest.raises(TimeoutError):
        executor.call(may_end.wait)
    executor.close()
    executor._limit_s = PATIENCE_S
    assert executor.call(lambda: "still answered") == "still answered"
    may_end.set()
    assert eventually(lambda: workers() <= before)
