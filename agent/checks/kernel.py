"""Rules on settings of the kernel and of the CPUs."""

import re
from collections.abc import Iterator

from agent.checks import kernel_memory
from agent.checks.inputs import Inputs, missing_gpus, missing_numa_nodes, no_gpus, nothing_to_align
from agent.checks.kernel_inputs import CPU_STATE, cpu_list, missing, of_host
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.hca import Hca, HcaKind
from agent.model.host import IdleState, Interrupts
from agent.model.numa import CpuSet
from agent.model.snapshot import Snapshot

# Rules on how fast CPUs run, and how deep they sleep.

DEEP_US = 50
"""Microseconds to leave a state from which on it counts as deep. Intel's C1E takes 2 to 14, C6 of
its servers 85 to 290 (kernel drivers/idle/intel_idle.c); AMD's C2 some hundred by ACPI."""


_PERFORMANCE = "performance"


_SELF_CHOOSING = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose governor ``powersave`` leaves the choice to the CPU, by its energy preference
(kernel admin-guide/pm/intel_pstate.rst and amd-pstate.rst)."""


_ADMIN = "https://docs.kernel.org/admin-guide/pm"


def _governors(snapshot: Snapshot) -> tuple[str, ...]:
    return () if snapshot.cpu is None else snapshot.cpu.governors


def _without_scaling(snapshot: Snapshot) -> str | None:
    if not _governors(snapshot):
        if of_host(snapshot, lambda host: host.frequency_drivers) == ():
            return "the kernel scales no frequency"
        if of_host(snapshot, lambda host: host.is_vm):
            return "a virtual machine's host chooses frequencies"
    return no_gpus(snapshot)


def _missing_governors(snapshot: Snapshot) -> Inputs:
    names = _governors(snapshot)
    place = "devices/system/cpu/cpufreq"
    absent = missing(snapshot, names or None, "frequency governors", place)
    if not names or set(names) == {_PERFORMANCE}:
        return absent
    preferences = of_host(snapshot, lambda host: host.energy_preferences)
    return missing(snapshot, preferences, "energy preferences", place)


def _slow_governors(snapshot: Snapshot) -> tuple[Finding, ...]:
    host, names = snapshot.host, _governors(snapshot)
    preferences = None if host is None else host.energy_preferences
    drivers = set() if host is None else set(host.frequency_drivers or ())
    chooses = bool(drivers) and drivers.issubset(_SELF_CHOOSING)
    slow = [name for name in names if name != _PERFORMANCE]
    if not slow or preferences is None or (chooses and set(preferences) == {_PERFORMANCE}):
        return ()
    preferred = f" with energy preference {', '.join(preferences)}" if preferences else ""
    observed = f"{', '.join(slow)}{preferred}"
    return (Finding(subject="scaling_governor", observed=observed, expected=_PERFORMANCE),)


def _idle_states(snapshot: Snapshot) -> tuple[IdleState, ...] | None:
    return of_host(snapshot, lambda host: host.idle_states)


def _without_idling(snapshot: Snapshot) -> str | None:
    if of_host(snapshot, lambda host: host.is_vm):
        return "a virtual machine's host puts CPUs to sleep"
    return no_gpus(snapshot)


def _missing_idle_states(snapshot: Snapshot) -> Inputs:
    return missing(snapshot, _idle_states(snapshot), "idle states", "devices/system/cpu/cpu")


def _deep_states(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"idle state {state.name}",
            observed=f"takes {state.latency_us} µs to leave",
            expected=f"off, or below {DEEP_US} µs",
        )
        for state in _idle_states(snapshot) or ()
        if state.latency_us >= DEEP_US and not state.is_disabled
    )


FREQUENCY_RULES: tuple[Rule, ...] = (
    Rule(
        code="KRN-007",
        claim="the CPUs run at full frequency",
        why="A CPU that clocks down between two kernel launches makes every GPU of the job wait "
        "for it.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_governors,
        check=_slow_governors,
        skips=_without_scaling,
        remedy="run `cpupower frequency-set -g performance`, or choose tuned's profile "
        "throughput-performance",
        reference=f"{_ADMIN}/cpufreq.html#generic-scaling-governors",
    ),
    Rule(
        code="KRN-008",
        claim="no CPU sleeps so deep that waking it takes long",
        why="Small messages wait for a CPU to wake up; a program may ask for less by "
        "/dev/cpu_dma_latency, which is not seen here.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_idle_states,
        check=_deep_states,
        skips=_without_idling,
        remedy=f"where latency matters, run `cpupower idle-set -D {DEEP_US}`, or choose tuned's "
        "profile latency-performance",
        reference=f"{_ADMIN}/cpuidle.html",
    ),
)


# Rule on CPUs that the kernel keeps apart, and the pods that share them all the same.

_NOHZ_FULL = re.compile(r"(?:^|\s)nohz_full=([0-9,-]+)(?:\s|$)")


def _set_apart(snapshot: Snapshot) -> dict[str, CpuSet]:
    """Return the CPUs that the kernel keeps apart, by the parameter that did it."""
    line = snapshot.kernel.command_line if snapshot.kernel else None
    match = _NOHZ_FULL.search(line or "")
    isolated = snapshot.cpu.isolated if snapshot.cpu else None
    found = {"isolcpus": isolated or CpuSet(), "nohz_full": cpu_list(match[1] if match else None)}
    return {name: cpus for name, cpus in found.items() if len(cpus)}


def _shared_pool(snapshot: Snapshot) -> CpuSet | None:
    """Return the CPUs of pods without CPUs of their own."""
    state = snapshot.kubelet_state.cpu if snapshot.kubelet_state else None
    if state is not None and state.default is not None:
        return state.default
    settings = snapshot.kubelet
    policy = state.policy if state else (settings.cpu_manager_policy if settings else None)
    online = snapshot.cpu.online if snapshot.cpu else None
    return online if policy == "none" else None


def _knows_apart(snapshot: Snapshot) -> bool:
    line = snapshot.kernel.command_line if snapshot.kernel else None
    return snapshot.cpu is not None and snapshot.cpu.isolated is not None and line is not None


def _without_apart(snapshot: Snapshot) -> str | None:
    if _knows_apart(snapshot) and not _set_apart(snapshot):
        return "the kernel keeps no CPU apart"
    return no_gpus(snapshot)


def _missing_apart(snapshot: Snapshot) -> Inputs:
    kernel = snapshot.kernel
    isolated = snapshot.cpu.isolated if snapshot.cpu else None
    line = kernel.command_line if kernel else None
    return (
        missing(snapshot, isolated, "isolated CPUs", "devices/system/cpu/isolated")
        + missing(snapshot, line, "command line of the kernel", "cmdline")
        + missing(snapshot, _shared_pool(snapshot), f"CPUs of the shared pool ({CPU_STATE})")
    )


def _pool_apart(snapshot: Snapshot) -> tuple[Finding, ...]:
    pool = _shared_pool(snapshot)
    if pool is None:
        return ()
    return tuple(
        Finding(
            subject=f"CPUs {cpus & pool} of {name}",
            observed=f"in the pool that pods share ({CPU_STATE})",
            expected="kept from pods, or given to single containers",
        )
        for name, cpus in _set_apart(snapshot).items()
        if len(cpus & pool)
    )


ISOLATION_RULES: tuple[Rule, ...] = (
    Rule(
        code="KRN-009",
        claim="pods share no CPU that the kernel keeps apart",
        why="The scheduler does not spread threads over isolated CPUs: the threads of a pod with "
        "such CPUs in its set pile up on the one where they began.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_apart,
        check=_pool_apart,
        skips=_without_apart,
        remedy="take isolcpus and nohz_full off the kernel's command line, since the CPU Manager's "
        "policy static keeps pods apart by itself; where a program outside Kubernetes has these "
        "CPUs, name them in reservedSystemCPUs, with the option strict-cpu-reservation",
        reference="https://docs.kernel.org/admin-guide/kernel-parameters.html",
    ),
)


# Rules on where the interrupts of HCAs go.


def _adapters(snapshot: Snapshot) -> Iterator[Hca]:
    """Yield the HCAs that have interrupts of their own."""
    kinds = (HcaKind.PHYSICAL, HcaKind.VIRTUAL, None)
    return (hca for hca in snapshot.hcas or () if hca.kind in kinds and hca.pci is not None)


def _interrupts(snapshot: Snapshot) -> tuple[Interrupts, ...] | None:
    return of_host(snapshot, lambda host: host.interrupts)


def _without_adapters(snapshot: Snapshot) -> str | None:
    if snapshot.hcas is not None and not any(_adapters(snapshot)):
        return "no HCA"
    return nothing_to_align(snapshot)


def _missing_interrupts(snapshot: Snapshot) -> Inputs:
    if snapshot.hcas is None:
        return ("HCAs",)
    found = _interrupts(snapshot)
    if found is None:
        return missing(snapshot, found, "interrupts of HCAs", "irq")
    known = {one.hca for one in found}
    pcis = {hca.pci for hca in snapshot.hcas if hca.name in known}
    silent = [hca.name for hca in _adapters(snapshot) if hca.pci not in pcis]
    return (f"interrupts of {', '.join(silent)}",) if silent else ()


def _missing_homes(snapshot: Snapshot) -> Inputs:
    homeless = [hca.name for hca in _adapters(snapshot) if hca.numa_node is None]
    unknown = (f"NUMA node of {', '.join(homeless)}",) if homeless else ()
    nodes = missing_gpus(snapshot) + missing_numa_nodes(snapshot)
    return _missing_interrupts(snapshot) + nodes + unknown


def _away(snapshot: Snapshot) -> tuple[Finding, ...]:
    homes = {hca.name: hca.numa_node for hca in snapshot.hcas or ()}
    nodes = {node.id: node.cpus for node in snapshot.numa_nodes or ()}
    found = (
        _away_of(one, node, nodes.get(node, CpuSet()), _reserved(snapshot))
        for one in _interrupts(snapshot) or ()
        if (node := homes.get(one.hca)) is not None
    )
    return tuple(finding for finding in found if finding is not None)


def _away_of(one: Interrupts, node: int, near: CpuSet, reserved: CpuSet) -> Finding | None:
    """Return what is wrong with the interrupts of one HCA.

    A driver that makes more interrupts than its node has CPUs spreads the rest over other
    nodes; and interrupts on reserved CPUs, which no pod has, were put there.
    """
    away = CpuSet(one.cpus.cpus - near.cpus - reserved.cpus)
    overflows = one.numbers > len(near) and len(one.cpus & near) > 0
    if not len(near) or not len(away) or overflows:
        return None
    return Finding(
        subject=f"{one.hca}, {one.numbers} interrupts",
        observed=f"some go to CPUs {away}",
        expected=f"CPUs {near} of NUMA node {node}",
    )


def _reserved(snapshot: Snapshot) -> CpuSet:
    return cpu_list(snapshot.kubelet.reserved_system_cpus if snapshot.kubelet else None)


def _exclusive(snapshot: Snapshot) -> dict[str, CpuSet] | None:
    """Return the exclusive CPUs of each container by the name of the container."""
    state = snapshot.kubelet_state.cpu if snapshot.kubelet_state else None
    if state is not None:
        return {
            f"pod {uid} container {name}": cpus
            for uid, entries in (state.entries or {}).items()
            for name, cpus in entries.items()
        }
    if snapshot.pods is None:
        return None
    return {
        f"{pod.namespace}/{pod.name} container {container.name}": container.cpus
        for pod in snapshot.pods
        for container in pod.containers
        if container.cpus is not None and len(container.cpus)
    }


def _without_exclusive(snapshot: Snapshot) -> str | None:
    if _exclusive(snapshot) == {}:
        return "no container has CPUs of its own"
    if snapshot.hcas is not None and not any(_adapters(snapshot)):
        return "no HCA"
    return no_gpus(snapshot)


def _missing_exclusive(snapshot: Snapshot) -> Inputs:
    what = f"exclusive CPUs ({CPU_STATE})"
    return missing(snapshot, _exclusive(snapshot), what) + _missing_interrupts(snapshot)


def _disturbed(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=name,
            observed=f"{one.hca} interrupts its CPUs {cpus & one.cpus}",
            expected="CPUs that no container has for itself",
        )
        for name, cpus in (_exclusive(snapshot) or {}).items()
        for one in _interrupts(snapshot) or ()
        if len(cpus & one.cpus)
    )


INTERRUPTS_RULES: tuple[Rule, ...] = (
    Rule(
        code="KRN-010",
        claim="the interrupts of every HCA go to CPUs of its NUMA node",
        why="Completions that are handled on the other socket cross the link between the sockets "
        "twice.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_homes,
        check=_away,
        skips=_without_adapters,
        remedy="let irqbalance run, or write CPUs of the HCA's node to /proc/irq/N/"
        "smp_affinity_list, as `set_irq_affinity_bynode.sh` of mlnx-tools does",
        reference="https://docs.kernel.org/core-api/irq/irq-affinity.html",
    ),
    Rule(
        code="KRN-011",
        claim="no HCA interrupts a CPU that one container has for itself",
        why="The container loses time on CPUs that it paid for, and the HCA's completions wait for "
        "the container. It costs little where the job polls, as NCCL does.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_exclusive,
        check=_disturbed,
        skips=_without_exclusive,
        remedy="reserve some CPUs of each NUMA node by reservedSystemCPUs, and keep interrupts on "
        "them by irqbalance's IRQBALANCE_BANNED_CPULIST or /proc/irq/N/smp_affinity_list",
        reference="https://docs.kernel.org/core-api/irq/irq-affinity.html",
    ),
)


RULES: tuple[Rule, ...] = (
    *kernel_memory.RULES,
    *FREQUENCY_RULES,
    *ISOLATION_RULES,
    *INTERRUPTS_RULES,
)
