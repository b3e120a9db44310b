"""What one cgroup tells: its CPUs, its memory nodes, how often it was throttled.

Files of kernel Documentation/admin-guide/cgroup-v2.rst (CPU, Cpuset) and cgroup-v1/cpusets.rst.
"""

from dataclasses import dataclass

from agent.model.numa import CpuSet
from agent.probes.pods.pod_cgroups_tree import Cgroups

_SHARES = 2
"""CPU shares of a sandbox and of a container without a CPU request: ``MinShares`` of
kubernetes 1.36 pkg/kubelet/cm/helpers_linux.go; 1 as weight of version 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One cgroup; ``None`` for what it does not tell.

    Attributes:
        is_least: whether it has the least weight there is, as sandboxes have.
    """

    cpuset: CpuSet | None
    memory_nodes: tuple[int, ...] | None
    throttled: int | None
    is_least: bool


def group(cgroups: Cgroups, path: str) -> Group:
    """Return what the cgroup at *path* tells."""
    nodes = _cpus(cgroups, path, "mems")
    return Group(
        cpuset=_cpus(cgroups, path, "cpus"),
        memory_nodes=None if nodes is None else tuple(nodes),
        throttled=_throttled(cgroups.time(path, "cpu.stat") or ""),
        is_least=_is_least(cgroups, path),
    )


def _cpus(cgroups: Cgroups, path: str, kind: str) -> CpuSet | None:
    """Return a list of the group, or of the nearest one above in which the controller is on."""
    names = (f"cpuset.{kind}.effective", f"cpuset.effective_{kind}", f"cpuset.{kind}")
    for place in (path, path.rpartition("/")[0]):
        for name in names[:1] if cgroups.is_unified else names[1:]:
            text = cgroups.cpuset(place, name)
            if text:
                return _parsed(text)
    return None


def _parsed(text: str) -> CpuSet | None:
    try:
        return CpuSet.parse(text)
    except ValueError:
        return None


def _throttled(text: str) -> int | None:
    for line in text.splitlines():
        name, _, count = line.partition(" ")
        if name == "nr_throttled" and count.isdecimal():
            return int(count[:20])
    return None


def _is_least(cgroups: Cgroups, path: str) -> bool:
    if cgroups.is_unified:
        return cgroups.time(path, "cpu.weight") == "1"
    return cgroups.time(path, "cpu.shares") == str(_SHARES)
