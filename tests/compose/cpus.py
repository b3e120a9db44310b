"""The CPU and NUMA trees, whole: a real kubelet runs on them in the lab.

The list of files is what cadvisor reads (google/cadvisor utils/sysfs/sysfs.go and
utils/sysinfo/sysinfo.go) and what this agent reads.
"""

from collections.abc import Iterator

from agent.model.numa import CpuSet, CpuTopology, NumaNode
from agent.probes.archive import Entry
from tests.compose.machine import Machine, Processor

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def entries(machine: Machine) -> Iterator[Entry]:
    """Yield both trees, `proc/cpuinfo` and `proc/meminfo`."""
    cpu, nodes = machine.snapshot.cpu, machine.snapshot.numa_nodes or ()
    assert cpu is not None
    for name in ("online", "possible", "present"):
        yield _file(f"{CPU}/{name}", cpu.online)
    yield _file(f"{CPU}/offline", "")
    yield _file(f"{CPU}/isolated", "")
    yield _file(f"{CPU}/kernel_max", 8191)
    yield _file(f"{CPU}/smt/active", 1)
    yield _file(f"{CPU}/smt/control", "on")
    for number in cpu.online:
        yield from _cpu(number, cpu, machine.processor)
    ids = CpuSet.of(node.id for node in nodes)
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        yield _file(f"{NODE}/{name}", ids)
    for node in nodes:
        yield from _node(node)
    yield _file("proc/cpuinfo", "\n\n".join(_cpuinfo(cpu, machine.processor)) + "\n")
    yield _file("proc/meminfo", "\n".join(_meminfo(sum(node.memory_mib or 0 for node in nodes))))


def _file(path: str, text: object) -> Entry:
    return Entry(path=path, content=f"{text}\n".encode())


def _cpu(number: int, cpu: CpuTopology, processor: Processor) -> Iterator[Entry]:
    place = f"{CPU}/cpu{number}"
    core, socket = _place(number, cpu)
    threads, package = cpu.cores[core], cpu.sockets[socket].cpus
    if number:
        # x86 cannot take the boot CPU offline, so the kernel gives cpu0 no such file.
        yield _file(f"{place}/online", 1)
    for name, value in (
        ("core_id", core % processor.cores),
        ("physical_package_id", cpu.sockets[socket].id),
        ("die_id", 0),
        ("cluster_id", core % processor.cores),
        ("thread_siblings_list", threads),
        ("core_cpus_list", threads),
        ("cluster_cpus_list", threads),
        ("die_cpus_list", package),
        ("core_siblings_list", package),
        ("package_cpus_list", package),
    ):
        yield _file(f"{place}/topology/{name}", value)
    for index, (level, kind, size, shared, identity) in enumerate(
        (
            (1, "Data", processor.l1d_kib, threads, core),
            (1, "Instruction", processor.l1i_kib, threads, core),
            (2, "Unified", processor.l2_kib, threads, core),
            (3, "Unified", processor.l3_kib, package, socket),
        ),
    ):
        cache = f"{place}/cache/index{index}"
        yield _file(f"{cache}/level", level)
        yield _file(f"{cache}/type", kind)
        yield _file(f"{cache}/size", f"{size}K")
        yield _file(f"{cache}/shared_cpu_list", shared)
        yield _file(f"{cache}/id", identity)


def _place(number: int, cpu: CpuTopology) -> tuple[int, int]:
    """Return the positions of the core and of the socket that hold a CPU."""
    core = next(at for at, threads in enumerate(cpu.cores) if number in threads)
    socket = next(at for at, socket in enumerate(cpu.sockets) if number in socket.cpus)
    return core, socket


def _node(node: NumaNode) -> Iterator[Entry]:
    place = f"{NODE}/node{node.id}"
    memory_kib = (node.memory_mib or 0) * 1024
    yield _file(f"{place}/cpulist", node.cpus)
    yield _file(f"{place}/distance", " ".join(map(str, node.distances or ())))
    yield _file(
        f"{place}/meminfo",
        f"Node {node.id} MemTotal:       {memory_kib} kB\n"
        f"Node {node.id} MemFree:        {memory_kib * 15 // 16} kB\n"
        f"Node {node.id} MemUsed:        {memory_kib - memory_kib * 15 // 16} kB",
    )
    for pages in node.hugepages:
        hugepages = f"{place}/hugepages/hugepages-{pages.size_kib}kB"
        yield _file(f"{hugepages}/nr_hugepages", pages.total)
        yield _file(f"{hugepages}/free_hugepages", pages.free)
        yield _file(f"{hugepages}/surplus_hugepages", 0)
    for cpu in node.cpus:
        yield Entry(path=f"{place}/cpu{cpu}", target=f"../../cpu/cpu{cpu}")


def _cpuinfo(cpu: CpuTopology, processor: Processor) -> Iterator[str]:
    for number in cpu.online:
        core, socket = _place(number, cpu)
        facts = {
            "processor\t": number,
            "vendor_id\t": processor.vendor,
            "cpu family\t": processor.family,
            "model\t\t": processor.model_number,
            "model name\t": processor.model,
            "stepping\t": processor.stepping,
            "cpu MHz\t\t": f"{processor.mhz}.000",
            "cache size\t": f"{processor.l3_kib} KB",
            "physical id\t": socket,
            "siblings\t": 2 * processor.cores,
            "core id\t\t": core % processor.cores,
            "cpu cores\t": processor.cores,
        }
        yield "\n".join(f"{name}: {value}" for name, value in facts.items())


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
