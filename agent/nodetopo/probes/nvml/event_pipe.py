"""The parent's end of the events: one pipe and one thread for all children, past and future."""

import json
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from nodetopo.model.nvml_event import EventKind, NvmlEvent
from nodetopo.model.plain import from_plain
from nodetopo.probes.nvml.tally import FLUSH_S, EventTally

_CHUNK = 1 << 16  # bytes: all that a pipe holds (pipe(7))
_CLOSE_S = 0.5

SILENT_S = 60.0
"""How long GPUs can go without a listener before a warning: the child retries by itself, and if
NVML as a whole fails, the next scan shows that.
"""

FORGET_S = 600.0
"""A silence that was not reported for this long is over. A child reports one with each attempt,
every :data:`nodetopo.probes.nvml.events.MAX_DELAY_S` at least, or with each scan."""

DEATHS_S = 60.0
"""Shortest time between two reported deaths of a child. A child that dies repeatedly is restarted
with the periodic scans: a start costs about 0.3 s of CPU.
"""


class EventPipe:
    """Delivers the children's events to *on_events*, merged, at most ten times a second.

    Args:
        on_events: called on this object's thread. While it runs, reading pauses, and the child
            counts events.
        clock: monotonic seconds, for the time without a listener.
    """

    def __init__(
        self,
        on_events: Callable[[Sequence[NvmlEvent]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_events = on_events
        self._clock = clock
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self.write_end, False)  # for the children too: they share it
        self._is_closed = threading.Event()
        self._silent_since: float | None = None
        self._silent_at = float("-inf")
        self._has_warned = False
        self._epoll = select.epoll()
        self._epoll.register(self._read_end, select.EPOLLIN)
        self._follow_lock = threading.Lock()
        self._followed: int | None = None
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
        self._thread.start()

    def follow(self, output: int | None) -> None:
        """Report :attr:`EventKind.MISSED` when *output* ends: from then on, no process listens.

        Args:
            output: the descriptor of the current child's replies; ``None`` for a child about to be
                ended.
        """
        with self._follow_lock:
            if self._followed is not None:
                self._epoll.unregister(self._followed)
                os.close(self._followed)
            self._followed = None
            if output is not None and not self._is_closed.is_set():
                self._followed = os.dup(output)
                self._epoll.register(self._followed, 0)  # EPOLLHUP alone, which is always reported

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

    def excuse_silence(self) -> None:
        """Let a silence count from its next report on: a scan failed, which explains it."""
        self._silent_since = None

    def _run(self) -> None:
        tally, rest, death = EventTally(), b"", float("-inf")
        while not self._is_closed.is_set():
            ended = [it for it, _ in self._epoll.poll() if it != self._read_end]
            if ended == [self._followed]:  # and not one that was followed before
                self.follow(None)
                if self._clock() - death >= DEATHS_S:
                    death = self._clock()
                    tally.add(NvmlEvent(kind=EventKind.MISSED))
            with suppress(BlockingIOError):
                rest += os.read(self._read_end, _CHUNK)
            *lines, rest = rest.split(b"\n")
            for document in (json.loads(line) for line in lines if line):
                if "silent" not in document:
                    tally.add(from_plain(NvmlEvent, document, []))
                else:
                    self._note_silence(document["silent"])
            if tally and not self._is_closed.is_set():
                try:
                    self._on_events(tally.take())
                except Exception:  # noqa: BLE001 - a failing callback must not end later events
                    structlog.get_logger().exception("events of GPUs not taken")
            self._is_closed.wait(FLUSH_S)
        self.follow(None)  # from now on none is followed any more
        self._epoll.close()
        os.close(self._read_end)

    def _note_silence(self, reason: str) -> None:
        """Warn of a silence that lasts, once, whatever its reasons are."""
        now = self._clock()
        if now - self._silent_at > FORGET_S:
            self._silent_since, self._has_warned = None, False
        self._silent_at = now
        since = self._silent_since  # which another thread can clear
        if since is None:
            since = self._silent_since = now
        if now - since >= SILENT_S and not self._has_warned:
            self._has_warned = True
            cure = "scans find faults all the same, later; see whether the driver supports events"
            structlog.get_logger().warning("no events from NVML", reason=reason, cure=cure)
