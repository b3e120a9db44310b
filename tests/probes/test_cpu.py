"""The CPUs' topology from sysfs and cpuinfo."""

from collections.abc import Callable
from pathlib import Path

from agent.model.numa import CpuSet, CpuTopology, Socket
from agent.probes.cpu import read_cpu


def cpu(number: int, core: str, package: str, socket: int, *, l3: str | None = None) -> str:
    """Return the archive of one CPU, with the file names of kernels before 5.3."""
    place = f"sys/devices/system/cpu/cpu{number}"
    cache = (
        f"{place}/cache/index0/\n  level = 1\n  shared_cpu_list = {core}\n"
        f"{place}/cache/index3/\n  level = 3\n  shared_cpu_list = {l3}\n"
    )
    return (
        f"{place}/topology/\n  thread_siblings_list = {core}\n  core_siblings_list = {package}\n"
        f"  physical_package_id = {socket}\n{cache if l3 else ''}"
    )


def archive(*cpus: str, online: str = "0-3") -> str:
    """Return the archive of a node with *cpus*."""
    info = "proc/\n  cpuinfo |\n    |vendor_id\t: AuthenticAMD\n    |model name\t: EPYC 7543P\n"
    return f"{info}sys/devices/system/cpu/\n  online = {online}\n{''.join(cpus)}"


def test_cores_sockets_and_caches_are_grouped(host_tree: Callable[[str], Path]) -> None:
    root = host_tree(
        archive(
            cpu(0, "0,2", "0,2", 1, l3="0-3"),
            cpu(1, "1,3", "1,3", 0, l3="0-3"),
            cpu(2, "0,2", "0,2", 1, l3="0-3"),
            cpu(3, "1,3", "1,3", 0, l3="0-3"),
        ),
    )
    even, odd = CpuSet.of([0, 2]), CpuSet.of([1, 3])
    assert read_cpu(root / "sys", root / "proc") == (
        CpuTopology(
            online=CpuSet.parse("0-3"),
            vendor="AuthenticAMD",
            model="EPYC 7543P",
            sockets=(Socket(id=0, cpus=odd), Socket(id=1, cpus=even)),
            cores=(even, odd),
            l3_groups=(CpuSet.parse("0-3"),),
        ),
        (),
    )


def test_offline_cpus_belong_to_no_group(host_tree: Callable[[str], Path]) -> None:
    root = host_tree(archive(cpu(0, "0-1", "0-1", 0), online="0"))
    found, _ = read_cpu(root / "sys", root / "proc")
    assert found is not None
    assert (found.cores, found.sockets) == (
        (CpuSet.of([0]),),
        (Socket(id=0, cpus=CpuSet.of([0])),),
    )


def test_a_machine_that_tells_no_caches_has_no_cache_groups(
    host_tree: Callable[[str], Path],
) -> None:
    root = host_tree(archive(cpu(0, "0", "0", 0), online="0"))
    found, issues = read_cpu(root / "sys", root / "proc")
    assert found is not None
    assert (found.l3_groups, issues) == ((), ())


def test_without_a_list_of_online_cpus_nothing_is_known(host_tree: Callable[[str], Path]) -> None:
    root = host_tree("sys/\nproc/\n")
    found, issues = read_cpu(root / "sys", root / "proc")
    assert (found, [issue.subject for issue in issues]) == (None, ["devices/system/cpu/online"])
