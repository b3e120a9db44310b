"""NVML in a child process, so that the parent can answer when NVML does not.

A call stuck in the driver cannot be interrupted, not even by SIGKILL: its process can neither
continue nor end. So the parent never calls NVML. It waits for the child for a bounded time, leaves
a stuck child behind, and never has more than one stuck child.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog
from msgspec.structs import replace

from nodetopo.backoff import Backoff
from nodetopo.errors import NvmlUnavailable
from nodetopo.model.nvml_event import NvmlEvent, NvmlStatus, NvmlTrouble
from nodetopo.model.plain import from_plain
from nodetopo.probes.nvml.event_pipe import EventPipe
from nodetopo.probes.nvml.launch import child_environment, library_file
from nodetopo.probes.nvml.library import NOT_FOUND
from nodetopo.probes.nvml.record import NvmlReading, with_last_known
from nodetopo.probes.process_table import resident_bytes

FIRST_DELAY_S = 1.0
"""Delay before the second attempt; it doubles with every failure in a row."""

MAX_DELAY_S = 60.0
"""Longest delay between attempts; a driver that comes back is noticed within it."""

GROWTH_MIB = 4
"""A child that has grown by this much is replaced. With driver 580.159.04 on an H100 it grows by
0.9 KiB a scan, in the driver's library: at one scan a minute that takes three days."""

SETTLED_ANSWERS = 100
"""Answers after which the size of a child has settled. Until then the interpreter's heap grows by
1 MiB, and hardly afterwards (tests.bench.nvml_growth)."""

REPLACE_RETRY_S = 600.0
"""Delay after a failed attempt to replace a child."""

RETIRE_S = 10.0
"""Longest time for a replaced child to deliver its last events; it needs 0.4 s."""

_EXIT_S = 1.0  # for an idle child, which needs milliseconds
_NO_LIBRARY = (NOT_FOUND, 13)
"""``NVML_ERROR_LIBRARY_NOT_FOUND``, and ``…FUNCTION_NOT_FOUND`` for functions of every driver."""

_STUCK_CURE = (
    "look for NVRM and Xid lines in `dmesg`; the GPU may need a reset, or the node a reboot"
)


