"""The process that NVML runs in: ``python -m agent.probes.nvml.child [LIBRARY] [--events FD]``.

One request a line on standard input; one JSON document a line on standard output, ``{"ok":
reading}`` or ``{"error": {"cause": …, "cure": …, "code": …}}``. Requests:

- ``scan`` reads everything;
- ``refresh`` reads what changes and takes the rest from the last reading, which is kept here;
- ``record`` reads everything, and adds ``"answers"``: all calls of it, written down.

With a descriptor for events, it listens for them from its first reading on
(:mod:`agent.probes.nvml.events`).

It ends when its input does, which is also how it notices that its parent died, even while a
call hangs in the driver.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any, TextIO

from agent.errors import NvmlUnavailable
from agent.model.codec import to_plain
from agent.probes.nvml.events import EventListener
from agent.probes.nvml.library import load
from agent.probes.nvml.reading import NvmlReading, read_nvml, refresh_nvml
from agent.probes.nvml.recorder import Recorder

GRACE_S = 2.0
"""How long a scan in progress may go on after the parent has closed our input."""


def main() -> None:
    """Answer requests until the input ends."""
    arguments = _arguments()
    replies = _claim_stdout()
    listener = None if arguments.events is None else EventListener(arguments.events)
    reader = _Reader(arguments.library, listener)
    for request in _requests():
        replies.write(json.dumps(reader.answer(request)) + "\n")
        replies.flush()
    if listener is not None:
        listener.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", nargs="?")
    parser.add_argument("--events", type=int)
    return parser.parse_args()


def _claim_stdout() -> TextIO:
    """Keep standard output for replies and send what a driver prints there to standard error."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return replies


def _requests() -> Iterator[str]:
    """Yield request lines; when they end, this process ends within :data:`GRACE_S`."""
    lines: SimpleQueue[str | None] = SimpleQueue()
    threading.Thread(target=_read_requests, args=(lines,), daemon=True).start()
    while (line := lines.get()) is not None:
        yield line


def _read_requests(lines: SimpleQueue[str | None]) -> None:
    for line in sys.stdin:
        lines.put(line.strip())
    lines.put(None)
    time.sleep(GRACE_S)
    os._exit(1)  # the main thread is stuck in a driver call; only a daemon thread is left to say so


class _Reader:
    """Answers requests, and keeps the last reading for the next one."""

    def __init__(self, library: str | None, listener: EventListener | None) -> None:
        self._library = library
        self._listener = listener
        self._last: NvmlReading | None = None

    def answer(self, request: str) -> dict[str, Any]:
        try:
            if self._library is not None:
                load(self._library)
            reply = self._read(request)
        except NvmlUnavailable as error:
            self._last = None
            return _error(error)
        if self._listener is not None and self._last is not None:
            self._listener.watch(self._last)
        return reply

    def _read(self, request: str) -> dict[str, Any]:
        match request:
            case "scan":
                self._last = self._whole()
            case "refresh":
                self._last = self._refreshed()
            case "record":
                recorder = Recorder()
                with self._alone():
                    self._last = read_nvml(recorder.around)
                return {"ok": to_plain(self._last), "answers": recorder.text}
            case _:
                raise NvmlUnavailable(f"unknown request {request!r}")
        return {"ok": to_plain(self._last)}

    def _whole(self) -> NvmlReading:
        with self._alone():
            return read_nvml()

    def _refreshed(self) -> NvmlReading:
        if self._last is None:
            return self._whole()
        if any(gpu.is_lost for gpu in self._last.gpus):  # it may be back
            with self._alone():
                return refresh_nvml(self._last)
        return refresh_nvml(self._last)

    def _alone(self) -> AbstractContextManager[None]:
        """Let NVML look for GPUs anew, which it does for the first user of a process."""
        return nullcontext() if self._listener is None else self._listener.paused()


def _error(error: NvmlUnavailable) -> dict[str, Any]:
    return {"error": {"cause": error.cause, "cure": error.cure, "code": error.code}}


if __name__ == "__main__":
    main()
