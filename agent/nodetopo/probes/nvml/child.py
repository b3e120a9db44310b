"""The process that calls NVML: ``python -m nodetopo.probes.nvml LIBRARY EVENTS``.

*LIBRARY* is a path, *EVENTS* the descriptor for events; either can be empty.

It reads one request per line from standard input and writes one JSON document per line to standard
output: ``{"ok": reading}`` or ``{"error": {"cause": …, "cure": …, "code": …}}``. Requests:

- ``scan`` reads everything;
- ``refresh`` reads changing facts and takes the rest from the last reading, which is kept here;
- ``record`` reads everything and adds ``"answers"``, a transcript of all calls.

Given a descriptor for events, it listens for them from its first reading on
(:mod:`nodetopo.probes.nvml.events`), and adds ``"listening"`` to a reading. Three more requests let
a process replace another without losing or repeating an event:

- ``succeed``, the first one to the new process, is a ``scan``, and keeps events back;
- ``retire`` ends the old one's listening, ``{"ok": until}`` is the time until which it heard
  everything;
- ``release [UNTIL]`` lets the new one deliver later events.

It ends when its input does, so it also ends when its parent dies, even while a call hangs in the
driver.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from nodetopo.errors import NvmlUnavailable
from nodetopo.footprint import give_back
from nodetopo.model.plain import to_plain
from nodetopo.probes.nvml.events import EventListener
from nodetopo.probes.nvml.library import load
from nodetopo.probes.nvml.reading import read_nvml, refresh_nvml
from nodetopo.probes.nvml.record import NvmlReading
from nodetopo.probes.nvml.recorder import Recorder

GRACE_S = 2.0
"""How long a scan in progress can continue after the parent has closed our input."""


def main() -> None:
    """Answer requests until the input ends."""
    library, events = sys.argv[1:]
    # Standard output is for replies only: a driver's prints go to standard error.
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    listener = EventListener(int(events)) if events else None
    reader = _Reader(library or None, listener)
    for request in _requests():
        replies.write(json.dumps(reader.answer(request)) + "\n")
        replies.flush()
        give_back()
    if listener is not None:
        listener.close()


class _Reader:
    """Answers requests and keeps the last reading for the next refresh."""

    def __init__(self, library: str | None, listener: EventListener | None) -> None:
        self._library = library
        self._listener = listener
        self._last: NvmlReading | None = None

    def answer(self, request: str) -> dict[str, Any]:
        """Return the reply to *request*."""
        match request.split():
            case ["retire"] if self._listener is not None:
                return {"ok": self._listener.retire()}
            case ["release", *until] if self._listener is not None:
                self._listener.release(float(until[0]) if until else None)
                return {"ok": None}
            case ["succeed"] if self._listener is not None:
                self._listener.hold()
        try:
            return self._read("scan" if request == "succeed" else request)
        except NvmlUnavailable as error:
            self._last = None
            return {"error": {"cause": error.cause, "cure": error.cure, "code": error.code}}

    def _read(self, request: str) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self._library is not None:
            load(self._library)
        known = self._last if request == "refresh" else None
        if self._listener is not None:
            # NVML looks for GPUs only when a process initialises it first.
            is_anew = known is None or any(gpu.is_lost for gpu in known.gpus)
            extra["listening"] = self._listener.prepare(anew=is_anew)
        match request:
            case "refresh" if known is not None:
                self._last = refresh_nvml(known)
            case "scan" | "refresh":
                self._last = read_nvml()
            case "record":
                recorder = Recorder()
                self._last = read_nvml(recorder.around)
                extra["answers"] = recorder.text
            case _:
                raise NvmlUnavailable(f"unknown request {request!r}")
        if self._listener is not None:
            self._listener.watch(self._last)
        return {"ok": to_plain(self._last), **extra}


def _requests() -> Iterator[str]:
    """Yield request lines; when they end, this process ends within :data:`GRACE_S`."""
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line.strip())
        lines.put(None)
        time.sleep(GRACE_S)
        os._exit(1)  # still here: the main thread is stuck in a driver call

    threading.Thread(target=read, daemon=True).start()
    while (line := lines.get()) is not None:
        yield line
