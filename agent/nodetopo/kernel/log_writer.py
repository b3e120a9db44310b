"""Writes the daemon's log without ever making the daemon wait.

Standard error leads to a runtime, a journal or a disk, any of which can stall, end or fill up. One
thread writes to it from a bounded queue; every other thread only appends to that queue.
"""

import io
import os
import select
import stat
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import TextIO

import structlog

LOG_FILE = "log"
"""Beside the health file: the last lines of the log, which ``nodetopo support`` takes."""

OLDER = ".1"
"""Ends the name of the file with the lines before those."""

LOG_BYTES = 128 << 10
"""Of each of the two files; some 500 lines. They are on tmpfs, and so is their memory."""

QUEUE_BYTES = 256 << 10
"""Most that waits to be written, some 1,000 lines; lines beyond it are dropped."""

CHUNK_BYTES = 4096
"""A pipe that polls as writable takes this many bytes without blocking (pipe(7), PIPE_BUF)."""

STALLED_S = 0.1
"""How often a stalled stream lets the thread look for new lines, which the copy still takes."""

STDERR = 2


class LogWriter:
    """A text stream for structlog that queues lines and writes them in one thread.

    A line that exceeds the queue, or that standard error refuses, is dropped and counted. Once
    writing works again, a log line reports the number lost.

    Args:
        stream: destination of lines; ``None`` looks up standard error for each line.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        """Start no thread before the first line."""
        self._stream = stream
        self._changed = Condition()  # guards everything below
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self.dropped = 0  # how many lines were lost since the start
        self._reported = 0
        self._thread: Thread | None = None
        self._copy: LogCopy | None = None
        self._unwritten: deque[bytes] = deque()  # of the thread alone, as is all that follows
        self._written = 0  # bytes of the first of them

    def keep_copy(self, path: Path) -> None:
        """Keep the last lines in *path* too, from the next line on."""
        with self._changed:
            self._copy = LogCopy(path)

    def write(self, text: str) -> int:
        """Queue *text*, the lines of one event; return its length. Never blocks, never fails."""
        line = text.encode("utf-8", "replace")
        with self._changed:
            if self._waiting_bytes + len(line) > QUEUE_BYTES:
                self.dropped += 1
                return len(text)
            self._lines.append(line)
            self._waiting_bytes += len(line)
            if self._thread is None:
                thread = Thread(target=self._run, name="log", daemon=True)
                with suppress(RuntimeError):  # at the limit of threads: the next line tries again
                    thread.start()
                    self._thread = thread
            self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Do nothing: structlog flushes after each line and must not wait."""

    def drain(self, seconds: float) -> bool:
        """Wait up to *seconds* for an empty queue; return whether it is empty."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting_bytes == 0, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._unwritten)
                fresh, copy = tuple(self._lines), self._copy
                self._lines.clear()
            self._unwritten.extend(fresh)
            if copy is not None:
                for line in fresh:
                    copy.keep(line)
            self._write_out()

    def _write_out(self) -> None:
        """Write queued lines; return early while the stream is blocked."""
        is_lost = True  # nothing is reported before a line got through
        while self._unwritten:
            line = self._unwritten[0]
            try:
                self._written += self._write_some(line[self._written :])
                is_lost = False
            except BlockingIOError:
                return
            except (OSError, ValueError):  # EPIPE, ENOSPC, EIO; ValueError of a closed file
                is_lost = True
            if is_lost or self._written >= len(line):
                self._finish(line, is_lost=is_lost)
        if not is_lost and self.dropped != self._reported:
            lost, self._reported = self.dropped - self._reported, self.dropped
            structlog.get_logger().warning("log lines dropped", lines=lost)

    def _write_some(self, data: bytes) -> int:
        """Write the start of *data*; return how many bytes the stream took."""
        stream = sys.stderr if self._stream is None else self._stream
        try:
            descriptor = stream.fileno()
        except (io.UnsupportedOperation, AttributeError):  # no file behind it, as in tests
            return stream.write(data.decode("utf-8", "replace")) and len(data)
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        if not poll.poll(STALLED_S * 1000):
            raise BlockingIOError
        return os.write(descriptor, data[:CHUNK_BYTES])

    def _finish(self, line: bytes, *, is_lost: bool) -> None:
        self._unwritten.popleft()
        self._written = 0
        with self._changed:
            self._waiting_bytes -= len(line)
            self.dropped += is_lost
            self._changed.notify_all()


class LogCopy:
    """The last lines of the log in a private file, for a person who asks later.

    The file is never followed through a link, and made again where it was removed. What cannot be
    kept is left out.
    """

    def __init__(self, path: Path) -> None:
        """Open *path*, and the directory that it is in if need be."""
        self._path = path
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._bytes = 0
        with suppress(OSError):
            self._open()

    def keep(self, line: bytes) -> None:
        """Append *line*, if that works."""
        with suppress(OSError):
            self._keep(line)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(self._path, flags | os.O_CLOEXEC, 0o600)
        status = os.fstat(self._descriptor)
        self._identity, self._bytes = (status.st_dev, status.st_ino), status.st_size

    def _keep(self, line: bytes) -> None:
        if self._descriptor is None or not self._is_in_place():
            self.close()
            self._open()
        if self._bytes + len(line) > LOG_BYTES:
            self.close()
            with suppress(OSError):
                self._path.replace(self._path.with_name(self._path.name + OLDER))
            self._open()
        assert self._descriptor is not None, "it was opened"
        if self._bytes + len(line) > LOG_BYTES:  # it could not be renamed
            os.ftruncate(self._descriptor, 0)
            self._bytes = 0
        self._bytes += os.write(self._descriptor, line[:LOG_BYTES])

    def _is_in_place(self) -> bool:
        """Return whether the path still leads to the open file: a person may have removed it."""
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            return False
        except OSError:  # a closed directory, in which no other file could be opened
            return True
        return (status.st_dev, status.st_ino) == self._identity


def unblock_stderr() -> None:
    """Make writes to standard error by other code fail instead of block, where it can stall.

    C libraries and the NVML process write to it too. Standard error is reopened, because its flags
    are shared with every process that inherited it. Where the kernel or the owner of a pipe forbids
    that, standard error stays unchanged, and only the log cannot block.
    """
    try:
        mode = os.fstat(STDERR).st_mode
        if not stat.S_ISFIFO(mode) and not os.isatty(STDERR):
            return
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_APPEND
        again = os.open(f"/proc/self/fd/{STDERR}", flags)
    except OSError:
        return
    os.dup2(again, STDERR)
    os.close(again)
