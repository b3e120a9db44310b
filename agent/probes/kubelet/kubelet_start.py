"""When the kubelet started, and which of its files are younger."""

from collections.abc import Iterable
from pathlib import Path

from agent.probes.kubelet.file import under
from agent.probes.kubelet.sources import Sources
from agent.probes.sysfs.tree import Tree

USER_HZ = 100
"""Ticks a second of ``/proc/<pid>/stat``, on every architecture of Linux that has GPUs
(kernel include/asm-generic/param.h)."""

MARGIN_S = 2.0
"""By so much a file must be younger: ``btime`` is in whole seconds (kernel fs/proc/stat.c)."""

_START_TIME = 19
"""Its place in ``/proc/<pid>/stat`` behind the program's name (proc_pid_stat(5), field 22)."""


def changed_since(
    host: Tree, procfs: Tree, sources: Sources, files: Iterable[Path]
) -> tuple[str, ...] | None:
    """Return which of *files* were written to after the kubelet's process had started.

    ``None`` where no process is seen, or its start is not known, or its kubelet started later
    than itself, as that of k3s, which writes the files between.
    """
    if sources.pid is None or sources.embedded_in in ("k3s", "microk8s"):
        return None
    started = _started(procfs, sources.pid)
    if started is None:
        return None
    return tuple(str(path) for path in files if _modified(host, path) > started + MARGIN_S)


def _modified(host: Tree, path: Path) -> float:
    try:
        return host.modified(under(path)) / 1e9
    except OSError:  # gone between two reads
        return 0.0


def _started(procfs: Tree, pid: int) -> float | None:
    """Return the time of the start in seconds of the epoch."""
    try:
        own = procfs.content(f"{pid}/stat").rpartition(b")")[2].split()
        boot = [line for line in procfs.content("stat").splitlines() if line.startswith(b"btime ")]
        return int(boot[0].split()[1]) + int(own[_START_TIME]) / USER_HZ
    except (OSError, ValueError, IndexError):
        return None
