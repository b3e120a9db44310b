"""One line of a child's, waited for no longer than its time."""

import os
import select
import time


def read_line(descriptor: int, timeout_s: float) -> bytes | None:
    """Return what *descriptor* gives up to the end of a line.

    Empty if it ends before, ``None`` if *timeout_s* passes before.
    """
    deadline = time.monotonic() + timeout_s
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    line = bytearray()
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        chunk = os.read(descriptor, 1 << 16)
        line += chunk
        if not chunk:
            return b""
        if line.endswith(b"\n"):
            return bytes(line)
    return None
