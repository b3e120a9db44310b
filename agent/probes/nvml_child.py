"""The process that NVML runs in: ``python -m agent.probes.nvml_child [LIBRARY]``.

One request a line on standard input; one JSON document a line on standard output, ``{"ok":
reading}`` or ``{"error": {"cause": …, "cure": …}}``. Requests:

- ``scan`` reads everything;
- ``refresh`` reads what changes and takes the rest from the last reading, which is kept here;
- ``record`` reads everything, and adds ``"answers"``: all calls of it, written down.

It ends when its input does, which is also how it notices that its parent died, even while a
call hangs in the driver.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, TextIO

from agent.errors import NvmlUnavailable
from agent.model.codec import to_plain
from agent.probes.nvml import NvmlReading, read_nvml, refresh_nvml
from agent.probes.nvml_library import load
from agent.probes.nvml_record import Recorder

GRACE_S = 2.0
"""How long a scan in progress may go on after the parent has closed our input."""


def main() -> None:
    """Answer requests until the input ends."""
    replies = _claim_stdout()
    reader = _Reader(sys.argv[1] if len(sys.argv) > 1 else None)
    for request in _requests():
        replies.write(json.dumps(reader.answer(request)) + "\n")
        replies.flush()


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

    def __init__(self, library: str | None) -> None:
        self._library = library
        self._last: NvmlReading | None = None

    def answer(self, request: str) -> dict[str, Any]:
        try:
            if self._library is not None:
                load(self._library)
            return self._read(request)
        except NvmlUnavailable as error:
            self._last = None
            return _error(error)

    def _read(self, request: str) -> dict[str, Any]:
        match request:
            case "scan":
                self._last = read_nvml()
            case "refresh":
                self._last = read_nvml() if self._last is None else refresh_nvml(self._last)
            case "record":
                recorder = Recorder()
                self._last = read_nvml(recorder.around)
                return {"ok": to_plain(self._last), "answers": recorder.text}
            case _:
                raise NvmlUnavailable(f"unknown request {request!r}")
        return {"ok": to_plain(self._last)}


def _error(error: NvmlUnavailable) -> dict[str, Any]:
    return {"error": {"cause": error.cause, "cure": error.cure}}


if __name__ == "__main__":
    main()
