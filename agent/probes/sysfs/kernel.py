"""The running kernel and the settings that placement depends on."""

import re
from collections.abc import Mapping

from agent.model.gpu import NvidiaDriver
from agent.model.pci import PciAddress
from agent.model.snapshot import Kernel, ProbeIssue
from agent.probes.sysfs.files import Files
from agent.probes.sysfs.tree import Root

# The NVIDIA kernel driver: which module is loaded, with what settings, and what it made.
#
# Files: `/proc/driver/nvidia` (NVIDIA driver README, chapter "Using the /proc File System
# Interface"; open-gpu-kernel-modules kernel-open/nvidia/nv-procfs.c).

_DRIVER = "driver/nvidia"


_OPEN = "Open Kernel Module"
"""`NVIDIA UNIX Open Kernel Module for x86_64 …`; the closed one says `… x86_64 Kernel Module`."""


_PARAMETER = re.compile(r"([A-Za-z0-9_]{1,128}): ?(.*)")


_MODULES = "module"


_PEER_MEMORY = (
    "module/nvidia_peermem/version",
    "kernel/mm/memory_peers/nv_mem/version",
    "kernel/mm/memory_peers/nv_mem_nc/version",
)
"""NCCL asks for the same three (src/transport/net_ib, ncclIbGdrSupport)."""


_DEVICES = "dev"


_IMEX = f"{_DEVICES}/nvidia-caps-imex-channels"


_CHANNEL = re.compile(r"channel([0-9]{1,9})")


_NODE = re.compile(r"^Node:\s*(-?[0-9]{1,9})$", re.MULTILINE)


def read_nvidia_driver(
    sysfs: Root, procfs: Root, host: Root
) -> tuple[NvidiaDriver | None, tuple[ProbeIssue, ...]]:
    """Return what the driver says of itself; ``None`` if it is not loaded.

    Args:
        host: the host's root directory, for its device nodes.
    """
    proc, sys = Files("nvidia-driver", procfs), Files("nvidia-driver", sysfs)
    version = proc.text(f"{_DRIVER}/version")
    if version is None and sys.names("module/nvidia") is None:
        return None, proc.issues + sys.issues
    dev = Files("nvidia-driver", host)
    driver = NvidiaDriver(
        is_open=None if version is None else _OPEN in version,
        parameters=_parameters(proc),
        peer_memory=_peer_memory(sys),
        imex_channels=_imex_channels(dev),
    )
    return driver, proc.issues + sys.issues + dev.issues


def gpu_memory_nodes(procfs: Root) -> Mapping[PciAddress, int]:
    """Return the NUMA node that the memory of each GPU is, for those whose memory is one.

    The driver makes a node of it on POWER9 and Grace (`gpus/<address>/numa_status`); elsewhere
    the file is missing, or names node -1.
    """
    files = Files("nvidia-driver", procfs)
    nodes = {}
    for name in files.names(f"{_DRIVER}/gpus") or ():
        match = _NODE.search(files.text(f"{_DRIVER}/gpus/{name}/numa_status") or "")
        address = PciAddress.parse_or_none(name)
        if match and address is not None and int(match[1]) >= 0:
            nodes[address] = int(match[1])
    return nodes


def _parameters(files: Files) -> Mapping[str, str] | None:
    """Read lines as ``EnableMSI: 1`` and ``RegistryDwords: ""``."""
    text = files.text(f"{_DRIVER}/params")
    if text is None:
        return None
    matches = map(_PARAMETER.fullmatch, map(str.strip, text.splitlines()))
    return {match[1]: match[2].strip().strip('"') for match in matches if match}


def _peer_memory(files: Files) -> bool | None:
    if files.names(_MODULES) is None:
        return None
    return any(files.content(path) is not None for path in _PEER_MEMORY)


def _imex_channels(files: Files) -> tuple[int, ...] | None:
    names = files.names(_IMEX)
    if names is None:
        return () if not files.issues and files.real(_DEVICES) is not None else None
    return tuple(sorted(int(match[1]) for match in map(_CHANNEL.fullmatch, names) if match))


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
