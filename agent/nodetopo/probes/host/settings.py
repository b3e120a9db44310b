"""Settings of the host that only audits read: runtimes, limits, interrupts, swap, CDI, CPU idling.

They cost some thousand reads on a large node, and a daemon's published data does not depend on
them.
"""

import re
from collections.abc import Iterable

from nodetopo.model.digits import is_digits
from nodetopo.model.hca import Hca
from nodetopo.model.host import HostSettings, IdleState, Interrupts, SwapArea
from nodetopo.model.numa import CpuSet, CpuTopology
from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.host.cdi import specs_of_programs
from nodetopo.probes.host.paths import HostPaths
from nodetopo.probes.host.processes import (
    FABRIC_MANAGER,
    host_processes,
    of_the_node,
    peer_programs,
    runtime_processes,
)
from nodetopo.probes.host.runtimes import read_toolkit, runtime_configs
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import Root, Tree

PROBE = "host"

_ROOT = "fs/cgroup"

_UNIFIED = f"{_ROOT}/cgroup.controllers"
"""Only a unified hierarchy has it in its root (kernel admin-guide/cgroup-v2.rst); where both are
mounted, as ``fs/cgroup/unified``, controllers are version 1's."""

_SWAPS = "swaps"

_SWAP_LINE = re.compile(r"(\S{1,4096})\s+\S+\s+([0-9]{1,19})\s+([0-9]{1,19})\s+-?[0-9]+")
"""``/swap.img file 8388604 0 -2``: name, type, size and use in KiB, priority
(kernel mm/swapfile.c, swap_show)."""

_MAX_AREAS = 32
"""MAX_SWAPFILES of the kernel (include/linux/swap.h)."""

_NET = "class/net"

_NO_INTERFACES = frozenset({"bonding_masters"})
"""Files between the interfaces' links (kernel Documentation/networking/bonding.rst)."""

_DEV = "dev"

_CHAR = f"{_DEV}/char"

_GPU = re.compile(r"nvidia([0-9]{1,3})")

_MAJOR = 195
"""Of the nodes of NVIDIA's driver; a GPU's minor is its number (kernel admin-guide/devices.txt)."""

_CONTROL_MINOR = 255
"""Of ``/dev/nvidiactl``."""

_GDRCOPY = "gdrdrv"

_MAX_VECTORS = 2048
"""Of MSI-X, for one function (PCI Express base specification 6.0, 7.7.2)."""

_ATTRIBUTES = frozenset(
    """
    affinity_hint effective_affinity effective_affinity_list node smp_affinity smp_affinity_list
    spurious
    """.split(),  # noqa: SIM905 - as prose
)
"""Files of an interrupt; any other name is a directory, named after its handler."""

_NO_TRAFFIC = re.compile(r"async|cmd|pages|mgmnt|aeq", re.IGNORECASE)
"""In names of handlers that serve no traffic: ``mlx5_async0@pci:0000:1b:00.0``, ``mlx5_cmd_eq``,
``mlx5_pages_eq``, ``efa-mgmnt@pci:0000:1b:00.0``, ``irdma-ens1f0-AEQ``."""

_CPUS = "devices/system/cpu"

_POLICIES = f"{_CPUS}/cpufreq"

_POLICY = re.compile(r"policy[0-9]+")

_STATE = re.compile(r"state[0-9]")
"""The kernel has at most ten (include/linux/cpuidle.h, CPUIDLE_STATE_MAX)."""

_DMI = "class/dmi/id"

_VIRTUAL = re.compile(
    r"\b(?:QEMU|KVM|VMware|VirtualBox|Xen|Bochs|Parallels|OpenStack|Google Compute Engine|"
    r"Microsoft Corporation Virtual Machine|Amazon EC2 (?!.*\.metal))",
)
"""In maker and product of virtual machines, as systemd's detect-virt knows them too. Amazon's bare
metal has the same maker, and an instance type as product: ``p5.48xlarge`` is virtual,
``p5.metal`` is not."""


