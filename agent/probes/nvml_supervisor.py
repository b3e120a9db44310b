"""Keep NVML in a child process, and stay able to answer when it does not.

A call stuck in the driver cannot be interrupted, not even by SIGKILL: the process that made it
can neither go on nor end. So the parent never makes one. It waits for the child for a bounded
time, leaves a stuck one behind, and never has more than one of those.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.errors import NvmlUnavailable
from agent.model.codec import from_plain
from agent.probes.nvml import NvmlReading, with_last_known
from agent.probes.nvml_library import library_file
from agent.probes.nvml_record import Recording

FIRST_DELAY_S = 1.0
"""Wait before the second attempt; doubles with every failure in a row."""

MAX_DELAY_S = 60.0
"""Longest wait between attempts; a driver that comes back is noticed within it."""

_EXIT_S = 1.0  # for a child that has nothing to do; it needs milliseconds
_STUCK_CURE = (
    "look for NVRM and Xid lines in `dmesg`; the GPU may need a reset, or the node a reboot"
)
# A preloaded library would run inside a process that we count on; PYTHON* could replace modules.
_SCRUBBED = ("PYTHON", "LD_PRELOAD", "LD_AUDIT")


class NvmlSupervisor:
    """Scans through a child process that it replaces when needed; safe to share by threads.

    Args:
        library: the file ``libnvidia-ml.so.1`` (under whatever name) or its directory;
            ``None`` leaves it to the loader.
        timeout_s: how long a scan may take; a healthy 8-GPU node needs well under 1 s.
        clock: monotonic seconds, for the waits between attempts.
    """

    def __init__(
        self,
        library: Path | None = None,
        *,
        timeout_s: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library = library
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._outcome: Recording | NvmlUnavailable | None = None
        self._last_good: NvmlReading | None = None
        self._decoded = b"", Recording(reading=NvmlReading())
        self._child: _Child | None = None
        self._stuck: _Child | None = None
        self._failures = 0
        self._not_before = float("-inf")
        self._is_closed = False

    def scan(self) -> NvmlReading:
        """Return what NVML says now, lost GPUs as they were last known.

        A call that had to wait for another thread's scan shares its outcome.

        Raises:
            NvmlUnavailable: NVML cannot be loaded or initialised, did not answer in time,
                killed its process, or failed so recently that it is left alone.
        """
        return self._outcome_of("scan").reading

    def refresh(self) -> NvmlReading:
        """As :meth:`scan`, with what cannot change taken from the child's last reading.

        The child reads whole where it has none, or where GPUs, driver or MIG devices changed.

        Raises:
            NvmlUnavailable: as :meth:`scan`.
        """
        return self._outcome_of("refresh").reading

    def record(self) -> Recording:
        """As :meth:`scan`, together with all that was asked and answered.

        Raises:
            NvmlUnavailable: as :meth:`scan`.
        """
        return self._outcome_of("record")

    def _outcome_of(self, request: str) -> Recording:
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
            raise NvmlUnavailable(outcome.cause, outcome.cure)
        assert outcome is not None
        return outcome

    def close(self) -> None:
        """End the child; a scan in progress fails. Takes a second at most."""
        self._is_closed = True
        child = self._child
        if child is not None:
            child.end_input()
        if not self._lock.acquire(timeout=_EXIT_S / 4):
            if child is not None:
                child.kill()  # the scan in progress then meets the end of the child's output
            if not self._lock.acquire(timeout=_EXIT_S / 4):
                return  # stuck in the driver; the scan ends by its own timeout
        try:
            self._reap()
        finally:
            self._lock.release()

    def _reap(self) -> None:
        for child in (self._child, self._stuck):
            if child is not None and not child.has_ended(within_s=_EXIT_S / 4):
                child.kill()
                child.has_ended(within_s=_EXIT_S / 4)
        self._child = self._stuck = None

    def _attempt(self, request: str) -> Recording | NvmlUnavailable:
        try:
            recording = self._ask(self._ready_child(), request)
        except NvmlUnavailable as error:
            return error
        self._failures = 0
        self._last_good = with_last_known(recording.reading, self._last_good)
        return replace(recording, reading=self._last_good)

    def _ready_child(self) -> "_Child":
        """Return a child that can be asked, a new one if need be and allowed."""
        self._check_stuck()
        if self._child is not None and not self._child.has_ended():
            return self._child
        if self._is_closed:
            raise NvmlUnavailable("the NVML process has been closed")
        wait = self._not_before - self._clock()
        if wait > 0:
            assert isinstance(self._outcome, NvmlUnavailable)
            # The cause stays as it is: it goes into snapshots, which must not differ by the
            # seconds that are left.
            cure = self._outcome.cure.partition("; next attempt")[0]
            raise NvmlUnavailable(self._outcome.cause, f"{cure}; next attempt in {wait:.0f} s")
        try:
            self._child = _Child(None if self._library is None else library_file(self._library))
        except OSError as error:  # e.g. EAGAIN, at the pod's limit of processes
            cause = f"cannot start the process that reads NVML: {error.strerror}"
            raise self._failed(NvmlUnavailable(cause, "check the process limit")) from None
        return self._child

    def _check_stuck(self) -> None:
        if self._stuck is not None and not self._stuck.has_ended():
            self._stuck.kill()
            if self._stuck.has_ended(within_s=min(_EXIT_S, self._timeout_s) / 4):
                self._stuck = None
                return
            raise NvmlUnavailable(
                f"a call is stuck in the NVIDIA driver (process {self._stuck.pid})",
                _STUCK_CURE,
            )
        self._stuck = None

    def _ask(self, child: "_Child", request: str) -> Recording:
        line = child.ask(request, self._timeout_s)
        if line is None:
            self._leave(child)
            raise self._failed(self._no_answer())
        if not line:
            raise self._failed(self._died(child))
        if line == self._decoded[0]:  # a node that stays as it is spares us the decoding
            return self._decoded[1]
        document = json.loads(line)
        if "ok" in document:
            reading = from_plain(NvmlReading, document["ok"], [])
            self._decoded = line, Recording(reading=reading, answers=document.get("answers", ""))
            return self._decoded[1]
        # A fresh process loads the library anew: the driver may have been replaced meanwhile.
        self._leave(child)
        error = document["error"]
        raise self._failed(NvmlUnavailable(error["cause"], error["cure"]))

    def _leave(self, child: "_Child") -> None:
        """End *child* if it lets us; what then still runs is stuck."""
        child.end_input()
        child.terminate()
        self._child, self._stuck = None, child

    def _failed(self, error: NvmlUnavailable) -> NvmlUnavailable:
        delay = min(MAX_DELAY_S, FIRST_DELAY_S * 2**self._failures)
        self._failures = min(self._failures + 1, 16)  # 2**16 s is far above the longest delay
        self._not_before = self._clock() + delay
        return error

    def _no_answer(self) -> NvmlUnavailable:
        return NvmlUnavailable(f"NVML did not answer within {self._timeout_s:g} s", _STUCK_CURE)

    def _died(self, child: "_Child") -> NvmlUnavailable:
        self._child = None
        if not child.has_ended(within_s=_EXIT_S):
            self._leave(child)
        return NvmlUnavailable(f"the NVML process {child.end}", "look for its cause in `dmesg`")


class _Child:
    """One NVML process and the two pipes to it."""

    def __init__(self, library: Path | None) -> None:
        arguments = () if library is None else (str(library),)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agent.probes.nvml_child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the parent, who then ends the child
        )
        self.pid = self._process.pid

    def ask(self, request: str, timeout_s: float) -> bytes | None:
        """Return the reply line, empty if the process ended first, ``None`` after the time."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(request.encode() + b"\n")
        except (BrokenPipeError, ValueError):  # ValueError: close() was faster
            return b""
        return _read_line(stdout.fileno(), timeout_s)

    def end_input(self) -> None:
        """Let it end by itself once it is done."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def terminate(self) -> None:
        """Ask it to end; whether it can is up to the driver."""
        self._process.terminate()

    def kill(self) -> None:
        """Insist."""
        self._process.kill()

    def has_ended(self, within_s: float = 0.0) -> bool:
        """Say whether it is gone, waiting up to *within_s*; frees its pipes if so."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        self.end_input()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return True

    @property
    def end(self) -> str:
        """How it ended, as the rest of a sentence."""
        code = self._process.returncode
        if code is None:
            return "closed its output"
        return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"


def _read_line(descriptor: int, timeout_s: float) -> bytes | None:
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


def _environment() -> dict[str, str]:
    """Return the child's environment: ours, and modules from where we have ours."""
    kept: dict[str, Any] = {n: v for n, v in os.environ.items() if not n.startswith(_SCRUBBED)}
    package_parent = str(Path(__file__).resolve().parents[2])
    own = [path for path in sys.path if Path(path).is_absolute()]
    return {**kept, "PYTHONPATH": os.pathsep.join([package_parent, *own])}
