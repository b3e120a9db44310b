"""How CPUs idle and how their frequency is chosen, and whether they are a hypervisor's.

Files: kernel Documentation/ABI/testing/sysfs-devices-system-cpu, admin-guide/pm/cpuidle.rst and
admin-guide/pm/cpufreq.rst.
"""

import re

from agent.model.host import IdleState
from agent.model.numa import CpuTopology
from agent.probes.sysfs.files import Files

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
