"""The CPUs' topology from sysfs and cpuinfo."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetopo.model.numa import CpuSet, CpuTopology, Socket
from nodetopo.probes.sysfs.cpu import CpuModel, parse_cpuinfo, read_cpu


def cpu(
    number: int,
    core: str,
    package: str,
    socket: int,
    *,
    l3: str | None = None,
    l3_id: int | None = None,
) -> str:
    """Return the archive of one CPU, with the file names of kernels before 5.3."""
    place = f"sys/devices/system/cpu/cpu{number}"
    cache = (
        f"{place}/cache/index0/\n  level = 1\n  shared_cpu_list = {core}\n"
        f"{place}/cache/index3/\n  level = 3\n  shared_cpu_list = {l3}\n"
    ) + (f"  id = {l3_id}\n" if l3_id is not None else "")
    return (
        f"{place}/topology/\n  thread_siblings_list = {core}\n  core_siblings_list = {package}\n"
        f"  physical_package_id = {socket}\n{cache if l3 else ''}"
    )


def archive(*cpus: str, online: str = "0-3") -> str:
    """Return the archive of a node with *cpus*."""
    info = "proc/\n  cpuinfo |\n    |vendor_id\t: AuthenticAMD\n    |model name\t: EPYC 7543P\n"
    return f"{info}sys/devices/system/cpu/\n  online = {online}\n{''.join(cpus)}"


def one(*lines: str) -> str:
    """Return the archive of a node with one CPU, and *lines* more."""
    return archive(cpu(0, "0", "0", 0), online="0") + "".join(lines)


@pytest.mark.parametrize(("second", "ids"), [(3, (8, 3)), (None, ())])
def test_caches_have_the_kernels_numbers_if_all_are_known(
    host_tree: Callable[[str], Path], second: int | None, ids: tuple[int, ...]
) -> None:
    cpus = (cpu(0, "0", "0-1", 0, l3="0", l3_id=8), cpu(1, "1", "0-1", 0, l3="1", l3_id=second))
    root = host_tree(archive(*cpus, online="0-1"))
    found, _ = read_cpu(root / "sys", root / "proc")
    assert found is not None
    assert (len(found.l3_groups), found.l3_ids) == (2, ids)


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
            smt=True,
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


@pytest.mark.parametrize(
    ("line", "active"),
    [("active = 1", True), ("active = 0", False), ("active = -1", False), ("control = off", False)],
)
def test_hardware_threads_are_in_use_when_the_kernel_says_so_or_a_core_has_two(
    line: str, active: bool, host_tree: Callable[[str], Path]
) -> None:
    root = host_tree(one(f"sys/devices/system/cpu/smt/\n  {line}\n"))
    found, _ = read_cpu(root / "sys", root / "proc")
    assert found is not None
    assert found.smt is active


def test_cpus_in_place_that_are_off_are_offline_and_empty_sockets_are_not(
    host_tree: Callable[[str], Path],
) -> None:
    text = one().replace(
        "  online = 0\n", "  online = 0\n  present = 0-3\n  offline = 1-127\n  isolated = 2\n"
    )
    root = host_tree(text)
    found, _ = read_cpu(root / "sys", root / "proc")
    assert found is not None
    assert (found.offline, found.isolated) == (CpuSet.parse("1-3"), CpuSet.of([2]))


@pytest.mark.parametrize(
    "governors",
    [
        {
            "cpufreq/policy0": "performance",
            "cpufreq/policy2": "powersave",
            "cpufreq/policy3": "performance",
            "cpu0/cpufreq": "ondemand",
        },
        {"cpu0/cpufreq": "powersave", "cpu1/cpufreq": "performance"},
    ],
)
def test_governors_are_those_of_the_policies_or_of_the_cpus(
    governors: dict[str, str], host_tree: Callable[[str], Path]
) -> None:
    lines = "".join(
        f"sys/devices/system/cpu/{place}/\n  scaling_governor = {governor}\n"
        for place, governor in governors.items()
    )
    root = host_tree(archive(cpu(0, "0", "0-1", 0), cpu(1, "1", "0-1", 0), online="0-1") + lines)
    found, _ = read_cpu(root / "sys", root / "proc")
    assert found is not None
    assert found.governors == ("performance", "powersave")


def test_caches_that_are_printed_as_a_mask_only_are_read(host_tree: Callable[[str], Path]) -> None:
    mask = "sys/devices/system/cpu/cpu0/cache/index3/\n  level = 3\n  shared_cpu_map = 0000000f\n"
    root = host_tree(archive(cpu(0, "0", "0", 0)) + mask)
    found, _ = read_cpu(root / "sys", root / "proc")
    assert found is not None
    assert found.l3_groups == (CpuSet.parse("0-3"),)


def test_a_group_that_contradicts_an_earlier_one_is_left_out(
    host_tree: Callable[[str], Path],
) -> None:
    root = host_tree(
        archive(cpu(0, "0-1", "0-3", 0), cpu(2, "1-2", "0-3", 0), cpu(3, "3", "0-3", 0)),
    )
    found, issues = read_cpu(root / "sys", root / "proc")
    assert found is not None
    assert (found.cores, [issue.subject for issue in issues]) == (
        (CpuSet.of([0, 1]), CpuSet.of([3])),
        ["devices/system/cpu/cpu2"],
    )


X86 = "vendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: {}\nflags\t\t: {}\n"
ARM = "processor\t: {}\nCPU implementer\t: {}\nCPU architecture: 8\nCPU part\t: {}\n"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (
            X86.format("GenuineIntel", 6, 143, "Intel(R) Xeon(R) Platinum 8480C", "fpu hypervisor"),
            CpuModel(
                vendor="GenuineIntel",
                model="Intel(R) Xeon(R) Platinum 8480C",
                family=6,
                model_number=143,
                is_virtual=True,
            ),
        ),
        (
            X86.format("AuthenticAMD", 25, 17, "AMD EPYC 9654", "fpu hypervisors"),
            CpuModel(
                vendor="AuthenticAMD",
                model="AMD EPYC 9654",
                family=25,
                model_number=17,
                is_virtual=False,
            ),
        ),
        (
            ARM.format(0, "0x41", "0xd4f") + ARM.format(1, "0x41", "0xd4f"),
            CpuModel(vendor="ARM", model="Neoverse-V2"),
        ),
        (
            ARM.format(0, "0x41", "0xd87") + ARM.format(1, "0x41", "0xd85"),
            CpuModel(vendor="ARM", model="Cortex-A725 + Cortex-X925"),
        ),
        (ARM.format(0, "0x61", "0x22"), CpuModel(vendor="0x61", model="0x022")),
        (
            "cpu\t\t: POWER9, altivec supported\nclock\t: 3450MHz\nmodel\t\t: 8335-GTW\n",
            CpuModel(model="POWER9, altivec supported"),
        ),
        ("", CpuModel()),
        (X86.format(" ", "x", "y", " ", ""), CpuModel()),
    ],
)
def test_the_make_is_read_on_every_architecture(text: str, model: CpuModel) -> None:
    assert parse_cpuinfo(text) == model


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reading_of_the_make(noise: bytes) -> None:
    text = noise.decode("utf-8", "replace")
    for lines in (text, X86.format(text, text, text, text, text), ARM.format(text, text, text)):
        parse_cpuinfo(lines)


FILES = (
    *("present", "isolated", "smt/active", "cpu0/topology/core_cpus_list"),
    *("cpu0/topology/physical_package_id", "cpu0/cache/index0/level"),
    *("cpu0/cache/index0/shared_cpu_map", "cpufreq/policy0/scaling_governor"),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=80)))
def test_no_bytes_in_any_file_break_it(tmp_path: Path, contents: dict[str, bytes]) -> None:
    place = tmp_path / "devices/system/cpu"
    for name in FILES:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(contents.get(name, b"0"))
    (place / "online").write_text("0\n")
    found, _ = read_cpu(tmp_path, tmp_path)
    assert found is not None
