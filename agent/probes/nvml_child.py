"""The process that NVML runs in: ``python -m agent.probes.nvml_child [LIBRARY]``.

One request a line on standard input, ``scan``; one JSON document a line on standard output,
``{"ok": reading}`` or ``{"error": {"cause": …, "cure": …}}``. It ends when its input does,
which is also how it notices that its parent died, even while a call hangs in the driver.
"""

import ctypes
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
from agent.probes.nvml import read_nvml

GRACE_S = 2.0
"""How long a scan in progress may go on after the parent has closed our input."""

SONAME = "libnvidia-ml.so.1"
"""What ``pynvml`` asks the loader for; it knows no path."""


def main() -> None:
    """Answer requests until the input ends."""
    replies = _claim_stdout()
    library = sys.argv[1] if len(sys.argv) > 1 else None
    for request in _requests():
        replies.write(json.dumps(_answer(request, library)) + "\n")
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


def _answer(request: str, library: str | None) -> dict[str, Any]:
    if request != "scan":
        return _error(NvmlUnavailable(f"unknown request {request!r}"))
    try:
        if library is not None:
            _load(library)
        return {"ok": to_plain(read_nvml())}
    except NvmlUnavailable as error:
        return _error(error)


def _error(error: NvmlUnavailable) -> dict[str, Any]:
    return {"error": {"cause": error.cause, "cure": error.cure}}


def _load(library: str) -> None:
    """Load the library at that path, so that the loader finds it by name from then on.

    A search path (``LD_LIBRARY_PATH``) would do too, but would make this interpreter take
    its other libraries from there: with a mounted host directory, the host's libc.

    Raises:
        NvmlUnavailable: not loadable, or not known to the loader as ``libnvidia-ml.so.1``.
    """
    cure = "name the driver's library, or its directory, with --nvml-library"
    try:
        ours = ctypes.CDLL(library)
    except OSError as error:
        raise NvmlUnavailable(f"cannot load {SONAME} from {library}: {error}", cure) from None
    try:
        named = ctypes.CDLL(SONAME)
    except OSError:
        named = None
    if named is None or named._handle != ours._handle:  # noqa: SLF001 - ctypes' only identity
        raise NvmlUnavailable(f"{library} is not {SONAME}: its SONAME differs", cure)


if __name__ == "__main__":
    main()
