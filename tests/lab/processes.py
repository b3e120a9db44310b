"""The lab's processes: each has a log, and none outlives the lab."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tests.lab.waiting import LabFailure, tail

_STOP_TIMEOUT_S = 60.0
"""Ours take less than a second, but for a machine that is busy with much else."""
_NO_PROXY = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
"""All talk stays on this machine, whatever proxy the environment names."""
_STOP_ALL_TIMEOUT_S = 2.0


class Program(Struct, frozen=True, kw_only=True):
    """A started program; it leads a process group of its own."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; reaps it if it has."""
        return self.process.poll() is None

    def check_running(self) -> None:
        """Raise LabFailure with the end of its log if it has ended."""
        if not self.is_running:
            code = self.process.returncode
            raise LabFailure(f"{self.name} ended with exit code {code}\n{tail(self.log)}")


class Processes:
    """Starts programs and ends all of them.

    Unless *is_detached* the kernel kills them with the process that started them, however
    that ends (PR_SET_PDEATHSIG). Their ids stand in ``<run_dir>/processes.json`` for
    :func:`end_recorded`.
    """

    def __init__(self, run_dir: Path, *, is_detached: bool = False) -> None:
        self._run_dir = run_dir
        self.log_dir = run_dir / "logs"
        self._is_detached = is_detached
        self._programs: list[Program] = []

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> Program:
        """Start *command*, by way of *prefix* (such as ``unshare``), logging to ``<name>.log``.

        The log is appended to, so that it tells of every start.
        """
        # After the prefix, because entering a user namespace clears the setting (commit_creds).
        bound = () if self._is_detached else ("setpriv", "--pdeathsig", "KILL", "--")
        self.log_dir.mkdir(exist_ok=True)
        log = self.log_dir / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*prefix, *bound, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_NO_PROXY, **(environment or {})},
                cwd=directory or self._run_dir,
                start_new_session=True,
            )
        program = Program(name=name, process=process, log=log)
        self._programs.append(program)
        self._record()
        return program

    def kill(self, program: Program) -> None:
        """End *program* and its children with SIGKILL, as a crash of the container would."""
        if program.is_running:
            _kill_group(program.process.pid)
            program.process.wait(_STOP_TIMEOUT_S)

    def stop(self, program: Program) -> None:
        """End *program* with SIGTERM, after a minute with SIGKILL, and all of its group."""
        if program.is_running:
            program.process.terminate()
        self._end(program, time.monotonic() + _STOP_TIMEOUT_S)
        self._record()

    def stop_all(self) -> None:
        """End everything: SIGTERM to all, and SIGKILL to what is left two seconds later."""
        programs = tuple(reversed(self._programs))
        for program in programs:
            if program.is_running:
                program.process.terminate()
        deadline = time.monotonic() + _STOP_ALL_TIMEOUT_S
        for program in programs:
            self._end(program, deadline)
        self._record()

    def _end(self, program: Program, deadline: float) -> None:
        """Wait until *deadline*, then kill the group: before the reaping, so that it is ours."""
        if program.process.returncode is None:
            _await_end(program.process.pid, deadline)
            _kill_group(program.process.pid)
            program.process.wait(_STOP_TIMEOUT_S)
        self._programs = [other for other in self._programs if other is not program]

    def _record(self) -> None:
        """Write the groups down; a start time guards against a pid that was given anew."""
        groups = [
            {"name": program.name, "pid": program.process.pid, "started": started}
            for program in self._programs
            if (started := _start_time(program.process.pid)) is not None
        ]
        path = self._run_dir / "processes.json"
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(groups), "utf-8")
        scratch.rename(path)


def recorded(run_dir: Path) -> tuple[tuple[str, int, bool], ...]:
    """Return (name, pid, is running) of each program written down in *run_dir*."""
    text = (run_dir / "processes.json").read_text("utf-8")
    return tuple(
        (entry["name"], entry["pid"], _start_time(entry["pid"]) == entry["started"])
        for entry in json.loads(text)
    )


def end_recorded(run_dir: Path) -> tuple[str, ...]:
    """End the programs of a lab that another process started; return their names."""
    running = [(name, pid) for name, pid, is_running in reversed(recorded(run_dir)) if is_running]
    for _, pid in running:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_ALL_TIMEOUT_S
    for _, pid in running:
        if not _await_end(pid, deadline):
            _kill_group(pid)
    return tuple(name for name, _ in running)


def _await_end(pid: int, deadline: float) -> bool:
    """Wait until *pid* has ended, though perhaps not been reaped; tell whether it did."""
    while (has_run_on := _start_time(pid) is not None) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not has_run_on


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _start_time(pid: int) -> int | None:
    """Return the start time in clock ticks since boot; ``None`` if it ended (proc(5), 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *numbers = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(numbers[18])
