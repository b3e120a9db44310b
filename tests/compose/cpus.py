"""The CPU and NUMA trees.

Whole, they are what cadvisor reads (google/cadvisor utils/sysfs/sysfs.go and
utils/sysinfo/sysinfo.go), so that a real kubelet runs on them in the lab. For other machines
they are cut to what this agent reads, since hundreds of CPUs make for megabytes: of a CPU its
core, package and last-level cache; of `/proc/cpuinfo` the first record, and no more than the
number of the others.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode
from nodetopo.tools.capture.archive import Entry
from tests.compose.entries import file, link
from tests.compose.machine import Machine, Processor

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def entries(machine: Machine) -> Iterator[Entry]:
    """Yield both trees, `proc/cpuinfo` and `proc/meminfo`."""
    cpu, nodes = machine.snapshot.cpu, machine.snapshot.numa_nodes or ()
    assert cpu is not None
    is_whole = machine.has_whole_cpu_tree
    places = _places(cpu)
    yield from _lists(cpu, machine.processor)
    for at in places:
        yield from _cpu(at, machine.processor, is_whole=is_whole)
    yield from _cpufreq(cpu)
    yield from _node_lists(nodes)
    for node in nodes:
        yield from _node(node, is_whole=is_whole)
    records = _cpuinfo(places, cpu, machine.processor, is_whole=is_whole)
    yield file("proc/cpuinfo", "\n\n".join(records) + "\n")
    yield file("proc/meminfo", "\n".join(_meminfo(sum(node.memory_mib or 0 for node in nodes))))


class _Place(Struct, frozen=True, kw_only=True):
    """Where a CPU is: positions of its core, cache and socket, and the CPUs of each."""

    number: int
    core: int
    threads: CpuSet
    cache: CpuSet
    cache_id: int
    package: CpuSet
    socket: int


def _places(cpu: CpuTopology) -> list[_Place]:
    cores, caches = _by_cpu(cpu.cores), _by_cpu(cpu.l3_groups)
    sockets = _by_cpu([socket.cpus for socket in cpu.sockets])
    return [
        _Place(
            number=number,
            core=cores[number],
            threads=cpu.cores[cores[number]],
            cache=cpu.l3_groups[caches[number]],
            cache_id=caches[number],
            package=cpu.sockets[sockets[number]].cpus,
            socket=cpu.sockets[sockets[number]].id,
        )
        for number in cpu.online
    ]


def _by_cpu(groups: Sequence[CpuSet]) -> dict[int, int]:
    return {number: at for at, cpus in enumerate(groups) for number in cpus}


def _lists(cpu: CpuTopology, processor: Processor) -> Iterator[Entry]:
    present = cpu.online | (cpu.offline or CpuSet())
    yield file(f"{CPU}/online", cpu.online)
    yield file(f"{CPU}/possible", present)
    yield file(f"{CPU}/present", present)
    yield file(f"{CPU}/offline", cpu.offline or "")
    yield file(f"{CPU}/isolated", cpu.isolated or "")
    yield file(f"{CPU}/kernel_max", 8191)
    yield file(f"{CPU}/smt/active", int(bool(cpu.smt)))
    control = "on" if cpu.smt else "off" if processor.threads > 1 else "notsupported"
    yield file(f"{CPU}/smt/control", control)


def _cpu(at: _Place, processor: Processor, *, is_whole: bool) -> Iterator[Entry]:
    place = f"{CPU}/cpu{at.number}"
    yield file(f"{place}/topology/core_id", at.core % processor.cores)
    yield file(f"{place}/topology/physical_package_id", at.socket)
    yield file(f"{place}/topology/core_cpus_list", at.threads)
    yield file(f"{place}/topology/package_cpus_list", at.package)
    if is_whole:
        yield from _whole_cpu(at, processor)
    else:
        yield from _sharing(f"{place}/cache/index3", 3, at.cache)


def _whole_cpu(at: _Place, processor: Processor) -> Iterator[Entry]:
    place = f"{CPU}/cpu{at.number}"
    if at.number:
        # x86 cannot take the boot CPU offline, so the kernel gives cpu0 no such file.
        yield file(f"{place}/online", 1)
    for name, value in (
        ("die_id", 0),
        ("cluster_id", at.core % processor.cores),
        ("thread_siblings_list", at.threads),
        ("cluster_cpus_list", at.threads),
        ("die_cpus_list", at.package),
        ("core_siblings_list", at.package),
    ):
        yield file(f"{place}/topology/{name}", value)
    for index, (level, kind, size, shared, identity) in enumerate(
        (
            (1, "Data", processor.l1d_kib, at.threads, at.core),
            (1, "Instruction", processor.l1i_kib, at.threads, at.core),
            (2, "Unified", processor.l2_kib, at.threads, at.core),
            (3, "Unified", processor.l3_kib, at.cache, at.cache_id),
        ),
    ):
        cache = f"{place}/cache/index{index}"
        yield from _sharing(cache, level, shared)
        yield file(f"{cache}/type", kind)
        yield file(f"{cache}/size", f"{size}K")
        yield file(f"{cache}/id", identity)


def _sharing(cache: str, level: int, shared: CpuSet) -> Iterator[Entry]:
    """Yield of one cache what tells who shares it."""
    yield file(f"{cache}/level", level)
    yield file(f"{cache}/shared_cpu_list", shared)


def _cpufreq(cpu: CpuTopology) -> Iterator[Entry]:
    """Yield a policy for each governor in use; real ones are one for each core."""
    numbers = list(cpu.online)
    for position, governor in enumerate(cpu.governors):
        mine = CpuSet.of(numbers[position :: len(cpu.governors)])
        place = f"{CPU}/cpufreq/policy{min(mine)}"
        yield file(f"{place}/scaling_governor", governor)
        yield file(f"{place}/affected_cpus", " ".join(map(str, mine)))


def _node_lists(nodes: Sequence[NumaNode]) -> Iterator[Entry]:
    everything = CpuSet.of(node.id for node in nodes)
    with_memory = CpuSet.of(node.id for node in nodes if node.memory_mib)
    yield file(f"{NODE}/online", everything)
    yield file(f"{NODE}/possible", everything)
    yield file(f"{NODE}/has_cpu", CpuSet.of(node.id for node in nodes if len(node.cpus)))
    yield file(f"{NODE}/has_memory", with_memory)
    yield file(f"{NODE}/has_normal_memory", with_memory)


def _node(node: NumaNode, *, is_whole: bool) -> Iterator[Entry]:
    place = f"{NODE}/node{node.id}"
    memory_kib = (node.memory_mib or 0) * 1024
    yield file(f"{place}/cpulist", node.cpus)
    yield file(f"{place}/distance", " ".join(map(str, node.distances or ())))
    yield file(
        f"{place}/meminfo",
        f"Node {node.id} MemTotal:       {memory_kib} kB\n"
        f"Node {node.id} MemFree:        {memory_kib * 15 // 16} kB\n"
        f"Node {node.id} MemUsed:        {memory_kib - memory_kib * 15 // 16} kB",
    )
    for pages in node.hugepages:
        hugepages = f"{place}/hugepages/hugepages-{pages.size_kib}kB"
        yield file(f"{hugepages}/nr_hugepages", pages.total)
        yield file(f"{hugepages}/free_hugepages", pages.free)
        yield file(f"{hugepages}/surplus_hugepages", 0)
    for cpu in node.cpus if is_whole else ():
        yield link(f"{place}/cpu{cpu}", f"{CPU}/cpu{cpu}")


def _cpuinfo(
    places: Sequence[_Place], cpu: CpuTopology, processor: Processor, *, is_whole: bool
) -> Iterator[str]:
    for at in places:
        is_first = at is places[0]
        facts = _record(at, cpu, processor) if is_whole or is_first else {}
        lines = {"processor\t": at.number, **facts}
        yield "\n".join(f"{name}: {value}" for name, value in lines.items())


def _record(at: _Place, cpu: CpuTopology, processor: Processor) -> dict[str, object]:
    if processor.machine == "ppc64le":
        return {"cpu\t\t": processor.model, "clock\t\t": f"{processor.mhz}.000000MHz"}
    if processor.part is not None:
        implementer, part = processor.part
        return {"CPU implementer\t": f"{implementer:#04x}", "CPU part\t": f"{part:#05x}"}
    flags = "fpu vme ht" if not cpu.is_virtual else "fpu vme ht hypervisor"
    return {
        "vendor_id\t": processor.vendor,
        "cpu family\t": processor.family,
        "model\t\t": processor.model_number,
        "model name\t": processor.model,
        "stepping\t": processor.stepping,
        "cpu MHz\t\t": f"{processor.mhz}.000",
        "cache size\t": f"{processor.l3_kib} KB",
        "physical id\t": at.socket,
        "siblings\t": processor.threads * processor.cores,
        "core id\t\t": at.core % processor.cores,
        "cpu cores\t": processor.cores,
        "flags\t\t": flags,
    }


def _meminfo(memory_mib: int) -> Iterator[str]:
    total = memory_mib * 1024
    for name, value in (
        ("MemTotal", total),
        ("MemFree", total * 15 // 16),
        ("MemAvailable", total * 15 // 16),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("HugePages_Total", 0),
        ("HugePages_Free", 0),
        ("Hugepagesize", 2048),
    ):
        unit = "" if name.startswith("HugePages_") else " kB"
        yield f"{name + ':':<16}{value:>8}{unit}"
