"""A call that takes too long, and those after it."""

from threading import Event, Thread, active_count

import pytest

from agent.kubelet.timely import MOST_WORKERS, Timely
from tests.kubelet.eventually import eventually


def test_a_call_returns_what_the_function_returns() -> None:
    assert Timely(10).call(lambda a, b: a + b, 1, 2) == 3


def test_a_call_raises_what_the_function_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        Timely(10).call(lambda: 1 / 0)


def test_a_call_that_takes_too_long_is_left_to_itself() -> None:
    may_end, timely = Event(), Timely(0.05)
    with pytest.raises(TimeoutError, match="no answer within"):
        timely.call(may_end.wait)
    may_end.set()
    assert timely.call(lambda: "the next") == "the next"


def test_the_answer_of_a_late_call_is_nobody_elses() -> None:
    may_end, timely = Event(), Timely(0.05)

    def late() -> str:
        may_end.wait()
        return "late"

    with pytest.raises(TimeoutError):
        timely.call(late)
    may_end.set()
    answers = {Timely(10).call(lambda: "own")} | {timely.call(lambda: "own") for _ in range(50)}
    assert answers == {"own"}


def test_calls_in_turn_share_one_thread() -> None:
    timely = Timely(10)
    timely.call(lambda: None)
    before = active_count()
    for _ in range(100):
        timely.call(lambda: None)
    assert active_count() == before


def test_calls_that_hang_keep_so_many_threads_and_no_more() -> None:
    may_end, timely = Event(), Timely(0.01)
    before = active_count()
    for _ in range(MOST_WORKERS + 5):
        with pytest.raises(TimeoutError):
            timely.call(may_end.wait)
    hanging = active_count() - before
    may_end.set()
    assert hanging == MOST_WORKERS
    assert eventually(lambda: timely._count == len(timely._idle))
    timely.close()
    assert eventually(lambda: active_count() == before)


def test_a_thread_that_cannot_be_had_counts_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")  # at the limit of the container's processes

    timely = Timely(10)
    with monkeypatch.context() as limited:
        limited.setattr(Thread, "start", refuse)
        for _ in range(MOST_WORKERS + 1):
            with pytest.raises(RuntimeError, match="can't start"):
                timely.call(lambda: None)
    assert timely.call(lambda: "answer") == "answer"


def test_a_call_that_ends_after_the_end_leaves_no_thread() -> None:
    may_end, timely = Event(), Timely(0.01)
    before = active_count()
    with pytest.raises(TimeoutError):
        timely.call(may_end.wait)
    timely.close()
    assert timely.call(lambda: "still answered") == "still answered"
    may_end.set()
    assert eventually(lambda: active_count() == before)
