"""CPUs: which are online, and which share a core, a socket, a last-level cache.

Files: kernel Documentation/ABI/stable/sysfs-devices-system-cpu,
Documentation/ABI/testing/sysfs-devices-system-cpu and Documentation/admin-guide/cputopology.rst.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from nodetopo.model.numa import CpuSet, CpuTopology, Socket
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import Root

_CPUS = "devices/system/cpu"
_INDEX = re.compile(r"index[0-9]+")
_POLICY = re.compile(r"policy[0-9]+")

_LINE = r"^{}[ \t]*:[ \t]*(.+)$"
"""A line of `/proc/cpuinfo`."""

_VENDOR = re.compile(_LINE.format("vendor_id"), re.MULTILINE)
_MODEL = re.compile(_LINE.format("model name"), re.MULTILINE)
_FAMILY = re.compile(r"^cpu family[ \t]*:[ \t]*([0-9]{1,6})$", re.MULTILINE)
_NUMBER = re.compile(r"^model[ \t]*:[ \t]*([0-9]{1,6})$", re.MULTILINE)
_FLAGS = re.compile(_LINE.format("flags"), re.MULTILINE)
_POWER = re.compile(_LINE.format("cpu"), re.MULTILINE)
_IMPLEMENTER = re.compile(r"^CPU implementer[ \t]*:[ \t]*0x([0-9a-f]{1,2})$", re.MULTILINE)
_PART = re.compile(r"^CPU part[ \t]*:[ \t]*0x([0-9a-f]{1,3})$", re.MULTILINE)

_ARM = 0x41
_IMPLEMENTERS = {_ARM: "ARM", 0x4E: "NVIDIA", 0xC0: "Ampere"}
_PARTS = {
    (_ARM, 0xD0C): "Neoverse-N1",
    (_ARM, 0xD40): "Neoverse-V1",
    (_ARM, 0xD49): "Neoverse-N2",
    (_ARM, 0xD4F): "Neoverse-V2",  # Grace
    (_ARM, 0xD85): "Cortex-X925",  # GB10
    (_ARM, 0xD87): "Cortex-A725",  # GB10
}
"""Fields of MIDR_EL1 (kernel arch/arm64/include/asm/cputype.h): arm64 prints no names."""


def read_cpu(sysfs: Root, procfs: Root) -> tuple[CpuTopology | None, tuple[ProbeIssue, ...]]:
    """Return the CPU topology; ``None`` if the online CPUs are unknown.

    Cores and caches are in the order of their first CPU, sockets in the order of their id.
    """
    files, proc = Files("cpu", sysfs), Files("cpu", procfs)
    online = files.cpus(f"{_CPUS}/online")
    if online is None:
        files.report(f"{_CPUS}/online", "the kernel lists no CPUs")
        return None, files.issues
    make = parse_cpuinfo(proc.text("cpuinfo") or "")
    cores = _groups(files, online, lambda cpu: _either(files, cpu, "core_cpus", "thread_siblings"))
    packages = _groups(
        files, online, lambda cpu: _either(files, cpu, "package_cpus", "core_siblings")
    )
    sockets = []
    for cpus in packages:
        first = next(iter(cpus))
        package = files.number(f"{_CPUS}/cpu{first}/topology/physical_package_id")
        if package is not None and package >= 0:
            sockets.append(Socket(id=package, cpus=cpus))
    l3_groups = _groups(files, online, lambda cpu: _cache_cpus(files, cpu))
    ids = [files.number(f"{_last_level(files, min(group.cpus))}/id") for group in l3_groups]
    # The CPUs in place that are off; the file `offline` also counts empty sockets.
    present = files.cpus(f"{_CPUS}/present")
    isolated = files.cpus(f"{_CPUS}/isolated")
    active = files.number(f"{_CPUS}/smt/active")  # since Linux 4.19
    has_siblings = any(len(core) > 1 for core in cores) if cores else None
    topology = CpuTopology(
        online=online,
        vendor=make.vendor,
        model=make.model,
        family=make.family,
        model_number=make.model_number,
        is_virtual=make.is_virtual,
        sockets=tuple(sorted(sockets, key=lambda socket: socket.id)),
        cores=cores,
        l3_groups=l3_groups,
        l3_ids=tuple(one for one in ids if one is not None) if None not in ids else (),
        offline=None if present is None else CpuSet(present.cpus - online.cpus),
        isolated=isolated,
        smt=has_siblings if active not in (0, 1) else active == 1,
        governors=_governors(files, online),
    )
    return topology, files.issues + proc.issues


def _groups(
    files: Files, online: CpuSet, group_of: Callable[[int], CpuSet | None]
) -> tuple[CpuSet, ...]:
    """Return the distinct groups, reading one CPU of each: 224 CPUs make for many files.

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


