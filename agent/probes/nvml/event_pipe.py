"""The parent's end of the events: one pipe and one thread for all children, past and future."""

import json
import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from agent.model.nvml_event import NvmlEvent
from agent.model.plain import from_plain
from agent.probes.nvml.events import FLUSH_S, EventTally

_CHUNK = 1 << 16  # bytes: all that a pipe holds (pipe(7))
_CLOSE_S = 0.5


class EventPipe:
    """Delivers the children's events to *on_events*, joined, at most ten times a second.

    Args:
        on_events: called on this object's thread. While it runs, nothing more is read, and the
            child counts what happens.
    """

    def __init__(self, on_events: Callable[[Sequence[NvmlEvent]], None]) -> None:
        self._on_events = on_events
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self.write_end, False)  # for the children too: they share it
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; events not yet delivered are dropped."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        # A full pipe has woken the thread already, and without a reader it has ended.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self.write_end, b"\n")
        self._thread.join(_CLOSE_S)
        os.close(self.write_end)

    def _run(self) -> None:
        tally, rest, last_reason = EventTally(), b"", None
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        while not self._is_closed.is_set():
            poll.poll()
            *lines, rest = (rest + os.read(self._read_end, _CHUNK)).split(b"\n")
            for document in (json.loads(line) for line in lines if line):
                if "silent" not in document:
                    tally.add(from_plain(NvmlEvent, document, []))
                elif document["silent"] != last_reason:  # a child repeats it with every attempt
                    last_reason = document["silent"]
                    structlog.get_logger().warning("no events from NVML", reason=last_reason)
            if tally and not self._is_closed.is_set():
                try:
                    self._on_events(tally.take())
                except Exception:  # noqa: BLE001 - a failing callback must not end later events
                    structlog.get_logger().exception("events of GPUs not taken")
            self._is_closed.wait(FLUSH_S)
        os.close(self._read_end)
