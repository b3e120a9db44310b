"""What of a composed host only audits read: `host.txt`, beside the `sysfs.txt` of all scans.

Files: kernel Documentation/ABI/testing/{sysfs-bus-pci,sysfs-devices-system-cpu} and
ABI/stable/sysfs-class-infiniband, admin-guide/devices.txt, core-api/irq/irq-affinity.rst.
"""

from collections.abc import Iterator

from nodetopo.model.hca import Hca
from nodetopo.model.host import HostSettings
from nodetopo.model.numa import CpuTopology
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.archive import Entry
from tests.compose import kubelet_state, program_files
from tests.compose.cpus import CPU
from tests.compose.entries import file, link, real_path
from tests.compose.host_settings import LOOPBACK
from tests.compose.machine import Machine
from tests.compose.rdma_files import device_path

_FIRST_VECTOR, _GAP = 100, 4
"""Number of the first HCA's first interrupt, and how many each has."""

_SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"
_CONTROLLERS = "cpuset cpu io memory hugetlb pids rdma misc"
_CHAR_MAJOR, _CONTROL_MINOR = 195, 255
_LOOPBACK = f"sys/devices/virtual/net/{LOOPBACK}"
_ARPHRD_LOOPBACK = 772
"""Kernel include/uapi/linux/if_arp.h."""


def entries(machine: Machine) -> Iterator[Entry]:
    """Yield them all; none is in the tree of :mod:`tests.compose.sysfs`."""
    snapshot = machine.snapshot
    host, cpu, state = snapshot.host, snapshot.cpu, snapshot.kubelet_state
    assert host is not None
    assert cpu is not None
    assert state is not None
    yield file("sys/fs/cgroup/cgroup.controllers", _CONTROLLERS)
    yield file("proc/swaps", _SWAPS)
    yield from _idle_states(host, cpu)
    yield from _frequencies(host, cpu)
    yield from _interrupts(snapshot, host)
    yield from _device_nodes(snapshot, host)
    yield link(f"sys/class/net/{LOOPBACK}", _LOOPBACK)
    yield file(f"{_LOOPBACK}/type", _ARPHRD_LOOPBACK)
    for hca in (*(snapshot.hcas or ()), *(snapshot.management_hcas or ())):
        yield from _counters(hca)
    yield from program_files.entries(snapshot)
    yield from kubelet_state.entries(state)


def _idle_states(host: HostSettings, cpu: CpuTopology) -> Iterator[Entry]:
    place = f"{CPU}/cpu{min(cpu.online)}/cpuidle"
    for at, state in enumerate(host.idle_states or ()):
        yield file(f"{place}/state{at}/name", state.name)
        yield file(f"{place}/state{at}/latency", state.latency_us)


def _frequencies(host: HostSettings, cpu: CpuTopology) -> Iterator[Entry]:
    for driver in host.frequency_drivers or ():
        policy = f"{CPU}/cpufreq/policy{min(cpu.online)}"
        yield file(f"{policy}/scaling_driver", driver)
        for preference in host.energy_preferences or ():
            yield file(f"{policy}/energy_performance_preference", preference)


def _interrupts(snapshot: Snapshot, host: HostSettings) -> Iterator[Entry]:
    """Yield a vector for events of the device, and one for each CPU that traffic goes to.

    Named as mlx5 does (kernel drivers/net/ethernet/mellanox/mlx5/core/pci_irq.c).
    """
    yield Entry(path="proc/irq")
    hcas = {hca.name: hca for hca in snapshot.hcas or ()}
    for position, one in enumerate(host.interrupts or ()):
        path = hcas[one.hca].path
        assert path is not None
        vector = _FIRST_VECTOR + position * _GAP
        cpus = (
            ("mlx5_async0", min(one.cpus)),
            *((f"mlx5_comp{n}", c) for n, c in enumerate(one.cpus)),
        )
        for number, (handler, cpu) in enumerate(cpus, vector):
            yield file(f"{real_path(path)}/msi_irqs/{number}", "msix")
            yield file(f"proc/irq/{number}/effective_affinity_list", cpu)
            yield Entry(path=f"proc/irq/{number}/{handler}@pci:{path.hops[-1]}")


def _device_nodes(snapshot: Snapshot, host: HostSettings) -> Iterator[Entry]:
    minors = [gpu.minor for gpu in snapshot.gpus if gpu.minor is not None]
    names = [f"nvidia{minor}" for minor in minors]
    for name in (*names, "null", "nvidiactl", "nvidia-uvm"):
        yield _node(name)
    for minor, name in zip((*minors, _CONTROL_MINOR), (*names, "nvidiactl"), strict=True):
        yield link(f"dev/char/{_CHAR_MAJOR}:{minor}", f"dev/{name}")
    for name in host.infiniband_devices or ():
        yield _node(f"infiniband/{name}")
    if host.gdrcopy:
        yield _node("gdrdrv")
        yield Entry(path="sys/module/gdrdrv")


def _node(name: str) -> Entry:
    return Entry(path=f"dev/{name}", content=b"")


def _counters(hca: Hca) -> Iterator[Entry]:
    for port in hca.ports:
        place = f"{device_path(hca)}/infiniband/{hca.name}/ports/{port.number}/counters"
        for name, count in (port.counters or {}).items():
            yield file(f"{place}/{name}", count)
