"""Host inputs of the rules on the kernel and on runtimes, and names of missing ones."""

from nodetopo.checks.rule import Missing
from nodetopo.model.digits import is_digits
from nodetopo.model.host import HostSettings
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot

CPU_STATE = "cpu_manager_state"
"""The kubelet's file with the owners of CPUs."""


def host_of(snapshot: Snapshot) -> HostSettings:
    """Return the host's settings; all are None where they were not read."""
    return snapshot.host or HostSettings()


def unread(snapshot: Snapshot, what: str, *places: str) -> Missing:
    """Return *what*, which was not read, with the trouble that its files met.

    Args:
        places: how the paths of its files begin, relative to their root.
    """
    for issue in snapshot.issues:
        if places and issue.subject.startswith(places):
            return Missing(what, f"{issue.subject}: {issue.reason}")
    return Missing(what)


def sysctl(snapshot: Snapshot, name: str) -> int | Missing:
    """Return a number of ``/proc/sys``, or that it is missing."""
    value = ((snapshot.kernel.sysctls if snapshot.kernel else None) or {}).get(name, "")
    if is_digits(value):
        return int(value)
    return unread(snapshot, name, f"sys/{name.replace('.', '/')}")


def cpu_list(text: str | None) -> CpuSet:
    """Return the CPUs of a list such as ``0-3,8``; none where it is no list of CPUs."""
    try:
        return CpuSet.parse(text or "")
    except ValueError:
        return CpuSet()


def missing_cgroup(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Need the version of control groups."""
    if host_of(snapshot).cgroup_version is not None:
        return ()
    return (unread(snapshot, "version of control groups", "fs/cgroup"),)