def read_host_settings(
    sysfs: Root,
    procfs: Root,
    host: Root,
    *,
    hcas: Iterable[Hca] | None,
    cpu: CpuTopology | None,
) -> tuple[HostSettings | None, tuple[ProbeIssue, ...]]:
    """Return the settings that can be read, and issues; None if nothing can be.

    Args:
        sysfs, procfs, host: the roots of the host's files.
        hcas: whose interrupts to read; None if unknown.
    """
    sys, proc, files = Files(PROBE, sysfs), Files(PROBE, procfs), Files(PROBE, host)
    seen = host_processes(Tree.of(procfs))
    processes = None if seen is None else of_the_node(proc, seen)
    configs, toolkit = runtime_configs(files, processes), read_toolkit(files)
    settings = HostSettings(
        cgroup_version=cgroup_version(sys),
        swaps=swap_areas(proc),
        interrupts=None if hcas is None else hca_interrupts(sys, proc, hcas),
        runtimes=None if processes is None else runtime_processes(proc, processes),
        runtime_configs=configs,
        cdi_specs=specs_of_programs(files, HostPaths(files, proc), configs, toolkit),
        toolkit=toolkit,
        char_devices=char_devices(files),
        infiniband_devices=infiniband_devices(files),
        interfaces=interfaces(sys),
        gdrcopy=gdrcopy(sys, files),
        idle_states=idle_states(sys, cpu),
        frequency_drivers=frequency_drivers(sys),
        energy_preferences=energy_preferences(sys),
        is_vm=is_virtual(sys, cpu),
        fabric_manager=None
        if processes is None
        else FABRIC_MANAGER in {process.name for process in processes},
        peer_programs=None if processes is None else peer_programs(processes),
    )
    is_empty = all(getattr(settings, name) is None for name in settings.__struct_fields__)
    return None if is_empty else settings, sys.issues + proc.issues + files.issues


def cgroup_version(files: Files) -> int | None:
    """Return the version of control groups, 1 or 2; None where no hierarchy is mounted."""
    if files.content(_UNIFIED) is not None:
        return 2
    return 1 if files.names(_ROOT) else None


def swap_areas(files: Files) -> tuple[SwapArea, ...] | None:
    """Return the swap areas in use, of ``/proc/swaps``; None where the kernel has no swap."""
    text = files.text(_SWAPS)
    if text is None:
        return None
    lines = text.splitlines()[1 : _MAX_AREAS + 1]
    areas: list[SwapArea] = []
    for line in lines:
        match = _SWAP_LINE.fullmatch(line.strip())
        if match is None:
            files.report(_SWAPS, f"not a swap area: {line[:40]!r}")
            return None
        areas.append(SwapArea(name=match[1], size=int(match[2]) << 10, used=int(match[3]) << 10))
    return tuple(areas)


def interfaces(sysfs: Files) -> tuple[str, ...] | None:
    """Return the names of the host's network interfaces, sorted; None where sysfs lacks them.

    A sysfs shows the network namespace in which it was mounted. A container's own shows the
    container's, whose interfaces belong to no device, and is not taken for the host's.
    """
    names = [name for name in sysfs.names(_NET) or () if name not in _NO_INTERFACES]
    is_of_the_host = any(sysfs.names(f"{_NET}/{name}/device") is not None for name in names)
    return tuple(sorted(names)) if is_of_the_host else None


def char_devices(files: Files) -> bool | None:
    """Return whether each GPU's node and the driver's nodes have links in ``/dev/char``.

    None without a GPU.
    """
    gpus = [match[1] for match in map(_GPU.fullmatch, _device_names(files)) if match]
    if not gpus:
        return None
    links = frozenset(files.names(_CHAR) or ())
    return {f"{_MAJOR}:{minor}" for minor in (*gpus, _CONTROL_MINOR)} <= links


def infiniband_devices(files: Files) -> tuple[str, ...] | None:
    """Return the names of RDMA device nodes; None where no device can be seen."""
    if not _device_names(files):
        return None
    return files.names(f"{_DEV}/infiniband") or ()


def gdrcopy(sysfs: Files, host: Files) -> bool | None:
    """Return whether GDRCopy's module and node exist; None if one is not visible."""
    modules, devices = sysfs.names("module"), _device_names(host)
    return None if modules is None or not devices else _GDRCOPY in modules and _GDRCOPY in devices


def _device_names(files: Files) -> tuple[str, ...]:
    """Return the names in ``/dev``; none where an empty directory stands in for it."""
    return files.names(_DEV) or ()