def _cache_cpus(files: Files, cpu: int) -> CpuSet | None:
    """Return the CPUs that share the last-level cache of *cpu*."""
    last = _last_level(files, cpu)
    if last is None:
        return None
    cpus = files.cpus(f"{last}/shared_cpu_list")  # POWER has the mask alone before Linux 5.9
    return cpus if cpus is not None else files.cpu_mask(f"{last}/shared_cpu_map")


def _last_level(files: Files, cpu: int) -> str | None:
    """Return the directory of the last-level cache of *cpu*."""
    place = f"{_CPUS}/cpu{cpu}/cache"
    names = filter(_INDEX.fullmatch, files.names(place) or ())
    levels = ((files.number(f"{place}/{name}/level"), name) for name in names)
    known = [(level, name) for level, name in levels if level is not None]
    return f"{place}/{max(known)[1]}" if known else None


def _governors(files: Files, online: CpuSet) -> tuple[str, ...]:
    place = f"{_CPUS}/cpufreq"
    policies = [name for name in files.names(place) or () if _POLICY.fullmatch(name)]
    places = [f"{place}/{name}" for name in policies]
    if not policies:  # kernels before 4.4 keep them with their CPUs
        places = [f"{_CPUS}/cpu{cpu}/cpufreq" for cpu in online]
        places = places if places and files.names(places[0]) is not None else []
    governors = {files.text(f"{place}/scaling_governor") for place in places}
    return tuple(sorted(governor for governor in governors if governor))


class CpuModel(Struct, frozen=True, kw_only=True):
    """The CPU's make; ``None`` for facts that the architecture does not print."""

    vendor: str | None = None
    # Of arm64 the names of its kinds of core, joined by `` + ``; an unknown part stays ``0xd4f``.
    model: str | None = None
    # family, model_number: of x86, decimal as printed there.
    family: int | None = None
    model_number: int | None = None
    is_virtual: bool | None = None  # of x86, whether the flag ``hypervisor`` is set


def parse_cpuinfo(text: str) -> CpuModel:
    """Return the make of the first CPU, and of every kind of core on arm64.

    `/proc/cpuinfo` differs between architectures: kernel arch/x86/kernel/cpu/proc.c,
    arch/arm64/kernel/cpuinfo.c, arch/powerpc/kernel/setup-common.c.
    """
    implementers = [int(number, 16) for number in _IMPLEMENTER.findall(text)]
    if implementers:
        parts = [int(number, 16) for number in _PART.findall(text)]
        kinds = dict.fromkeys(zip(implementers, parts, strict=False))
        vendor = implementers[0]
        return CpuModel(
            vendor=_IMPLEMENTERS.get(vendor, f"{vendor:#04x}"),
            model=" + ".join(_PARTS.get(kind, f"{kind[1]:#05x}") for kind in kinds) or None,
        )
    flags = _first(_FLAGS, text)
    family = _first(_FAMILY, text)
    number = None if family is None else _first(_NUMBER, text)
    return CpuModel(
        vendor=_first(_VENDOR, text),
        model=_first(_MODEL, text) or _first(_POWER, text),
        family=None if family is None else int(family),
        model_number=None if number is None else int(number),
        is_virtual=None if flags is None else "hypervisor" in flags.split(),
    )


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return (match[1].strip() or None) if match else None
