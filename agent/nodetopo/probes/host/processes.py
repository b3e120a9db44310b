"""The host's processes; only a container that shares the host's process namespace sees them."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct

from nodetopo.formats.fields import dig, mappings
from nodetopo.model.digits import is_digits
from nodetopo.model.host import UNLIMITED, RuntimeProcess
from nodetopo.probes.process_table import commands
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import Tree

RUNTIMES = frozenset({"containerd", "crio"})
"""Programs through which kubelets start containers (containerd, CRI-O)."""

PEERS = frozenset(
    """
    nvidia-device-plugin nvidia-gpu-device-plugin gpu-feature-discovery gpu-kubelet-plugin
    k8s-rdma-shared-dp volcano-vgpu-device-plugin vGPU-device-plugin
    """.split(),  # noqa: SIM905 - as prose
)
"""Programs that advertise or label the same resources: from NVIDIA/k8s-device-plugin, GKE
(GoogleCloudPlatform/container-engine-accelerators), NVIDIA's DRA driver (k8s-dra-driver-gpu),
Mellanox/k8s-rdma-shared-dev-plugin, Volcano and HAMi.
"""

FABRIC_MANAGER = "nv-fabricmanager"


_HOST_ONLY = RUNTIMES | {"kubelet", "dockerd"}

_KTHREADD = "kthreadd"
"""Ancestor of all kernel threads, always process 2 of the host (kernel init/main.c)."""

_LIMIT = re.compile(r"Max (locked memory|open files) +(\S+) +(\S+) +\S+ *")
"""``Max open files            1024                 524288               files``
with the soft limit before the hard one (kernel fs/proc/base.c, proc_pid_limits)."""

_POD = re.compile(r"kubepods|/pod[0-9a-f]{8}")
"""In the path of each pod's control group (kubernetes 1.36 defaultNodeAllocatableCgroupName, and
GetPodContainerName). A reader in another control group namespace sees relative paths,
``/../../pod2f1c…/…``, without the name above."""

_ULIMIT = re.compile(r"([a-z]{1,16})=(-?[0-9]{1,20})(?::(-?[0-9]{1,20}))?")

_INFINITY = 1 << 63
"""From here on a limit of an OCI specification is RLIM_INFINITY, all bits set."""


class Process(Struct, frozen=True, kw_only=True):
    """One process."""

    pid: int
    name: str  # last part of its first argument
    arguments: tuple[str, ...]  # those after the first


def host_processes(procfs: Tree) -> tuple[Process, ...] | None:
    """Return all processes by pid; None if *procfs* only shows a container's processes.

    Kernel threads, which have no arguments, and processes that end meanwhile are left out.
    """
    processes = tuple(
        Process(pid=pid, name=name, arguments=tuple(words[1:]))
        for pid, words in commands(procfs.root)
        if words and (name := PurePosixPath(words[0]).name)
    )
    sees_host = any(process.name in _HOST_ONLY for process in processes)
    is_host = sees_host or Files("host", procfs).text("2/comm") == _KTHREADD
    return processes if is_host else None


def of_the_node(files: Files, processes: Iterable[Process]) -> tuple[Process, ...]:
    """Return *processes* without runtimes that run in a pod: any program can have such a name."""
    return tuple(
        process
        for process in processes
        if process.name not in RUNTIMES
        or not _POD.search(files.text(f"{process.pid}/cgroup") or "")
    )


def runtime_processes(files: Files, processes: Iterable[Process]) -> tuple[RuntimeProcess, ...]:
    """Return the container runtimes among *processes*, by name, with their limits."""
    runtimes = []
    for process in sorted(processes, key=lambda it: it.name):
        if process.name in RUNTIMES:
            text = files.text(f"{process.pid}/limits") or ""
            lines = [match for match in map(_LIMIT.fullmatch, text.splitlines()) if match]
            soft = {match[1]: _limit(match[2]) for match in lines}
            hard = {match[1]: _limit(match[3]) for match in lines}
            runtimes.append(
                RuntimeProcess(
                    name=process.name,
                    memlock_bytes=soft.get("locked memory"),
                    open_files=hard.get("open files"),
                )
            )
    return tuple(runtimes)


def _limit(word: str) -> int | None:
    if word == "unlimited":
        return UNLIMITED
    return int(word) if is_digits(word) else None


def peer_programs(processes: Iterable[Process]) -> tuple[str, ...]:
    """Return the names of :data:`PEERS` that run."""
    return tuple(sorted({process.name for process in processes} & PEERS))


class Limits(Struct, frozen=True, kw_only=True):
    """Limits that a runtime's configuration gives its containers."""

    memlock_bytes: int | None = None  # soft limit; −1 is unlimited, None is not stated
    open_files: int | None = None  # hard limit


def limits_of_spec(spec: Any) -> Limits:
    """Return the ``process.rlimits`` of an OCI runtime specification (runtime-spec config.md)."""
    rlimits = {
        rlimit["type"]: rlimit
        for rlimit in mappings(spec, "process", "rlimits")
        if isinstance(rlimit.get("type"), str)
    }
    return Limits(
        memlock_bytes=_known(dig(rlimits, "RLIMIT_MEMLOCK", "soft")),
        open_files=_known(dig(rlimits, "RLIMIT_NOFILE", "hard")),
    )


def limits_of_words(words: Iterable[Any]) -> Limits:
    """Return the limits in words like ``memlock=-1:-1``, soft before hard (``default_ulimits``).

    A word with one number means both (docker/go-units ulimit.go, which CRI-O reads them with).
    """
    limits = {match[1]: match for match in map(_ULIMIT.fullmatch, map(str, words)) if match}
    memlock, files = limits.get("memlock"), limits.get("nofile")
    return Limits(
        memlock_bytes=None if memlock is None else _known(int(memlock[2])),
        open_files=None if files is None else _known(int(files[3] or files[2])),
    )


def _known(limit: Any) -> int | None:
    if not isinstance(limit, int):
        return None
    return limit if 0 <= limit < _INFINITY else UNLIMITED
