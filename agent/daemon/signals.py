"""What signals tell the process, kept until somebody has time for it.

A handler interrupts the main thread anywhere, within a lock or another handler too. One that took
a lock could wait for itself for ever, and handlers that run Python nest as deep as signals come.
"""

import signal
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import Any, NoReturn, cast

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
