"""The actor group and the periodic loop: what ends them, and what is reported."""

import signal
import sys
import threading
import time

import structlog

from nodetopo.kernel.loops import ActorGroup, PeriodicLoop


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


def test_a_signal_that_another_thread_received_is_obeyed() -> None:
    group = ActorGroup()
    main = threading.get_ident()

    def receives(stopping: threading.Event) -> None:
        while sys._current_frames()[main].f_code is not threading.Condition.wait.__code__:
            time.sleep(0.01)
        time.sleep(0.1)  # the frame is there; let it block (a signal that is early is obeyed too)
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
        assert stopping.wait(60)

    before = signal.signal(signal.SIGHUP, lambda *_: group.stop())
    try:
        group.start("receives", receives)
        assert group.wait(grace_s=60) == ()
    finally:
        signal.signal(signal.SIGHUP, before)


class Steps(PeriodicLoop):
    """A loop whose steps a test lists; at the end of the list it ends itself."""

    def __init__(self, *pauses: float) -> None:
        self.pauses = list(pauses)
        self.waits: list[float] = []
        self.closed = 0

    def step(self) -> float | None:
        """Return the next pause."""
        return self.pauses.pop(0) if self.pauses else None

    def wait(self, stopping: threading.Event, seconds: float) -> None:
        """Remember the pause; a negative one stands for a stop meanwhile."""
        self.waits.append(seconds)
        if seconds < 0:
            stopping.set()

    def close(self) -> None:
        """Count it."""
        self.closed += 1


def test_a_periodic_loop_steps_and_waits_until_a_step_ends_it() -> None:
    loop = Steps(1.0, 2.0)
    loop.run(threading.Event())
    assert (loop.waits, loop.closed) == ([1.0, 2.0], 1)


def test_a_periodic_loop_takes_no_step_after_a_stop() -> None:
    loop, stopping = Steps(1.0, -1.0, 3.0), threading.Event()
    loop.run(stopping)
    assert (loop.waits, loop.pauses, loop.closed) == ([1.0, -1.0], [3.0], 1)
    loop.run(stopping)
    assert loop.pauses == [3.0]
