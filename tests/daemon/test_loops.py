"""The actor group: the first to end stops all, and a failure is reported."""

import threading

import structlog

from agent.daemon.loops import ActorGroup


def until_stopped(stopping: threading.Event) -> None:
    """Run as a well-behaved loop does."""
    assert stopping.wait(60)


def test_the_first_loop_to_end_stops_the_others() -> None:
    group = ActorGroup()
    group.start("waits", until_stopped)
    group.start("ends", lambda _: None)
    assert group.wait(grace_s=60) == ()


def test_a_loop_that_raises_is_named_and_stops_the_group() -> None:
    def fails(_: threading.Event) -> None:
        raise ValueError("broken invariant")

    group = ActorGroup()
    group.start("waits", until_stopped)
    with structlog.testing.capture_logs() as logs:
        group.start("fails", fails)
        failed = group.wait(grace_s=60)
    assert failed == ("fails",)
    assert [entry["actor"] for entry in logs] == ["fails"]


def test_stopping_from_outside_is_no_failure() -> None:
    group = ActorGroup()
    group.start("waits", until_stopped)
    group.stop()
    assert group.wait(grace_s=60) == ()
