"""The kernel's settings from procfs."""

from collections.abc import Callable
from pathlib import Path

from agent.model.snapshot import Kernel
from agent.probes.kernel import read_kernel


def test_release_modules_and_settings_are_read(host_tree: Callable[[str], Path]) -> None:
    root = host_tree(
        "proc/\n  cmdline = ro iommu=pt\n  modules |\n"
        "    |nvidia_uvm 4096 0 - Live 0x0\n    |nvidia 8192 3 nvidia_uvm, Live 0x0\n"
        "proc/sys/kernel/\n  osrelease = 6.8.0\n  arch = aarch64\n  numa_balancing = 1\n",
    )
    assert read_kernel(root / "proc") == (
        Kernel(
            release="6.8.0",
            command_line="ro iommu=pt",
            machine="aarch64",
            modules=("nvidia", "nvidia_uvm"),
            sysctls={"kernel.numa_balancing": "1"},
        ),
        (),
    )


def test_a_kernel_without_loadable_modules_has_unknown_modules(
    host_tree: Callable[[str], Path],
) -> None:
    kernel, issues = read_kernel(host_tree("proc/\n") / "proc")
    assert (kernel, issues) == (Kernel(sysctls={}), ())
