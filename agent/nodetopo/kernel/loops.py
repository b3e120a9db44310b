"""The loops of the daemon: threads that end together, and their start and stop."""

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType
from typing import Any, cast

import structlog
from msgspec import Struct, field

Loop = Callable[[threading.Event], None]
"""Runs until the event is set, and returns soon after."""

SIGNALS_S = 1.0
"""Longest time, in seconds, until the main thread obeys a signal that another thread received."""


class PeriodicLoop(ABC):
    """A loop that works in steps: after each it waits for a time, or for an event."""

    @abstractmethod
    def step(self) -> float | None:
        """Do the due work; return the seconds until the next step, ``None`` to end the loop."""

    def wait(self, stopping: threading.Event, seconds: float) -> None:
        """Wait between two steps; a loop that an event wakes overrides it."""
        stopping.wait(seconds)

    def close(self) -> None:  # noqa: B027 - most loops hold nothing open
        """Release the loop's resources; called once, at its end."""

    def run(self, stopping: threading.Event) -> None:
        """Run until *stopping* is set, or a step ends the loop."""
        while not stopping.is_set():
            seconds = self.step()
            if seconds is None:
                break
            self.wait(stopping, seconds)
        self.close()


class ActorGroup(Struct):
    """Runs named loops until one of them ends, or :meth:`stop` is called.

    A loop gets the group's stop event and returns soon after it is set. A loop that raises has a
    bug: the traceback is logged, all loops stop, and :meth:`wait` reports the loop so that the
    process exits with a failure and is restarted.
    """

    stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _failed: list[str] = field(default_factory=list)

    def start(self, name: str, loop: Loop) -> None:
        """Run *loop* in a new thread."""

        def run() -> None:
            try:
                loop(self.stopping)
            except Exception:  # noqa: BLE001 - the one place: a failed loop must stop the group
                self._failed.append(name)
                structlog.get_logger().exception("actor failed", actor=name)
            finally:
                self.stop()

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Ask every loop to end; safe in a signal handler."""
        self.stopping.set()

    def wait(self, grace_s: float) -> tuple[str, ...]:
        """Block until the group stops and the loops had *grace_s* to end; return those that failed.

        A loop stuck in a foreign call is abandoned: the process is about to end.
        """
        # Python runs signal handlers in the main thread only (Python library, signal). A signal
        # that the kernel gave to another thread does not interrupt this wait: so it is bounded.
        while not self.stopping.wait(SIGNALS_S):
            pass
        for thread in self._threads:
            thread.join(grace_s / max(1, len(self._threads)))
        return tuple(self._failed)


class Heartbeats:
    """The last sign of life of each loop, for the liveness probe; any thread can call it."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def beat(self, loop: str) -> None:
        """Note that *loop* is alive now."""
        self._last[loop] = time.monotonic()

    def silence_s(self) -> float:
        """Return the seconds since the last beat of the slowest loop; 0 before the first beat."""
        beats = tuple(self._last.values())  # other threads add to it
        return time.monotonic() - min(beats) if beats else 0.0


# Signals.
#
# A handler interrupts the main thread anywhere, also within a lock or another handler. One that
# took a lock could wait for itself for ever, and Python handlers nest as deep as signals arrive.

_Handler = Callable[[int, FrameType | None], Any]


def install_signal_handlers(on_stop: Callable[[], None], on_hang_up: Callable[[], None]) -> None:
    """Call *on_stop* at SIGTERM and SIGINT, *on_hang_up* at SIGHUP, in a separate thread.

    They replace the handlers installed during startup: :mod:`nodetopo.__main__`.
    """
    received: SimpleQueue[int] = SimpleQueue()
    # C code that may be interrupted by itself (Python library, queue: SimpleQueue.put). A handler
    # is called with the frame beside the number, which stands where put has `block` and ignores it.
    put = cast("_Handler", received.put)

    def obey() -> None:
        while True:
            if received.get() == signal.SIGHUP:
                on_hang_up()
            else:
                on_stop()

    threading.Thread(target=obey, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, put)
