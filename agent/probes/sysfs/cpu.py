"""CPUs: which are online, and which share a core, a socket, a last-level cache.

Files: kernel Documentation/ABI/stable/sysfs-devices-system-cpu,
Documentation/ABI/testing/sysfs-devices-system-cpu and Documentation/admin-guide/cputopology.rst.
"""

import re
from collections.abc import Callable

from agent.model.numa import CpuSet, CpuTopology, Socket
from agent.model.snapshot import ProbeIssue
from agent.probes.sysfs.cpuinfo import parse_cpuinfo
from agent.probes.sysfs.files import Files
from agent.probes.sysfs.tree import Root

_CPUS = "devices/system/cpu"
_INDEX = re.compile(r"index[0-9]+")
_POLICY = re.compile(r"policy[0-9]+")
_SMT = {1: True, 0: False}


def read_cpu(sysfs: Root, procfs: Root) -> tuple[CpuTopology | None, tuple[ProbeIssue, ...]]:
    """Return the CPU topology; ``None`` when the online CPUs are not known.

    Cores and caches are in the order of their first CPU, sockets in that of their id.
    """
    files, proc = Files("cpu", sysfs), Files("cpu", procfs)
    online = files.cpus(f"{_CPUS}/online")
    if online is None:
        files.report(f"{_CPUS}/online", "the kernel lists no CPUs")
        return None, files.issues
    make = parse_cpuinfo(proc.text("cpuinfo") or "")
    cores = _groups(files, online, lambda cpu: _either(files, cpu, "core_cpus", "thread_siblings"))
    topology = CpuTopology(
        online=online,
        vendor=make.vendor,
        model=make.model,
        family=make.family,
        model_number=make.model_number,
        is_virtual=make.is_virtual,
        sockets=_sockets(files, online),
        cores=cores,
        l3_groups=_groups(files, online, lambda cpu: _last_level(files, cpu)),
        offline=_offline(files, online),
        isolated=files.cpus(f"{_CPUS}/isolated"),
        smt=_smt(files, cores),
        governors=_governors(files, online),
    )
    return topology, files.issues + proc.issues


def _sockets(files: Files, online: CpuSet) -> tuple[Socket, ...]:
    packages = _groups(
        files, online, lambda cpu: _either(files, cpu, "package_cpus", "core_siblings")
    )
    sockets = []
    for cpus in packages:
        first = next(iter(cpus))
        package = files.number(f"{_CPUS}/cpu{first}/topology/physical_package_id")
        if package is not None and package >= 0:
            sockets.append(Socket(id=package, cpus=cpus))
    return tuple(sorted(sockets, key=lambda socket: socket.id))


def _groups(
    files: Files, online: CpuSet, group_of: Callable[[int], CpuSet | None]
) -> tuple[CpuSet, ...]:
    """Return the distinct groups, asking one CPU of each: 224 CPUs make for many files.

    A group that shares some of its CPUs with an earlier one contradicts it and is left out.
    """
    seen: set[int] = set()
    groups = []
    for cpu in online:
        if cpu in seen:
            continue
        group = group_of(cpu)
        if group is None or cpu not in group:
            continue
        if seen & group.cpus:
            files.report(f"{_CPUS}/cpu{cpu}", f"its group {group} contradicts an earlier one")
            continue
        seen |= group.cpus
        groups.append(group & online)
    return tuple(groups)


def _either(files: Files, cpu: int, name: str, older: str) -> CpuSet | None:
    """Read a list by its name since Linux 5.3, else by its older name."""
    place = f"{_CPUS}/cpu{cpu}/topology"
    cpus = files.cpus(f"{place}/{name}_list")
    return cpus if cpus is not None else files.cpus(f"{place}/{older}_list")


def _last_level(files: Files, cpu: int) -> CpuSet | None:
    place = f"{_CPUS}/cpu{cpu}/cache"
    names = filter(_INDEX.fullmatch, files.names(place) or ())
    levels = ((files.number(f"{place}/{name}/level"), name) for name in names)
    known = [(level, name) for level, name in levels if level is not None]
    if not known:
        return None
    last = f"{place}/{max(known)[1]}"
    cpus = files.cpus(f"{last}/shared_cpu_list")  # POWER has the mask alone before Linux 5.9
    return cpus if cpus is not None else files.cpu_mask(f"{last}/shared_cpu_map")


def _offline(files: Files, online: CpuSet) -> CpuSet | None:
    """Return the CPUs in place that are off; the file `offline` also counts empty sockets."""
    present = files.cpus(f"{_CPUS}/present")
    return None if present is None else CpuSet(present.cpus - online.cpus)


def _smt(files: Files, cores: tuple[CpuSet, ...]) -> bool | None:
    active = files.number(f"{_CPUS}/smt/active")  # since Linux 4.19
    if active in _SMT:
        return _SMT[active]
    return any(len(core) > 1 for core in cores) if cores else None


def _governors(files: Files, online: CpuSet) -> tuple[str, ...]:
    place = f"{_CPUS}/cpufreq"
    policies = [name for name in files.names(place) or () if _POLICY.fullmatch(name)]
    places = [f"{place}/{name}" for name in policies]
    if not policies:  # kernels before 4.4 keep them with their CPUs
        places = [f"{_CPUS}/cpu{cpu}/cpufreq" for cpu in online]
        places = places if places and files.names(places[0]) is not None else []
    found = {files.text(f"{place}/scaling_governor") for place in places}
    return tuple(sorted(governor for governor in found if governor))
