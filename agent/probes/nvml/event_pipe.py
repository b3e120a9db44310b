"""The parent's end of the events: one pipe and one thread, whatever becomes of the children."""

import json
import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from agent.model.codec import from_plain
from agent.model.nvml_event import NvmlEvent
from agent.probes.nvml.nvml_tally import FLUSH_S, EventTally

_CHUNK = 1 << 16  # bytes: all that a pipe holds (pipe(7))
_CLOSE_S = 0.5


class EventPipe:
    """Hands what the children write to *on_events*, joined, at most ten times a second.

    Args:
        on_events: runs on a thread of ours. While it does, nothing more is read, and the child
            counts what happens.
    """

    def __init__(self, on_events: Callable[[Sequence[NvmlEvent]], None]) -> None:
        self._on_events = on_events
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self.write_end, False)  # for the children too: they share it
        self._tally = EventTally()
        self._rest = b""
        self._silent: str | None = None
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; what has not been handed out is dropped."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        # A full pipe has woken the thread already, and without a reader it has ended.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self.write_end, b"\n")
        self._thread.join(_CLOSE_S)
        os.close(self.write_end)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        while not self._is_closed.is_set():
            poll.poll()
            self._take(os.read(self._read_end, _CHUNK))
            if self._tally and not self._is_closed.is_set():
                self._hand_out(self._tally.take())
            self._is_closed.wait(FLUSH_S)
        os.close(self._read_end)

    def _take(self, content: bytes) -> None:
        """Count the events of all whole lines."""
        *lines, self._rest = (self._rest + content).split(b"\n")
        for document in (json.loads(line) for line in lines if line):
            if "silent" in document:
                self._tell(document["silent"])
            else:
                self._tally.add(from_plain(NvmlEvent, document, []))

    def _tell(self, reason: str) -> None:
        """Log why there are no events; a child says so with every attempt of its own."""
        if reason != self._silent:
            self._silent = reason
            structlog.get_logger().warning("no events from NVML", reason=reason)

    def _hand_out(self, events: Sequence[NvmlEvent]) -> None:
        try:
            self._on_events(events)
        except Exception:  # noqa: BLE001 - a fault of the reader must not end all later events
            structlog.get_logger().exception("events of GPUs not taken")
