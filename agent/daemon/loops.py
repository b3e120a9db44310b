"""A group of threads that live and die together: the first to end stops all."""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import Any, NoReturn, cast

import structlog

# What signals tell the process, kept until somebody has time for it.
#
# A handler interrupts the main thread anywhere, within a lock or another handler too. One that took
# a lock could wait for itself for ever, and handlers that run Python nest as deep as signals come.

_Handler = Callable[[int, FrameType | None], Any]


def end_at_signal() -> None:
    """Let SIGTERM end the process with status 0 from now on, as long as it only starts.

    Without a handler the first process of a container never gets a SIGTERM (signal(7), and
    pid_namespaces(7)). SIGHUP asks for settings to be read, which a start does anyway.
    """
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _go_on)


def hand_over(on_stop: Callable[[], None], on_hang_up: Callable[[], None]) -> None:
    """Call *on_stop* at SIGTERM and SIGINT, *on_hang_up* at SIGHUP, in a thread of its own."""
    told: SimpleQueue[int] = SimpleQueue()
    # C code that may be interrupted by itself (Python library, queue: SimpleQueue.put). What a
    # handler gets beside the number stands where `block` does, which put ignores.
    put = cast("_Handler", told.put)

    def obey() -> None:
        while True:
            if told.get() == signal.SIGHUP:
                on_hang_up()
            else:
                on_stop()

    Thread(target=obey, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, put)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Do nothing; unlike an ignored signal, that is not inherited by the NVML process."""


Loop = Callable[[threading.Event], None]
"""Goes on until the event is set, and returns soon after."""


@dataclass(slots=True)
class ActorGroup:
    """Runs named loops until one of them ends, or :meth:`stop` is called.

    A loop gets the group's stop event and returns soon after it is set. A loop that raises
    is a bug of ours: it is logged with its traceback, everything stops, and
    :meth:`wait` reports it so that the process ends with a failure and is restarted.
    """

    stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _failed: list[str] = field(default_factory=list)

    def start(self, name: str, loop: Loop) -> None:
        """Run *loop* in a thread of its own."""
        thread = threading.Thread(target=self._run, args=(name, loop), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Ask every loop to end; safe in a signal handler."""
        self.stopping.set()

    def wait(self, grace_s: float) -> tuple[str, ...]:
        """Block until the group stops, give the loops *grace_s* to end, return who failed.

        A loop that is stuck in a foreign call is left behind: the process is about to end.
        """
        while not self.stopping.wait(timeout=0.2):
            pass  # a bounded wait lets the interpreter run signal handlers between rounds
        for thread in self._threads:
            thread.join(grace_s / max(1, len(self._threads)))
        return tuple(self._failed)

    def _run(self, name: str, loop: Loop) -> None:
        try:
            loop(self.stopping)
        except Exception:  # noqa: BLE001 - the one place: a dying loop must take the group along
            self._failed.append(name)
            structlog.get_logger().exception("actor failed", actor=name)
        finally:
            self.stop()
