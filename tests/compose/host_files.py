"""The kernel, the NVIDIA driver, the firmware's name of the machine, and the kubelet's file.

Files: kernel Documentation/admin-guide, NVIDIA driver README "Using the /proc File System
Interface".
"""

from collections.abc import Iterator

from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.archive import Entry
from tests.compose.entries import file
from tests.compose.kubelet import kubelet_yaml
from tests.compose.machine import Machine

_HUGEPAGE_CHOICES = ("always", "madvise", "never")
_NETNS = {"shared": "Y", "exclusive": "N"}
_DRIVER = "proc/driver/nvidia"


def entries(machine: Machine) -> Iterator[Entry]:
    """Yield what has to do with neither CPUs nor PCI."""
    snapshot = machine.snapshot
    if snapshot.product_name is not None:
        yield file("sys/class/dmi/id/product_name", snapshot.product_name)
    yield from _kernel(snapshot)
    yield from _nvidia(snapshot)
    if (settings := snapshot.kubelet_on_disk) is not None:
        yield file(settings.source.removeprefix("/"), kubelet_yaml(settings))


def _kernel(snapshot: Snapshot) -> Iterator[Entry]:
    kernel = snapshot.kernel
    assert kernel is not None
    yield file("proc/sys/kernel/osrelease", kernel.release)
    yield file("proc/sys/kernel/arch", kernel.machine)
    yield file("proc/cmdline", kernel.command_line)
    for name, value in (kernel.sysctls or {}).items():
        yield file(f"proc/sys/{name.replace('.', '/')}", value)
    modules = (f"{name} 16384 0 - Live 0x0000000000000000" for name in kernel.modules or ())
    yield file("proc/modules", "\n".join(modules))
    if (chosen := kernel.transparent_hugepages) is not None:
        words = (f"[{word}]" if word == chosen else word for word in _HUGEPAGE_CHOICES)
        yield file("sys/kernel/mm/transparent_hugepage/enabled", " ".join(words))
    if kernel.rdma_netns is not None:
        yield file("sys/module/ib_core/parameters/netns_mode", _NETNS[kernel.rdma_netns])


def _nvidia(snapshot: Snapshot) -> Iterator[Entry]:
    driver = snapshot.nvidia
    if driver is None:
        return
    machine = snapshot.kernel.machine if snapshot.kernel else "x86_64"
    module = f"Open Kernel Module for {machine}" if driver.is_open else f"{machine} Kernel Module"
    version = f"NVRM version: NVIDIA UNIX {module}  {snapshot.driver_version}  Release Build"
    yield file(f"{_DRIVER}/version", version)
    lines = (f"{name}: {value or _EMPTY}" for name, value in (driver.parameters or {}).items())
    yield file(f"{_DRIVER}/params", "\n".join(lines))
    yield file("sys/module/nvidia/version", snapshot.driver_version)
    if driver.peer_memory:
        yield file("sys/module/nvidia_peermem/version", snapshot.driver_version)
    yield Entry(path="dev")
    for channel in driver.imex_channels or ():
        yield Entry(path=f"dev/nvidia-caps-imex-channels/channel{channel}", content=b"")
    for gpu in snapshot.gpus:
        if gpu.memory_numa_node is not None:
            status = f"Node: {gpu.memory_numa_node}\nStatus: online"
            yield file(f"{_DRIVER}/gpus/{gpu.pci}/numa_status", status)


_EMPTY = '""'
