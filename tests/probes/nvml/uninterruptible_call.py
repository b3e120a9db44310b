"""A call that nothing can end: neither its process, nor SIGKILL, only :meth:`release`.

Where this machine lets us mount (root, a loop device, ext4), the call is a write to a frozen file
system: the process is in true uninterruptible sleep, state ``D``, as one stuck in a driver is.
Elsewhere it hangs, and neither signals nor the end of its input reach it, because ours are not
sent.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from nodetopo.probes.nvml.supervisor import _Child

_STEP_S = 30.0  # for one step of building or clearing away; each takes milliseconds


class UninterruptibleCall(Protocol):
    """A fault of the fake library."""

    def fault(self, function: str) -> str:
        """Return the fault that makes *function* never return."""

    def is_stuck(self, pid: int) -> bool:
        """Say whether that process is in the call."""

    def release(self) -> None:
        """Let every such call end."""


@contextmanager
def uninterruptible_call(directory: Path) -> Iterator[UninterruptibleCall]:
    """Yield the strongest that this machine can do; clears everything away."""
    with ExitStack() as stack:
        frozen = None
        with suppress(OSError, subprocess.SubprocessError):
            frozen = stack.enter_context(_frozen(directory))
        yield frozen if frozen is not None else stack.enter_context(_unreachable())


class _Frozen:
    """A file on a file system that is frozen."""

    def __init__(self, mount: Path) -> None:
        self._mount = mount

    def fault(self, function: str) -> str:
        return f"fsync {function} {self._mount}/file"

    def is_stuck(self, pid: int) -> bool:
        return _status(pid) == psutil.STATUS_DISK_SLEEP

    def release(self) -> None:
        with suppress(subprocess.CalledProcessError):  # it is not frozen any more
            _run("fsfreeze", "--unfreeze", str(self._mount))


@contextmanager
def _frozen(directory: Path) -> Iterator[_Frozen]:
    mount, image = directory / "frozen", directory / "image"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(8 << 20)
    _run("mkfs.ext4", "-q", str(image))
    with ExitStack() as stack:
        device = _run("losetup", "--find", "--show", str(image)).strip()
        stack.callback(_run, "losetup", "--detach", device)
        _run("mount", device, str(mount))
        stack.callback(_run, "umount", "--lazy", str(mount))
        made = _Frozen(mount)
        stack.callback(made.release)
        _run("fsfreeze", "--freeze", str(mount))
        yield made


def _run(*command: str) -> str:
    program = shutil.which(command[0], path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        raise FileNotFoundError(command[0])
    done = subprocess.run(
        [program, *command[1:]], capture_output=True, text=True, check=True, timeout=_STEP_S
    )
    return done.stdout


def _status(pid: int) -> str | None:
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return None


class _Unreachable:
    """A call that waits for a signal, while none is sent."""

    def __init__(self, silence: pytest.MonkeyPatch) -> None:
        self._silence = silence
        self._pids: set[int] = set()

    def fault(self, function: str) -> str:
        return f"hang {function}"

    def is_stuck(self, pid: int) -> bool:
        self._pids.add(pid)
        return _status(pid) not in (None, psutil.STATUS_ZOMBIE)

    def release(self) -> None:
        self._silence.undo()
        for pid in self._pids:
            with suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()


@contextmanager
def _unreachable() -> Iterator[_Unreachable]:
    with pytest.MonkeyPatch.context() as silence:
        silence.setattr(subprocess.Popen, "send_signal", lambda *_: None)
        silence.setattr(_Child, "end_input", lambda _: None)  # it would end for that, soon
        made = _Unreachable(silence)
        try:
            yield made
        finally:
            made.release()
