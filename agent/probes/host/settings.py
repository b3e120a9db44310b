"""Settings of the host that only audits ask for: runtimes, limits, interrupts, swap, CDI.

They cost some thousand reads on a large node, and nothing that a daemon publishes depends on them.
"""

import re
from collections.abc import Iterable
from dataclasses import fields

from agent.model.hca import Hca
from agent.model.host import HostSettings, IdleState, Interrupts, SwapArea
from agent.model.numa import CpuSet, CpuTopology
from agent.model.pci import PciAddress
from agent.model.snapshot import ProbeIssue
from agent.probes.host.cdi import cdi_specs
from agent.probes.host.processes import (
    FABRIC_MANAGER,
    host_processes,
    of_the_node,
    peer_programs,
    runtime_processes,
)
from agent.probes.host.runtimes import read_toolkit, runtime_configs
from agent.probes.sysfs.files import Files
from agent.probes.sysfs.tree import Root, Tree

# Which version of control groups the host uses.

_ROOT = "fs/cgroup"


_UNIFIED = f"{_ROOT}/cgroup.controllers"
"""Only a unified hierarchy has it in its root (kernel admin-guide/cgroup-v2.rst); where both are
mounted, as ``fs/cgroup/unified``, controllers are version 1's."""


def cgroup_version(files: Files) -> int | None:
    """Return 1 or 2; ``None`` where no hierarchy is mounted."""
    if files.content(_UNIFIED) is not None:
        return 2
    return 1 if files.names(_ROOT) else None


# Swap areas (`/proc/swaps`).

_SWAPS = "swaps"


_LINE = re.compile(r"(\S{1,4096})\s+\S+\s+([0-9]{1,19})\s+([0-9]{1,19})\s+-?[0-9]+")
"""``/swap.img file 8388604 0 -2``: name, type, size and use in KiB, priority
(kernel mm/swapfile.c, swap_show)."""


_MAX_AREAS = 32
"""MAX_SWAPFILES of the kernel (include/linux/swap.h)."""


def swap_areas(files: Files) -> tuple[SwapArea, ...] | None:
    """Return the areas in use; none in a kernel that has swap and uses none."""
    text = files.text(_SWAPS)
    if text is None:
        return None
    lines = text.splitlines()[1 : _MAX_AREAS + 1]
    found = [_LINE.fullmatch(line.strip()) for line in lines]
    if not all(found):
        files.report(_SWAPS, f"not a swap area: {lines[found.index(None)][:40]!r}")
        return None
    return tuple(
        SwapArea(name=match[1], size=int(match[2]) << 10, used=int(match[3]) << 10)
        for match in found
        if match
    )


# The network interfaces of the host, as its own sysfs lists them.

_NET = "class/net"


_CONTROLS = frozenset({"bonding_masters"})
"""Files among the interfaces' links (kernel Documentation/networking/bonding.rst)."""


def interfaces(sysfs: Files) -> tuple[str, ...] | None:
    """Return their names, sorted; ``None`` where they cannot be listed.

    A sysfs shows the network of whoever mounted it. A container's own shows the container's, whose
    interfaces belong to no device: so that is not taken for the host's.
    """
    names = [name for name in sysfs.names(_NET) or () if name not in _CONTROLS]
    is_of_the_host = any(sysfs.names(f"{_NET}/{name}/device") is not None for name in names)
    return tuple(sorted(names)) if is_of_the_host else None


# Device nodes of the host that GPUs and RDMA need beside the GPUs' own.

_DEV = "dev"


_CHAR = f"{_DEV}/char"


_GPU = re.compile(r"nvidia([0-9]{1,3})")


_MAJOR = 195
"""Of the driver's own nodes; a GPU's minor is its number (kernel admin-guide/devices.txt)."""


_CONTROL_MINOR = 255
"""Of ``/dev/nvidiactl``."""


_GDRCOPY = "gdrdrv"


def char_devices(files: Files) -> bool | None:
    """Return whether each GPU's node and the driver's have their link; ``None`` without a GPU."""
    gpus = [match[1] for match in map(_GPU.fullmatch, _device_names(files)) if match]
    if not gpus:
        return None
    links = frozenset(files.names(_CHAR) or ())
    return {f"{_MAJOR}:{minor}" for minor in (*gpus, _CONTROL_MINOR)} <= links


