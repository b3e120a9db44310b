"""The running kernel and the settings that placement depends on."""

from pathlib import Path

from agent.model.snapshot import Kernel, ProbeIssue
from agent.probes.files import Files

SYSCTLS = ("kernel.numa_balancing", "vm.zone_reclaim_mode")
"""What checks ask for (kernel Documentation/admin-guide/sysctl/{kernel,vm}.rst)."""


def read_kernel(procfs: Path) -> tuple[Kernel, tuple[ProbeIssue, ...]]:
    """Return what procfs tells; `sys/kernel/arch`, the machine, exists since Linux 6.1."""
    files = Files("kernel", procfs)
    modules = files.text("modules")
    sysctls = {name: files.text(f"sys/{name.replace('.', '/')}") for name in SYSCTLS}
    kernel = Kernel(
        release=files.text("sys/kernel/osrelease"),
        command_line=files.text("cmdline"),
        machine=files.text("sys/kernel/arch"),
        modules=None if modules is None else _modules(modules),
        sysctls={name: value for name, value in sysctls.items() if value is not None},
    )
    return kernel, files.issues


def _modules(text: str) -> tuple[str, ...]:
    return tuple(sorted(line.split(maxsplit=1)[0] for line in text.splitlines() if line.strip()))
