"""The running kernel, the NVIDIA driver in it, and the settings that placement depends on."""

import re
from collections.abc import Mapping
from pathlib import Path

from nodetopo.model.gpu import NvidiaDriver
from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Kernel
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import Root, Tree

SYSCTLS = ("kernel.numa_balancing", "vm.swappiness", "vm.zone_reclaim_mode")
"""Those that checks need (kernel Documentation/admin-guide/sysctl/{kernel,vm}.rst)."""

_HUGEPAGES = "kernel/mm/transparent_hugepage/enabled"
"""``always [madvise] never``: the choice is in brackets (admin-guide/mm/transhuge.rst)."""

_CHOSEN = re.compile(r"\[([a-z_+]{1,32})\]")
_RDMA_NETNS = "module/ib_core/parameters/netns_mode"
_NETNS = {"Y": "shared", "N": "exclusive"}
"""A boolean parameter of ib_core: whether network namespaces share RDMA devices
(drivers/infiniband/core/device.c, ``ib_devices_shared_netns``)."""

_DRIVER = "driver/nvidia"
_PROC, _DEV = Path("/proc"), Path("/dev")
_MINOR = re.compile(r"^Device Minor:\s*([0-9]{1,4})", re.MULTILINE)
"""In ``gpus/<address>/information``: the N of the GPU's ``/dev/nvidiaN``."""

_OPEN = "Open Kernel Module"
"""`NVIDIA UNIX Open Kernel Module for x86_64 …`; the closed one has `… x86_64 Kernel Module`."""

_PARAMETER = re.compile(r"([A-Za-z0-9_]{1,128}): ?(.*)")
_PEER_MEMORY = (
    "module/nvidia_peermem/version",
    "kernel/mm/memory_peers/nv_mem/version",
    "kernel/mm/memory_peers/nv_mem_nc/version",
)
"""NCCL checks the same three (src/transport/net_ib, ncclIbGdrSupport)."""

_DEVICES = "dev"
_IMEX = f"{_DEVICES}/nvidia-caps-imex-channels"
_CHANNEL = re.compile(r"channel([0-9]{1,9})")
_NODE = re.compile(r"^Node:\s*(-?[0-9]{1,9})$", re.MULTILINE)


def read_kernel(sysfs: Root, procfs: Root) -> tuple[Kernel, tuple[ProbeIssue, ...]]:
    """Return the kernel; `/proc/sys/kernel/arch`, the machine, exists since Linux 6.1."""
    sys, proc = Files("kernel", sysfs), Files("kernel", procfs)
    modules = proc.text("modules")
    sysctls = {name: proc.text(f"sys/{name.replace('.', '/')}") for name in SYSCTLS}
    lines = None if modules is None else [line.split() for line in modules.splitlines()]
    kernel = Kernel(
        release=proc.text("sys/kernel/osrelease") or None,
        command_line=proc.text("cmdline"),
        machine=proc.text("sys/kernel/arch") or None,
        modules=None if lines is None else tuple(sorted(words[0] for words in lines if words)),
        sysctls={name: value for name, value in sysctls.items() if value is not None},
        transparent_hugepages=sys.read(_HUGEPAGES, _chosen),
        rdma_netns=sys.read(_RDMA_NETNS, _netns),
    )
    return kernel, sys.issues + proc.issues


def _chosen(text: str) -> str:
    chosen = _CHOSEN.search(text)
    if chosen is None:
        raise ValueError(f"no choice in brackets: {text[:40]!r}")
    return chosen[1]


def _netns(text: str) -> str:
    if text not in _NETNS:
        raise ValueError(f"neither Y nor N: {text[:40]!r}")
    return _NETNS[text]


def read_nvidia_driver(
    sysfs: Root, procfs: Root, host: Root
) -> tuple[NvidiaDriver | None, tuple[ProbeIssue, ...]]:
    """Return the NVIDIA kernel driver: its module, settings and devices; ``None`` if not loaded.

    Files: `/proc/driver/nvidia` (NVIDIA driver README, chapter "Using the /proc File System
    Interface"; open-gpu-kernel-modules kernel-open/nvidia/nv-procfs.c).

    Args:
        host: the host's root directory, for its device nodes.
    """
    proc, sys = Files("nvidia-driver", procfs), Files("nvidia-driver", sysfs)
    version = proc.text(f"{_DRIVER}/version")
    if version is None and sys.names("module/nvidia") is None:
        return None, proc.issues + sys.issues

    # Lines as ``EnableMSI: 1`` and ``RegistryDwords: ""``.
    text = proc.text(f"{_DRIVER}/params")
    parameters = [_PARAMETER.fullmatch(line.strip()) for line in (text or "").splitlines()]
    has_modules = sys.names("module") is not None
    peer_memory = has_modules and any(sys.content(path) is not None for path in _PEER_MEMORY)

    dev = Files("nvidia-driver", host)
    channels: tuple[int, ...] | None = None
    names = dev.names(_IMEX)
    if names is not None:
        matches = map(_CHANNEL.fullmatch, names)
        channels = tuple(sorted(int(match[1]) for match in matches if match))
    elif not dev.issues and dev.real(_DEVICES) is not None:
        channels = ()
    driver = NvidiaDriver(
        is_open=None if version is None else _OPEN in version,
        parameters=None
        if text is None
        else {match[1]: match[2].strip().strip('"') for match in parameters if match},
        peer_memory=peer_memory if has_modules else None,
        imex_channels=channels,
    )
    return driver, proc.issues + sys.issues + dev.issues


def is_hidden(procfs: Root, gpu: PciAddress) -> bool:
    """Return whether this container lacks the device node of *gpu* while it has others.

    NVML then lists fewer GPUs than the driver has. It is unknown for a copy of a *procfs*.
    """
    if Tree.of(procfs).root != _PROC:
        return False
    files = Files("nvidia-driver", procfs)
    minor = _MINOR.search(files.text(f"{_DRIVER}/gpus/{gpu}/information") or "")
    own = {path.name for path in _DEV.glob("nvidia[0-9]*")}
    return bool(own) and minor is not None and f"nvidia{minor[1]}" not in own


def gpu_memory_nodes(procfs: Root) -> Mapping[PciAddress, int]:
    """Return the NUMA node of each GPU's memory, for those whose memory is a node.

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
