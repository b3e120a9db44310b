"""The NVIDIA kernel driver: which module is loaded, with what settings, and what it made.

Files: `/proc/driver/nvidia` (NVIDIA driver README, chapter "Using the /proc File System
Interface"; open-gpu-kernel-modules kernel-open/nvidia/nv-procfs.c).
"""

import re
from collections.abc import Mapping

from agent.model.driver import NvidiaDriver
from agent.model.pci import PciAddress
from agent.model.snapshot import ProbeIssue
from agent.probes.sysfs.files import Files
from agent.probes.sysfs.tree import Root

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