def infiniband_devices(files: Files) -> tuple[str, ...] | None:
    """Return the names of RDMA device nodes; ``None`` where no device can be seen."""
    if not _device_names(files):
        return None
    return files.names(f"{_DEV}/infiniband") or ()


def gdrcopy(sysfs: Files, host: Files) -> bool | None:
    """Return whether GDRCopy's module and its node are there; ``None`` if one cannot be seen."""
    modules, devices = sysfs.names("module"), _device_names(host)
    return None if modules is None or not devices else _GDRCOPY in modules and _GDRCOPY in devices


def _device_names(files: Files) -> tuple[str, ...]:
    """Return the names in ``/dev``; none where it is an empty stand-in."""
    return files.names(_DEV) or ()


# To which CPUs the interrupts of HCAs go.
#
# A function's vectors are in sysfs ``msi_irqs`` (kernel Documentation/ABI/testing/sysfs-bus-pci),
# their CPUs and handlers in ``/proc/irq`` (kernel core-api/irq/irq-affinity.rst,
# kernel/irq/proc.c).

_MAX_VECTORS = 2048
"""Of MSI-X, for one function (PCI Express base specification 6.0, 7.7.2)."""


_ATTRIBUTES = frozenset(
    """
    affinity_hint effective_affinity effective_affinity_list node smp_affinity smp_affinity_list
    spurious
    """.split(),  # noqa: SIM905 - as prose
)
"""Files of an interrupt; any other name there is a directory, named after its handler."""


_SELDOM = re.compile(r"async|cmd|pages|mgmnt|aeq", re.IGNORECASE)
"""In names of handlers that serve no traffic: ``mlx5_async0@pci:0000:1b:00.0``, ``mlx5_cmd_eq``,
``mlx5_pages_eq``, ``efa-mgmnt@pci:0000:1b:00.0``, ``irdma-ens1f0-AEQ``."""


def hca_interrupts(
    sysfs: Files, procfs: Files, hcas: Iterable[Hca]
) -> tuple[Interrupts, ...] | None:
    """Return the interrupts of each HCA's function that traffic raises, in the order of *hcas*.

    HCAs that share a function are one, under the first's name; an HCA without such interrupts is
    left out. ``None`` where the kernel shows no interrupts at all.
    """
    if procfs.names("irq") is None:
        return None
    first: dict[PciAddress, str] = {}
    for hca in hcas:
        if hca.pci is not None:
            first.setdefault(hca.pci, hca.name)
    found = (_of(sysfs, procfs, name, address) for address, name in first.items())
    return tuple(one for one in found if one is not None)


def _of(sysfs: Files, procfs: Files, hca: str, address: PciAddress) -> Interrupts | None:
    names = sysfs.names(f"bus/pci/devices/{address}/msi_irqs") or ()
    vectors = sorted(int(name) for name in names if name.isdecimal())[:_MAX_VECTORS]
    cpus = [found for vector in vectors if (found := _cpus(procfs, vector)) is not None]
    if not cpus:
        return None
    union = frozenset[int]().union(*(one.cpus for one in cpus))
    return Interrupts(hca=hca, cpus=CpuSet(union), numbers=len(cpus))


def _cpus(procfs: Files, vector: int) -> CpuSet | None:
    """Return where an interrupt goes; ``None`` without a handler of traffic.

    An interrupt that nobody handles is shown on CPU 0 (kernel arch/x86/kernel/apic/vector.c,
    vector_assign_managed_shutdown), which says nothing.
    """
    place = f"irq/{vector}"
    handlers = set(procfs.names(place) or ()) - _ATTRIBUTES
    if not handlers or all(map(_SELDOM.search, handlers)):
        return None
    return procfs.cpus(f"{place}/effective_affinity_list") or procfs.cpus(
        f"{place}/smp_affinity_list"
    )


# How CPUs idle and how their frequency is chosen, and whether they are a hypervisor's.
#
# Files: kernel Documentation/ABI/testing/sysfs-devices-system-cpu, admin-guide/pm/cpuidle.rst and
# admin-guide/pm/cpufreq.rst.

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
"""In maker and product of machines that are none, as systemd's detect-virt knows them too.
Amazon names its own machines so as well, with the instance's type: ``p5.48xlarge`` is virtual."""


