"""A group of threads that live and die together: the first to end stops all."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

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