def hca_interrupts(
    sysfs: Files, procfs: Files, hcas: Iterable[Hca]
) -> tuple[Interrupts, ...] | None:
    """Return the interrupts of each HCA's function that traffic raises, in the order of *hcas*.

    HCAs that share a function are one, under the first's name; an HCA without such interrupts is
    left out. None where the kernel shows no interrupts at all. A function's vectors are in sysfs
    ``msi_irqs`` (kernel Documentation/ABI/testing/sysfs-bus-pci), their CPUs and handlers in
    ``/proc/irq`` (kernel core-api/irq/irq-affinity.rst, kernel/irq/proc.c).
    """
    if procfs.names("irq") is None:
        return None
    first: dict[PciAddress, str] = {}
    for hca in hcas:
        if hca.pci is not None:
            first.setdefault(hca.pci, hca.name)
    interrupts: list[Interrupts] = []
    for address, name in first.items():
        irqs = sysfs.names(f"bus/pci/devices/{address}/msi_irqs") or ()
        vectors = sorted(int(irq) for irq in irqs if is_digits(irq))[:_MAX_VECTORS]
        sets = [cpus for vector in vectors if (cpus := _traffic_cpus(procfs, vector)) is not None]
        if sets:
            union = frozenset[int]().union(*(cpus.cpus for cpus in sets))
            interrupts.append(Interrupts(hca=name, cpus=CpuSet(union), numbers=len(sets)))
    return tuple(interrupts)


def _traffic_cpus(procfs: Files, vector: int) -> CpuSet | None:
    """Return the CPUs of an interrupt; None unless it handles traffic.

    An interrupt without a handler is shown on CPU 0 (kernel arch/x86/kernel/apic/vector.c,
    vector_assign_managed_shutdown), which is meaningless.
    """
    place = f"irq/{vector}"
    handlers = set(procfs.names(place) or ()) - _ATTRIBUTES
    if not handlers or all(map(_NO_TRAFFIC.search, handlers)):
        return None
    return procfs.cpus(f"{place}/effective_affinity_list") or procfs.cpus(
        f"{place}/smp_affinity_list"
    )


def idle_states(files: Files, cpu: CpuTopology | None) -> tuple[IdleState, ...] | None:
    """Return the idle states of the first CPU that is online; None where the kernel shows none.

    Files here and below: kernel Documentation/ABI/testing/sysfs-devices-system-cpu,
    admin-guide/pm/cpuidle.rst and admin-guide/pm/cpufreq.rst.
    """
    if cpu is None or not len(cpu.online):
        return None
    place = f"{_CPUS}/cpu{min(cpu.online)}/cpuidle"
    names = files.names(place)
    if names is None:
        return None
    states: list[IdleState] = []
    for state in filter(_STATE.fullmatch, names):
        name = files.text(f"{place}/{state}/name")
        latency = files.number(f"{place}/{state}/latency")
        if name and latency is not None:
            switches = (
                files.text(f"{_CPUS}/cpu{number}/cpuidle/{state}/disable") for number in cpu.online
            )
            is_disabled = all(switch == "1" for switch in switches)
            states.append(IdleState(name=name, latency_us=latency, is_disabled=is_disabled))
    return tuple(states)


def frequency_drivers(files: Files) -> tuple[str, ...] | None:
    """Return the frequency drivers in use; None where the kernel cannot scale at all."""
    return _of_policies(files, "scaling_driver")


def energy_preferences(files: Files) -> tuple[str, ...] | None:
    """Return the energy preferences in use, of drivers that choose frequencies by themselves."""
    return _of_policies(files, "energy_performance_preference")


def _of_policies(files: Files, name: str) -> tuple[str, ...] | None:
    policies = files.names(_POLICIES)
    if policies is None:
        return None
    places = (f"{_POLICIES}/{each}/{name}" for each in policies if _POLICY.fullmatch(each))
    return tuple(sorted({word for place in places if (word := files.text(place))}))


def is_virtual(files: Files, cpu: CpuTopology | None) -> bool | None:
    """Return whether the host is a virtual machine; None if neither CPU nor firmware shows it."""
    by_cpu = None if cpu is None else cpu.is_virtual
    if by_cpu:
        return True
    maker, product = files.text(f"{_DMI}/sys_vendor"), files.text(f"{_DMI}/product_name")
    if _VIRTUAL.search(f"{maker or ''} {product or ''}"):
        return True
    return by_cpu if maker is None and product is None else False
