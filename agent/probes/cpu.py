"""CPUs: which are online, and which share a core, a socket, a last-level cache.

Files: kernel Documentation/ABI/stable/sysfs-devices-system-cpu and
Documentation/admin-guide/cputopology.rst.
"""

import re
from collections.abc import Callable
from pathlib import Path

from agent.model.numa import CpuSet, CpuTopology, Socket
from agent.model.snapshot import ProbeIssue
from agent.probes.files import Files

_CPUS = "devices/system/cpu"
_INDEX = re.compile(r"index[0-9]+")
_VENDOR = re.compile(r"^vendor_id\s*: *(.+)$", re.MULTILINE)
_MODEL = re.compile(r"^model name\s*: *(.+)$", re.MULTILINE)


def read_cpu(sysfs: Path, procfs: Path) -> tuple[CpuTopology | None, tuple[ProbeIssue, ...]]:
    """Return the CPU topology; ``None`` when the online CPUs are not known.

    Cores and caches are in the order of their first CPU, sockets in that of their id.
    """
    files, proc = Files("cpu", sysfs), Files("cpu", procfs)
    online = files.cpus(f"{_CPUS}/online")
    if online is None:
        files.report(f"{_CPUS}/online", "the kernel lists no CPUs")
        return None, files.issues
    cpuinfo = proc.text("cpuinfo") or ""
    topology = CpuTopology(
        online=online,
        vendor=_first(_VENDOR, cpuinfo),
        model=_first(_MODEL, cpuinfo),
        sockets=_sockets(files, online),
        cores=_groups(online, lambda cpu: _either(files, cpu, "core_cpus_list", "thread_siblings")),
        l3_groups=_groups(online, lambda cpu: _last_level(files, cpu)),
    )
    return topology, files.issues + proc.issues


def _sockets(files: Files, online: CpuSet) -> tuple[Socket, ...]:
    packages = _groups(
        online, lambda cpu: _either(files, cpu, "package_cpus_list", "core_siblings")
    )
    sockets = []
    for cpus in packages:
        first = next(iter(cpus))
        package = files.number(f"{_CPUS}/cpu{first}/topology/physical_package_id")
        if package is not None and package >= 0:
            sockets.append(Socket(id=package, cpus=cpus))
    return tuple(sorted(sockets, key=lambda socket: socket.id))


def _groups(online: CpuSet, group_of: Callable[[int], CpuSet | None]) -> tuple[CpuSet, ...]:
    """Return the distinct groups, asking one CPU of each: 224 CPUs make for many files."""
    seen: set[int] = set()
    groups = []
    for cpu in online:
        if cpu in seen:
            continue
        group = group_of(cpu)
        if group is not None and cpu in group:
            seen |= group.cpus
            groups.append(group & online)
    return tuple(groups)


def _either(files: Files, cpu: int, name: str, older: str) -> CpuSet | None:
    """Read a list by its name since Linux 5.3, else by its older name."""
    place = f"{_CPUS}/cpu{cpu}/topology"
    cpus = files.cpus(f"{place}/{name}")
    return cpus if cpus is not None else files.cpus(f"{place}/{older}_list")


def _last_level(files: Files, cpu: int) -> CpuSet | None:
    place = f"{_CPUS}/cpu{cpu}/cache"
    names = filter(_INDEX.fullmatch, files.names(place) or ())
    levels = ((files.number(f"{place}/{name}/level"), name) for name in names)
    known = [(level, name) for level, name in levels if level is not None]
    return files.cpus(f"{place}/{max(known)[1]}/shared_cpu_list") if known else None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1].strip() if match else None
