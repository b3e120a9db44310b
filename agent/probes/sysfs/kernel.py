"""The running kernel and the settings that placement depends on."""

import re

from agent.model.snapshot import Kernel, ProbeIssue
from agent.probes.sysfs.files import Files
from agent.probes.sysfs.tree import Root

SYSCTLS = ("kernel.numa_balancing", "vm.swappiness", "vm.zone_reclaim_mode")
"""What checks ask for (kernel Documentation/admin-guide/sysctl/{kernel,vm}.rst)."""

_HUGEPAGES = "kernel/mm/transparent_hugepage/enabled"
"""``always [madvise] never``: the choice is in brackets (admin-guide/mm/transhuge.rst)."""

_CHOSEN = re.compile(r"\[([a-z_+]{1,32})\]")

_RDMA_NETNS = "module/ib_core/parameters/netns_mode"
_NETNS = {"Y": "shared", "N": "exclusive"}
"""A boolean parameter of ib_core: whether network namespaces share RDMA devices
(drivers/infiniband/core/device.c, ``ib_devices_shared_netns``)."""


def read_kernel(sysfs: Root, procfs: Root) -> tuple[Kernel, tuple[ProbeIssue, ...]]:
    """Return what is known; `/proc/sys/kernel/arch`, the machine, exists since Linux 6.1."""
    sys, proc = Files("kernel", sysfs), Files("kernel", procfs)
    modules = proc.text("modules")
    sysctls = {name: proc.text(f"sys/{name.replace('.', '/')}") for name in SYSCTLS}
    kernel = Kernel(
        release=proc.text("sys/kernel/osrelease") or None,
        command_line=proc.text("cmdline"),
        machine=proc.text("sys/kernel/arch") or None,
        modules=None if modules is None else _modules(modules),
        sysctls={name: value for name, value in sysctls.items() if value is not None},
        transparent_hugepages=_transparent_hugepages(sys),
        rdma_netns=_rdma_netns(sys),
    )
    return kernel, sys.issues + proc.issues


def _modules(text: str) -> tuple[str, ...]:
    return tuple(sorted(line.split(maxsplit=1)[0] for line in text.splitlines() if line.strip()))


def _transparent_hugepages(files: Files) -> str | None:
    text = files.text(_HUGEPAGES)
    if text is None:
        return None
    match = _CHOSEN.search(text)
    if match is None:
        files.report(_HUGEPAGES, f"no choice in brackets: {text[:40]!r}")
        return None
    return match[1]


def _rdma_netns(files: Files) -> str | None:
    text = files.text(_RDMA_NETNS)
    if text is not None and text not in _NETNS:
        files.report(_RDMA_NETNS, f"neither Y nor N: {text[:40]!r}")
    return None if text is None else _NETNS.get(text)
