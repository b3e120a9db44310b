"""The processes in a procfs: the only module that imports psutil.

psutil locates procfs by a module variable, so one root is read at a time. It is imported at its
first use: 8 ms of CPU, which the daemon does not spend before its GPUs are registered.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import ModuleType

_PROC = Path("/proc")
_LOCK = Lock()

_UNREADABLE = (OSError, ValueError, IndexError, RuntimeError)
"""Exceptions of psutil, apart from its own errors, for files of an unexpected form."""


def commands(procfs: Path) -> list[tuple[int, list[str]]]:
    """Return pid and arguments of all processes, by pid; kernel threads have no arguments.

    Processes that end meanwhile are left out.
    """
    processes: list[tuple[int, list[str]]] = []
    with _psutil(procfs) as psutil:
        try:
            pids = psutil.pids()
        except _UNREADABLE:  # IndexError: there are none
            return []
        for pid in sorted(pids):
            try:
                words = psutil.Process(pid).cmdline()
            except (psutil.Error, *_UNREADABLE):
                continue
            processes.append((pid, [_text(word) for word in words]))
    return processes


def started_at(procfs: Path, pid: int) -> float | None:
    """Return when a process started, in seconds of the epoch; ``None`` where that is unknown."""
    with _psutil(procfs) as psutil:
        try:
            started: float = psutil.Process(pid).create_time()
        except (psutil.Error, *_UNREADABLE):
            return None
    return started


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process of this namespace; ``None`` if it has ended."""
    with _psutil(_PROC) as psutil:
        try:
            resident: int = psutil.Process(pid).memory_info().rss
        except (psutil.Error, *_UNREADABLE):
            return None
    return resident


@contextmanager
def _psutil(procfs: Path) -> Iterator[ModuleType]:
    """Yield psutil, which reads *procfs* inside the block."""
    import psutil  # noqa: PLC0415 - not before the registration

    with _LOCK:
        before, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(procfs)
        try:
            yield psutil
        finally:
            psutil.PROCFS_PATH = before


def _text(word: str) -> str:
    """Return *word* without the surrogates that psutil has for bytes that are not UTF-8."""
    text = word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text.rstrip("\n")  # programs that set their title can end it so
