"""The kernel's settings from procfs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetopo.model.snapshot import Kernel
from nodetopo.probes.sysfs.kernel import read_kernel


def test_release_modules_and_settings_are_read(host_tree: Callable[[str], Path]) -> None:
    root = host_tree(
        "proc/\n  cmdline = ro iommu=pt\n  modules |\n"
        "    |nvidia_uvm 4096 0 - Live 0x0\n    |nvidia 8192 3 nvidia_uvm, Live 0x0\n"
        "proc/sys/kernel/\n  osrelease = 6.8.0\n  arch = aarch64\n  numa_balancing = 1\n"
        "sys/kernel/mm/transparent_hugepage/\n  enabled = always [madvise] never\n"
        "sys/module/ib_core/parameters/\n  netns_mode = N\n",
    )
    assert read_kernel(root / "sys", root / "proc") == (
        Kernel(
            release="6.8.0",
            command_line="ro iommu=pt",
            machine="aarch64",
            modules=("nvidia", "nvidia_uvm"),
            sysctls={"kernel.numa_balancing": "1"},
            transparent_hugepages="madvise",
            rdma_netns="exclusive",
        ),
        (),
    )


def test_a_kernel_without_loadable_modules_has_unknown_modules(
    host_tree: Callable[[str], Path],
) -> None:
    root = host_tree("proc/\nsys/\n")
    kernel, issues = read_kernel(root / "sys", root / "proc")
    assert (kernel, issues) == (Kernel(sysctls={}), ())


@pytest.mark.parametrize(
    ("text", "word", "issues"),
    [("Y", "shared", 0), ("N", "exclusive", 0), ("maybe", None, 1), ("", None, 1)],
)
def test_rdma_devices_are_shared_or_exclusive(
    text: str, word: str | None, issues: int, host_tree: Callable[[str], Path]
) -> None:
    root = host_tree(f"proc/\nsys/module/ib_core/parameters/\n  netns_mode = {text}\n")
    kernel, found = read_kernel(root / "sys", root / "proc")
    assert (kernel.rdma_netns, len(found)) == (word, issues)


def test_transparent_hugepages_without_a_choice_are_unknown(
    host_tree: Callable[[str], Path],
) -> None:
    root = host_tree("proc/\nsys/kernel/mm/transparent_hugepage/\n  enabled = always never\n")
    kernel, issues = read_kernel(root / "sys", root / "proc")
    assert (kernel.transparent_hugepages, len(issues)) == (None, 1)


FILES = (
    *("proc/modules", "proc/cmdline", "proc/sys/kernel/osrelease", "proc/sys/kernel/arch"),
    *("sys/kernel/mm/transparent_hugepage/enabled", "sys/module/ib_core/parameters/netns_mode"),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=80)))
def test_no_bytes_in_any_file_break_it(tmp_path: Path, contents: dict[str, bytes]) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(contents.get(name, b""))
    kernel, _ = read_kernel(tmp_path / "sys", tmp_path / "proc")
    assert kernel.release != ""
