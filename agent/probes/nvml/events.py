"""Listen for what NVML tells by itself, in a thread of the NVML child.

Events are joined and written as JSON lines to a pipe of their own. While the thread listens,
NVML stays initialised in this process; scans that must see every GPU anew are made in
:meth:`EventListener.paused`.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent.errors import NvmlUnavailable
from agent.model.codec import to_plain
from agent.probes.nvml.nvml_event_set import GPU_IS_LOST, EventsRefused, GpuEventSet, event_set
from agent.probes.nvml.nvml_tally import FLUSH_S, EventTally
from agent.probes.nvml.reading import NvmlReading, nvml_session

WAIT_MS = 100
"""Longest single wait, and so about the time in which the thread hears that it should stop."""

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 60.0
"""Pauses before the GPUs are registered again after an error, doubling in between."""

LOST_IN_A_ROW = 30
"""After so many waits that answered GPU_IS_LOST all GPUs are registered again, which the lost one
refuses: it might hide the events of the others."""

STALLED_S = 30.0
"""A registration or a wait that takes longer hangs; either should take :data:`WAIT_MS` or less."""

PAUSE_S = 1.0
"""How long is waited for the thread to give NVML up; longer means that it hangs."""


class EventListener:
    """Listens to the GPUs of the last reading.

    Nothing that goes wrong here says anything about a GPU: the thread tries again, less and less
    often, and says why it is silent.

    Args:
        out: the descriptor that lines go to, an event each, or ``{"silent": reason}``. It must
            not block: while it is full, events are counted here and none is lost.
    """

    def __init__(self, out: int) -> None:
        self._out = out
        self._tally = EventTally()
        self._change = threading.Condition()
        self._gpus: tuple[str | None, ...] = ()
        self._version = 0  # of what is wanted; the thread gives up what it began for an older one
        self._is_paused = False
        self._is_stopped = False
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._alive_at = time.monotonic()
        self._thread: threading.Thread | None = None

    def watch(self, reading: NvmlReading) -> None:
        """Listen to the GPUs of *reading* from now on; only others are registered anew."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
            self._thread.start()
        gpus = tuple(gpu.uuid for gpu in reading.gpus)
        if gpus != self._gpus:
            with self._changed():
                self._gpus = gpus
        if not self._is_idle.is_set() and time.monotonic() - self._alive_at > STALLED_S:
            self._write({"silent": "a call that waits for events hangs in the driver"})

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Give NVML up meanwhile, so that whoever comes next initialises it anew.

        What happens during the pause is no event. A call that hangs is not waited for.
        """
        with self._changed():
            self._is_paused = True
        self._is_idle.wait(PAUSE_S)
        try:
            yield
        finally:
            with self._changed():
                self._is_paused = False

    def close(self) -> None:
        """End the thread, if the driver lets it end."""
        with self._changed():
            self._is_stopped = True
        if self._thread is not None:
            self._thread.join(PAUSE_S)

    @contextmanager
    def _changed(self) -> Iterator[None]:
        with self._change:
            yield
            self._version += 1
            self._change.notify_all()

    def _run(self) -> None:
        delay_s = FIRST_DELAY_S
        while (version := self._next()) is not None:
            began = time.monotonic()
            try:
                with nvml_session() as session:
                    self._listen(session.nvml, version)
            except NvmlUnavailable:
                pass  # the scans say so
            except EventsRefused as error:
                self._write({"silent": str(error)})
            finally:
                self._is_idle.set()
            if time.monotonic() - began > MAX_DELAY_S:
                delay_s = FIRST_DELAY_S
            is_changed = self._is_changed_within(version, delay_s)
            delay_s = FIRST_DELAY_S if is_changed else min(MAX_DELAY_S, delay_s * 2)

    def _next(self) -> int | None:
        """Wait until there is something to listen to; ``None`` at the end."""
        with self._change:
            self._change.wait_for(
                lambda: self._is_stopped or (self._gpus and not self._is_paused),
            )
            if self._is_stopped:
                return None
            self._is_idle.clear()
            self._alive_at = time.monotonic()
            return self._version

    def _is_changed_within(self, version: int, seconds: float) -> bool:
        with self._change:
            return self._change.wait_for(lambda: self._version != version, seconds)

    def _listen(self, nvml: Any, version: int) -> None:
        """Pass events on until something else is wanted."""
        flushed = float("-inf")
        lost = 0
        try:
            with event_set(nvml, self._gpus) as events:
                while self._version == version:
                    self._alive_at = now = time.monotonic()
                    if self._tally and now - flushed >= FLUSH_S:
                        self._flush()
                        flushed = now
                    lost = 0 if self._take(events, is_patient=lost < LOST_IN_A_ROW) else lost + 1
        finally:
            self._flush()  # also what an error would keep here until the next attempt succeeds

    def _take(self, events: GpuEventSet, *, is_patient: bool) -> bool:
        """Count the next event; return false if a lost GPU was all that NVML spoke of."""
        try:
            event = events.wait(WAIT_MS)
        except EventsRefused as error:
            if error.code != GPU_IS_LOST or not is_patient:
                raise
            time.sleep(WAIT_MS / 1000)
            return False
        if event is not None:
            self._tally.add(event)
        return True

    def _flush(self) -> None:
        """Write what was counted; what the pipe does not take is counted on."""
        events = self._tally.take()
        written = 0
        while written < len(events) and self._write(to_plain(events[written])):
            written += 1
        for event in events[written:]:
            self._tally.add(event)

    def _write(self, document: dict[str, Any]) -> bool:
        """Write one line, which a pipe takes as a whole or not at all (PIPE_BUF, pipe(7))."""
        try:
            os.write(self._out, json.dumps(document).encode() + b"\n")
        except BlockingIOError:
            return False
        except OSError:  # nobody reads any more
            return True
        return True
