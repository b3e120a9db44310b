"""What the rules on the kernel and on runtimes need of the host, and how they say it is missing."""

from collections.abc import Callable
from typing import TypeVar

from agent.checks.inputs import Inputs
from agent.model.host import HostSettings
from agent.model.numa import CpuSet
from agent.model.snapshot import Snapshot

T = TypeVar("T")

CPU_STATE = "cpu_manager_state"
"""The kubelet's file that says which CPUs are whose."""


def of_host(snapshot: Snapshot, part: Callable[[HostSettings], T | None]) -> T | None:
    """Return a *part* of the host's settings; ``None`` where it was not read."""
    return None if snapshot.host is None else part(snapshot.host)


def missing(snapshot: Snapshot, value: object, what: str, *places: str) -> Inputs:
    """Return *what*, with the trouble that its files met, when *value* was not read.

    Args:
        places: how the paths of its files begin, relative to their root.
    """
    if value is not None:
        return ()
    for issue in snapshot.issues:
        if places and issue.subject.startswith(places):
            return (f"{what} ({issue.subject}: {issue.reason})",)
    return (what,)


def sysctl(snapshot: Snapshot, name: str) -> int | None:
    """Return a number of ``/proc/sys``; ``None`` where it is not known or none."""
    value = ((snapshot.kernel.sysctls if snapshot.kernel else None) or {}).get(name, "")
    return int(value) if value.isascii() and value.isdecimal() else None


def missing_sysctl(name: str) -> Callable[[Snapshot], Inputs]:
    """Need the number *name* of ``/proc/sys``."""
    path = f"sys/{name.replace('.', '/')}"

    def lacks(snapshot: Snapshot) -> Inputs:
        return missing(snapshot, sysctl(snapshot, name), name, path)

    return lacks


def cpu_list(text: str | None) -> CpuSet:
    """Return the CPUs of a list such as ``0-3,8``; none where it is no list of CPUs."""
    try:
        return CpuSet.parse(text or "")
    except ValueError:
        return CpuSet()


def cgroup_version(snapshot: Snapshot) -> int | None:
    """Return the host's version of control groups."""
    return of_host(snapshot, lambda host: host.cgroup_version)


def missing_cgroup(snapshot: Snapshot) -> Inputs:
    """Need the version of control groups."""
    return missing(snapshot, cgroup_version(snapshot), "version of control groups", "fs/cgroup")
