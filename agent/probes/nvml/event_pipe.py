"""The parent's end of the events: one pipe and one thread, whatever becomes of the children."""

import json
import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from agent.model.codec import from_plain
from agent.model.nvml_event import EventKind, NvmlEvent

# Events joined by what they are, so that a storm of them stays as small as its variety.

FLUSH_S = 0.1
"""Shortest time between two deliveries: ten a second are prompt, and cheap in a storm."""


MAX_KEYS = 1024
"""Most different events that are told apart between two deliveries. 64 GPUs with a dozen codes
each are fewer; a storm of 800,000 XID lines had 29 (NVIDIA/NVSentinel #1120)."""


UNKNOWN_XID = 999
"""The code that NVML gives for an XID it does not know (nvml.h, ``nvmlEventData_t``)."""


class EventTally:
    """Counts events until they are taken; for one thread.

    Beyond :data:`MAX_KEYS` the XIDs of a GPU are told apart no more, and counted as
    :data:`UNKNOWN_XID`: none is lost, and memory is bounded by the number of GPUs.
    """

    def __init__(self) -> None:
        self._counts: dict[NvmlEvent, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, event: NvmlEvent) -> None:
        """Count *event* as often as it says."""
        key = replace(event, count=1)
        if len(self._counts) >= MAX_KEYS and key not in self._counts:
            key = replace(key, xid=UNKNOWN_XID if key.kind is EventKind.XID else None)
        self._counts[key] = self._counts.get(key, 0) + event.count

    def take(self) -> tuple[NvmlEvent, ...]:
        """Return what was counted, first come first, and start over."""
        taken = tuple(replace(key, count=count) for key, count in self._counts.items())
        self._counts.clear()
        return taken


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