class NvmlSupervisor:
    """Scans through a child process, which it replaces when needed; threads can share it.

    A failure needs a new child, and so does memory growth: then the new child reads and listens
    before the old one ends, so that no event is lost or delivered twice.

    Args:
        library: the file ``libnvidia-ml.so.1`` (under any name) or its directory; ``None`` leaves
            it to the loader.
        timeout_s: time limit of a scan; a healthy 8-GPU node needs well under 1 s.
        clock: monotonic seconds, for the waits between attempts.
        on_events: takes NVML's events, from the first reading on, on a thread of this object, ten
            times a second at most; it must return quickly. An event of the kind
            :attr:`EventKind.MISSED` requests a scan. NVML then stays initialised between scans.
            ``None``: no events.
    """

    def __init__(
        self,
        library: Path | None = None,
        *,
        timeout_s: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
        on_events: Callable[[Sequence[NvmlEvent]], None] | None = None,
    ) -> None:
        self._library = library
        self._timeout_s = timeout_s
        self._clock = clock
        self._attempts = Attempts(clock)
        self._events = None if on_events is None else EventPipe(on_events)
        self._lock = threading.Lock()
        self._outcome: NvmlReading | NvmlUnavailable | None = None
        self._last_good: NvmlReading | None = None
        self._decoded = b"", NvmlReading()
        self._child: _Child | None = None
        self._successor: _Child | None = None  # until it has taken over
        self._left: list[_Child] = []  # told to end; remaining ones are stuck
        self._is_listening = False
        self._replace_at = float("-inf")
        self._is_closed = False

    @property
    def status(self) -> NvmlStatus:
        """How the last attempt ended; any thread can read it at any time."""
        return self._attempts.status

    def scan(self) -> NvmlReading:
        """Return NVML's present reading; lost GPUs as last read.

        A call that had to wait for another thread's scan shares its outcome.

        Raises:
            NvmlUnavailable: NVML cannot be loaded or initialised, did not answer in time,
                killed its process, or failed so recently that it is left alone.
        """
        return self._outcome_of("scan")

    def refresh(self) -> NvmlReading:
        """As :meth:`scan`, but take facts that cannot change from the child's last reading.

        The child reads everything if it has no reading, or GPUs, driver or MIG devices changed.

        Raises:
            NvmlUnavailable: as :meth:`scan`.
        """
        return self._outcome_of("refresh")

    def record(self) -> NvmlReading:
        """As :meth:`scan`, together with all calls and their answers.

        Raises:
            NvmlUnavailable: as :meth:`scan`.
        """
        return self._outcome_of("record")

    def release(self) -> bool:
        """End the child, so that the driver can be unloaded; the next scan starts another.

        Returns:
            Whether all children have ended; a child stuck in the driver has not.
        """
        if not self._lock.acquire(timeout=self._timeout_s):
            return False
        try:
            if self._events is not None:
                self._events.follow(None)  # its end is wanted: no event is missed
                self._events.excuse_silence()
            if (child := self._child) is not None:
                child.end_input()
                if not child.has_ended(within_s=_EXIT_S):
                    child.kill()
                self._leave(child)
            for each in self._left:
                each.kill()
                each.has_ended(within_s=_EXIT_S)
            return not self._stuck()
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the child and the events within two seconds; a scan in progress fails."""
        self._is_closed = True
        try:
            children = [child for child in (self._child, self._successor) if child is not None]
            for child in children:
                child.end_input()
            if not self._lock.acquire(timeout=_EXIT_S / 4):
                for child in children:
                    child.kill()  # the scan in progress then meets the end of the child's output
                if not self._lock.acquire(timeout=_EXIT_S / 4):
                    return  # stuck in the driver; the scan ends by its own timeout
            try:
                for each in (*children, *self._left):
                    if not each.has_ended(within_s=_EXIT_S / 4):
                        each.kill()
                        each.free_later()
                self._child, self._left = None, []
            finally:
                self._lock.release()
        finally:
            if self._events is not None:
                self._events.close()

    def _outcome_of(self, request: str) -> NvmlReading:
        seen = self._outcome
        if not self._lock.acquire(timeout=self._timeout_s):
            raise self._no_answer()
        try:
            if self._outcome is seen or request == "record":
                self._outcome = self._attempt(request)
            outcome = self._outcome
        finally:
            self._lock.release()
        if isinstance(outcome, NvmlUnavailable):
            raise NvmlUnavailable(outcome.cause, outcome.cure, code=outcome.code)
        assert outcome is not None
        return outcome

    def _attempt(self, request: str) -> NvmlReading | NvmlUnavailable:
        try:
            reading = None
            if request != "record" and self._has_grown():
                reading = self._replace()
            if reading is None:
                reading = self._ask(self._ready_child(), request)
        except NvmlUnavailable as error:
            if self._events is not None:
                self._events.excuse_silence()
            return error
        self._attempts.succeeded()
        self._last_good = with_last_known(reading, self._last_good)
        return self._last_good

    def _ready_child(self) -> "_Child":
        """Return a child that accepts requests, a new child if needed and allowed."""
        if self._child is not None and not self._child.is_over():
            return self._child
        if self._is_closed:
            raise NvmlUnavailable("the NVML process has been closed")
        self._attempts.check()

        # An earlier child that is still stuck is another answer that is missing.
        for stuck in self._stuck():
            stuck.kill()
            if not stuck.has_ended(within_s=min(_EXIT_S, self._timeout_s) / 4):
                cause = f"a call is stuck in the NVIDIA driver (process {stuck.pid})"
                error = NvmlUnavailable(cause, _STUCK_CURE)
                raise self._attempts.failed(NvmlTrouble.NO_ANSWER, error)

        try:
            self._child = self._started()
        except NvmlUnavailable as error:
            raise self._attempts.missed(NvmlTrouble.NO_LIBRARY, error) from None
        except OSError as error:  # e.g. EAGAIN, at the pod's limit of processes
            cause = f"cannot start the process that reads NVML: {error.strerror}"
            unavailable = NvmlUnavailable(cause, "check the process limit")
            raise self._attempts.failed(NvmlTrouble.DIED, unavailable) from None
        if self._events is not None:
            self._events.follow(self._child.output)
        return self._child

    def _started(self) -> "_Child":
        """Start a child."""
        library = None if self._library is None else library_file(self._library)
        return _Child(library, None if self._events is None else self._events.write_end)

    def _has_grown(self) -> bool:
        """Return whether to replace the grown child now, which a stuck child forbids."""
        child = self._child
        return (
            child is not None
            and not child.has_ended()
            and child.growth >= GROWTH_MIB << 20
            and self._clock() >= self._replace_at
            and not self._stuck()
            and not self._is_closed
        )

    def _replace(self) -> NvmlReading | None:
        """Replace the present child by a new one, and return its first reading.

        Returns:
            ``None`` if the new child failed and the present one stays, which is no failure of NVML.
        """
        old = self._child
        assert old is not None
        self._replace_at = self._clock() + REPLACE_RETRY_S
        try:
            new = self._successor = self._started()
        except (NvmlUnavailable, OSError):
            return None
        line = new.ask("succeed", self._timeout_s)
        self._successor = None
        document = json.loads(line) if line else {}
        if "ok" not in document or document.get("listening", False) < self._is_listening:
            self._end(new)
            return None
        self._child, self._replace_at = new, float("-inf")
        if self._events is not None:
            self._events.follow(new.output)
            until = json.loads(old.ask("retire", RETIRE_S) or b"{}").get("ok")
            new.ask("release" if until is None else f"release {until!r}", self._timeout_s)
        old.end_input()
        if not old.has_ended(within_s=_EXIT_S):
            self._end(old)
        structlog.get_logger().info(
            "NVML process replaced", grown_mib=round(old.growth / (1 << 20), 1)
        )
        assert line is not None
        return self._decode(line, document)

    def _ask(self, child: "_Child", request: str) -> NvmlReading:
        line = child.ask(request, self._timeout_s)
        if line is None:
            self._leave(child)
            raise self._attempts.failed(NvmlTrouble.NO_ANSWER, self._no_answer())
        if not line:
            self._child = None
            if not child.has_ended(within_s=_EXIT_S):
                self._leave(child)
            died = NvmlUnavailable(f"the NVML process {child.end}", "look for its cause in `dmesg`")
            raise self._attempts.failed(NvmlTrouble.DIED, died)
        if line == self._decoded[0]:  # an unchanged node spares us the decoding
            return self._decoded[1]
        document = json.loads(line)
        if "ok" in document:
            return self._decode(line, document)
        # A new process reloads the library: the driver may have been replaced.
        self._leave(child)
        raise self._attempts.refused(NvmlUnavailable(**document["error"]))

    def _decode(self, line: bytes, document: dict[str, Any]) -> NvmlReading:
        reading = from_plain(NvmlReading, document["ok"], [], is_bounded=False)
        self._decoded = line, replace(reading, answers=document.get("answers", ""))
        self._is_listening = document.get("listening", False)
        return self._decoded[1]

    def _leave(self, child: "_Child") -> None:
        """End *child*, the present one."""
        if self._events is not None:
            self._events.follow(None)
        self._child = None
        self._end(child)

    def _end(self, child: "_Child") -> None:
        """Ask *child* to end; if it does not react, it is stuck."""
        child.end_input()
        child.terminate()
        self._left.append(child)
        if self._is_closed:  # no later attempt will free it
            child.free_later()

    def _stuck(self) -> "list[_Child]":
        """Return the children that have not ended as asked; hardly ever two."""
        self._left = [child for child in self._left if not child.has_ended()]
        return self._left

    def _no_answer(self) -> NvmlUnavailable:
        return NvmlUnavailable(f"NVML did not answer within {self._timeout_s:g} s", _STUCK_CURE)


class _Child:
    """One NVML process and the two pipes to it.

    Args:
        events: the descriptor for events; ``None`` if no events are wanted.
    """

    def __init__(self, library: Path | None, events: int | None) -> None:
        arguments = ("" if value is None else str(value) for value in (library, events))
        self._process = subprocess.Popen(
            # Without `site`, whose .pth files can import anything: our path has all directories.
            [sys.executable, "-S", "-P", "-m", "nodetopo.probes.nvml", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=child_environment(),
            pass_fds=() if events is None else (events,),
            start_new_session=True,  # Ctrl-C is for the parent, who then ends the child
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self.output = self._process.stdout.fileno()  # the descriptor of its replies
        # Bytes by which the child had grown at its last reply; 0 until its size has settled.
        self.growth = 0
        self._answers = 0
        self._settled: int | None = None  # its resident bytes then

    def ask(self, request: str, timeout_s: float) -> bytes | None:
        """Return the reply line; empty if the process ended first, ``None`` after *timeout_s*."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(request.encode() + b"\n")
        except (OSError, ValueError):  # EPIPE; EBADF or ValueError: close() ends it now, or did
            return b""
        line = read_line(self.output, timeout_s)
        if line:
            self._answers += 1
            size = resident_bytes(self.pid) if self._answers >= SETTLED_ANSWERS else None
            if self._answers == SETTLED_ANSWERS:
                self._settled = size
            if size is not None and self._settled is not None:
                self.growth = size - self._settled
        return line

    def end_input(self) -> None:
        """Let the child end by itself when it is done."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def terminate(self) -> None:
        """Send SIGTERM; the driver decides whether the child ends."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def is_over(self) -> bool:
        """Return whether the child has ended or is about to: its output ends a moment before."""
        poll = select.poll()
        if self._process.stdout is not None and not self._process.stdout.closed:
            poll.register(self._process.stdout, 0)  # POLLHUP alone, which is always reported
        return self.has_ended(within_s=_EXIT_S if poll.poll(0) else 0)

    def has_ended(self, within_s: float | None = 0.0) -> bool:
        """Return whether the child ends within *within_s* (None: wait forever); free its pipes."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        self.end_input()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return True

    def free_later(self) -> None:
        """Free the pipes and the process table entry once the child has ended."""
        if not self.has_ended(within_s=_EXIT_S / 4):
            threading.Thread(target=self.has_ended, args=(None,), daemon=True).start()

    @property
    def end(self) -> str:
        """How the child ended, as the rest of a sentence."""
        code = self._process.returncode
        if code is None:
            return "closed its output"
        return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"


class Attempts:
    """Counts failures and delays the next attempt; any thread can read :attr:`status`.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._backoff = Backoff(FIRST_DELAY_S, MAX_DELAY_S)
        self._not_before = float("-inf")
        self._last: NvmlUnavailable | None = None
        self.status = NvmlStatus()

    def check(self) -> None:
        """Raise the last error again while the next attempt is delayed; that is no failure."""
        wait = self._not_before - self._clock()
        if wait <= 0 or self._last is None:
            return
        # The cause stays as it is: it goes into snapshots, which must not differ by the seconds
        # that are left.
        cure = f"{self._last.cure}; next attempt in {wait:.0f} s"
        raise NvmlUnavailable(self._last.cause, cure, code=self._last.code)

    def succeeded(self) -> None:
        """Reset failures and delay."""
        self._backoff.reset()
        self.status = NvmlStatus()

    def refused(self, error: NvmlUnavailable) -> NvmlUnavailable:
        """As :meth:`failed`, with the trouble meant by the code of *error*."""
        has_library = error.code not in _NO_LIBRARY
        trouble = NvmlTrouble.REFUSED if has_library else NvmlTrouble.NO_LIBRARY
        self.failed(trouble, error)
        if has_library:
            self.status = replace(self.status, code=error.code)
        return error

    def failed(self, trouble: NvmlTrouble, error: NvmlUnavailable) -> NvmlUnavailable:
        """Count a failure, delay the next attempt, return *error*."""
        self.missed(trouble, error)
        self._last = error
        self._not_before = self._clock() + self._backoff.next_s()
        return error

    def missed(self, trouble: NvmlTrouble, error: NvmlUnavailable) -> NvmlUnavailable:
        """Count a failure that cost nothing: the next attempt is not delayed."""
        self.status = NvmlStatus(
            trouble=trouble,
            failures=self.status.failures + 1,
            cause=error.cause,
            cure=error.cure or None,
        )
        return error


def read_line(descriptor: int, timeout_s: float) -> bytes | None:
    """Return the bytes of *descriptor* up to the end of a line.

    Empty if the output ends first, ``None`` if *timeout_s* passes first.
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