def idle_states(files: Files, cpu: CpuTopology | None) -> tuple[IdleState, ...] | None:
    """Return the states of the first CPU that is online; ``None`` where the kernel shows none."""
    if cpu is None or not len(cpu.online):
        return None
    place = f"{_CPUS}/cpu{min(cpu.online)}/cpuidle"
    names = files.names(place)
    if names is None:
        return None
    states = (_state(files, cpu, name) for name in names if _STATE.fullmatch(name))
    return tuple(state for state in states if state is not None)


def _state(files: Files, cpu: CpuTopology, name: str) -> IdleState | None:
    place = f"{_CPUS}/cpu{min(cpu.online)}/cpuidle/{name}"
    word, latency = files.text(f"{place}/name"), files.number(f"{place}/latency")
    if not word or latency is None:
        return None
    switches = (files.text(f"{_CPUS}/cpu{one}/cpuidle/{name}/disable") for one in cpu.online)
    return IdleState(
        name=word, latency_us=latency, is_disabled=all(switch == "1" for switch in switches)
    )


def frequency_drivers(files: Files) -> tuple[str, ...] | None:
    """Return the drivers in use; ``None`` where the kernel cannot scale at all."""
    return _of_policies(files, "scaling_driver")


def energy_preferences(files: Files) -> tuple[str, ...] | None:
    """Return the preferences in use, of drivers that choose frequencies by themselves."""
    return _of_policies(files, "energy_performance_preference")


def _of_policies(files: Files, name: str) -> tuple[str, ...] | None:
    policies = files.names(_POLICIES)
    if policies is None:
        return None
    places = (f"{_POLICIES}/{each}/{name}" for each in policies if _POLICY.fullmatch(each))
    return tuple(sorted({word for place in places if (word := files.text(place))}))


def is_virtual(files: Files, cpu: CpuTopology | None) -> bool | None:
    """Return whether a hypervisor is below; ``None`` where neither CPU nor firmware tells."""
    told = None if cpu is None else cpu.is_virtual
    if told:
        return True
    maker, product = files.text(f"{_DMI}/sys_vendor"), files.text(f"{_DMI}/product_name")
    if _VIRTUAL.search(f"{maker or ''} {product or ''}"):
        return True
    return told if maker is None and product is None else False


PROBE = "host"


def read_host_settings(
    sysfs: Root,
    procfs: Root,
    host: Root,
    *,
    hcas: Iterable[Hca] | None,
    cpu: CpuTopology | None,
) -> tuple[HostSettings | None, tuple[ProbeIssue, ...]]:
    """Return what can be read of them; ``None`` if nothing can.

    Args:
        hcas: whose interrupts to look for; ``None`` if they are not known.
    """
    sys, proc, files = Files(PROBE, sysfs), Files(PROBE, procfs), Files(PROBE, host)
    seen = host_processes(Tree.of(procfs))
    processes = None if seen is None else of_the_node(proc, seen)
    settings = HostSettings(
        cgroup_version=cgroup_version(sys),
        swaps=swap_areas(proc),
        interrupts=None if hcas is None else hca_interrupts(sys, proc, hcas),
        runtimes=None if processes is None else runtime_processes(proc, processes),
        runtime_configs=runtime_configs(files, processes),
        cdi_specs=cdi_specs(files),
        toolkit=read_toolkit(files),
        char_devices=char_devices(files),
        infiniband_devices=infiniband_devices(files),
        interfaces=interfaces(sys),
        gdrcopy=gdrcopy(sys, files),
        idle_states=idle_states(sys, cpu),
        frequency_drivers=frequency_drivers(sys),
        energy_preferences=energy_preferences(sys),
        is_vm=is_virtual(sys, cpu),
        fabric_manager=(
            None
            if processes is None
            else any(process.name == FABRIC_MANAGER for process in processes)
        ),
        peer_programs=None if processes is None else peer_programs(processes),
    )
    is_empty = all(getattr(settings, field.name) is None for field in fields(settings))
    return None if is_empty else settings, sys.issues + proc.issues + files.issues
