"""The file that lets verdicts on GPUs outlive the process."""

from contextlib import suppress
from pathlib import Path

import structlog

from agent.deviceplugin.host_files import MAX_BYTES, HostFile
from agent.errors import DecodeError
from agent.health.saved import decode, encode
from agent.health.state import HealthState

_BOOT_ID = "sys/kernel/random/boot_id"
"""A UUID that the kernel draws at each boot (kernel Documentation/admin-guide/sysctl/kernel.rst,
random). It is that of the host in every container."""


def read_boot_id(procfs: Path) -> str | None:
    """Return the identity of this boot; ``None`` where the kernel does not tell."""
    try:
        return (procfs / _BOOT_ID).read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class HealthFile:
    """Reads and writes one file; whatever is wrong with it is logged once and survived."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = HostFile(path, mode=0o600)
        self._is_there = False
        self._problem: str | None = None

    @property
    def is_there(self) -> bool:
        """Whether the file was read or written, and not found gone since then."""
        return self._is_there

    def load(self) -> HealthState | None:
        """Return what was saved; ``None`` without a file that can be used.

        A file that is no such document, or one of a later version, is kept beside, with
        ``.bad`` behind its name.
        """
        try:
            content = self._file.content()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report("health file not read", str(error))
            return None
        try:
            state = _state(content)
        except (DecodeError, UnicodeDecodeError) as error:
            self._report("health file not understood", str(error))
            with suppress(OSError):
                self.path.replace(self.path.with_name(f"{self.path.name}.bad"))
            return None
        self._is_there = True
        return state

    def save(self, state: HealthState) -> bool:
        """Write *state*, whole or not at all; return whether that worked."""
        problem = self._file.write(encode(state))
        if problem is not None:
            self._report("health file not written", problem)
            return False
        self._is_there, self._problem = True, None
        return True

    def was_removed(self) -> bool:
        """Tell whether somebody removed the file from where it was; says so once.

        A directory that is gone too is no such act, nor is what follows when it is made anew.
        """
        if not self._is_there or self.path.exists():
            return False
        self._is_there = False
        return self.path.parent.is_dir()

    def _report(self, event: str, problem: str) -> None:
        if problem != self._problem:
            structlog.get_logger().warning(event, path=str(self.path), problem=problem)
        self._problem = problem


def _state(content: bytes) -> HealthState:
    if len(content) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 20} MiB")
    return decode(content.decode("utf-8"))
