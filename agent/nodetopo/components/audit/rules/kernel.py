"""Rules on settings of the kernel and of the CPUs."""

import re
from collections.abc import Iterator, Mapping

from nodetopo.checks.inputs import (
    missing_gpus,
    missing_numa_nodes,
    no_gpus,
    nothing_to_align,
    unknown_of,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.kernel_inputs import CPU_STATE, cpu_list, host_of, unread
from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import pool
from nodetopo.model.snapshot import Snapshot

DEEP_US = 50
"""Microseconds to leave a state from which on it counts as deep. Intel's C1E takes 2 to 14, C6 of
its servers 85 to 290 (kernel drivers/idle/intel_idle.c); AMD's C2 some hundred by ACPI."""

_PERFORMANCE = "performance"

_SELF_CHOOSING = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose governor ``powersave`` leaves the choice to the CPU, by its energy preference
(kernel admin-guide/pm/intel_pstate.rst and amd-pstate.rst)."""

_NOHZ_FULL = re.compile(r"(?:^|\s)nohz_full=([0-9,-]+)(?:\s|$)")


@rule("KRN-007", Severity.WARNING)
def governors(snapshot: Snapshot) -> Judgement:
    """Find governors that clock CPUs down, unless the CPUs choose and prefer performance."""
    host = host_of(snapshot)
    names = () if snapshot.cpu is None else snapshot.cpu.governors
    reason = no_gpus(snapshot)
    if not names and host.frequency_drivers == ():
        reason = "the kernel scales no frequency"
    elif not names and host.is_vm:
        reason = "a virtual machine's host chooses frequencies"
    if reason:
        yield Skip(reason)
        return
    place = "devices/system/cpu/cpufreq"
    slow = [name for name in names if name != _PERFORMANCE]
    preferences = host.energy_preferences
    if not names:
        yield unread(snapshot, "frequency governors", place)
    elif slow and preferences is None:
        yield unread(snapshot, "energy preferences", place)
    elif slow and preferences is not None:
        drivers = set(host.frequency_drivers or ())
        is_choosing = bool(drivers) and drivers.issubset(_SELF_CHOOSING)
        if not (is_choosing and set(preferences) == {_PERFORMANCE}):
            preferred = f" with energy preference {', '.join(preferences)}" if preferences else ""
            yield Finding(
                subject="scaling_governor",
                observed=f"{', '.join(slow)}{preferred}",
                expected=_PERFORMANCE,
            )


@rule("KRN-008", Severity.INFO)
def idle_states(snapshot: Snapshot) -> Judgement:
    """Find deep idle states that are on."""
    host = host_of(snapshot)
    reason = "a virtual machine's host puts CPUs to sleep" if host.is_vm else no_gpus(snapshot)
    if reason:
        yield Skip(reason)
        return
    for state in host.idle_states or ():
        if state.latency_us >= DEEP_US and not state.is_disabled:
            yield Finding(
                subject=f"idle state {state.name}",
                observed=f"takes {state.latency_us} µs to leave",
                expected=f"off, or below {DEEP_US} µs",
            )
    if host.idle_states is None:
        yield unread(snapshot, "idle states", "devices/system/cpu/cpu")


@rule("KRN-009", Severity.WARNING)
def isolated_cpus(snapshot: Snapshot) -> Judgement:
    """Find CPUs of ``isolcpus`` or ``nohz_full`` in the pool that pods share."""
    line = snapshot.kernel.command_line if snapshot.kernel else None
    isolated = snapshot.cpu.isolated if snapshot.cpu else None
    match = _NOHZ_FULL.search(line or "")
    apart = {"isolcpus": isolated or CpuSet(), "nohz_full": cpu_list(match[1] if match else None)}
    reason = no_gpus(snapshot)
    if isolated is not None and line is not None and not any(map(len, apart.values())):
        reason = "the kernel keeps no CPU apart"
    if reason:
        yield Skip(reason)
        return
    pool = _shared_pool(snapshot)
    for name, cpus in apart.items() if pool is not None else ():
        if pool is not None and len(cpus & pool):
            yield Finding(
                subject=f"CPUs {cpus & pool} of {name}",
                observed=f"in the pool that pods share ({CPU_STATE})",
                expected="kept from pods, or given to single containers",
            )
    if isolated is None:
        yield unread(snapshot, "isolated CPUs", "devices/system/cpu/isolated")
    if line is None:
        yield unread(snapshot, "command line of the kernel", "cmdline")
    if pool is None:
        yield Missing(f"CPUs of the shared pool ({CPU_STATE})")


def _no_interrupts(snapshot: Snapshot) -> str | None:
    return "no HCA" if snapshot.hcas is not None and not any(_adapters(snapshot)) else None


@rule("KRN-010", Severity.WARNING, unless=(_no_interrupts, nothing_to_align))
def interrupts_on_node(snapshot: Snapshot) -> Judgement:
    """Find HCAs of which some interrupts go to CPUs of other NUMA nodes.

    A driver that makes more interrupts than its node has CPUs spreads the rest over other
    nodes; and interrupts on reserved CPUs, which no pod has, were put there.
    """
    homes = {hca.name: hca.numa_node for hca in snapshot.hcas or ()}
    nodes = {node.id: node.cpus for node in snapshot.numa_nodes or ()}
    reserved = cpu_list(snapshot.kubelet.reserved_system_cpus if snapshot.kubelet else None)
    for interrupt in host_of(snapshot).interrupts or ():
        node = homes.get(interrupt.hca)
        near = CpuSet() if node is None else nodes.get(node, CpuSet())
        away = CpuSet(interrupt.cpus.cpus - near.cpus - reserved.cpus)
        overflows = interrupt.numbers > len(near) and len(interrupt.cpus & near) > 0
        if len(near) and len(away) and not overflows:
            yield Finding(
                subject=f"{interrupt.hca}, {interrupt.numbers} interrupts",
                observed=f"some go to CPUs {away}",
                expected=f"CPUs {near} of NUMA node {node}",
            )
    yield from _missing_interrupts(snapshot)
    yield from missing_gpus(snapshot)
    yield from missing_numa_nodes(snapshot)
    homeless = (hca.name for hca in _adapters(snapshot) if hca.numa_node is None)
    yield from unknown_of("NUMA node", homeless)


@rule("KRN-011", Severity.INFO)
def interrupts_on_exclusive_cpus(snapshot: Snapshot) -> Judgement:
    """Find containers whose exclusive CPUs an HCA interrupts."""
    exclusive = _exclusive(snapshot)
    reason = _no_interrupts(snapshot) or no_gpus(snapshot)
    if exclusive == {}:
        reason = "no container has exclusive CPUs"
    if reason:
        yield Skip(reason)
        return
    for name, cpus in (exclusive or {}).items():
        for interrupt in host_of(snapshot).interrupts or ():
            if len(cpus & interrupt.cpus):
                yield Finding(
                    subject=name,
                    observed=f"{interrupt.hca} interrupts its CPUs {cpus & interrupt.cpus}",
                    expected="CPUs that no container has for itself",
                )
    if exclusive is None:
        yield Missing(f"exclusive CPUs ({CPU_STATE})")
    yield from _missing_interrupts(snapshot)


def _shared_pool(snapshot: Snapshot) -> CpuSet | None:
    """Return the CPUs of pods without exclusive CPUs."""
    state = snapshot.kubelet_state.cpu if snapshot.kubelet_state else None
    if state is not None and state.default is not None:
        return state.default
    settings = snapshot.kubelet
    policy = state.policy if state else (settings.cpu_manager_policy if settings else None)
    online = snapshot.cpu.online if snapshot.cpu else None
    return online if policy == "none" else None


def _exclusive(snapshot: Snapshot) -> Mapping[str, CpuSet] | None:
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
    held = {
        f"{pod.namespace}/{pod.name} container {container.name}": container.cpus
        for pod in snapshot.pods
        for container in pod.containers
        if container.cpus is not None and len(container.cpus)
    }
    pools = {f"{pod.namespace}/{pod.name}": pool(pod) for pod in snapshot.pods}
    return {**held, **{name: cpus for name, cpus in pools.items() if cpus}}


def _adapters(snapshot: Snapshot) -> Iterator[Hca]:
    """Yield the HCAs with separate interrupts."""
    kinds = (HcaKind.PHYSICAL, HcaKind.VIRTUAL, None)
    return (hca for hca in snapshot.hcas or () if hca.kind in kinds and hca.pci is not None)


def _missing_interrupts(snapshot: Snapshot) -> tuple[Missing, ...]:
    if snapshot.hcas is None:
        return (Missing("HCAs"),)
    interrupts = host_of(snapshot).interrupts
    if interrupts is None:
        return (unread(snapshot, "interrupts of HCAs", "irq"),)
    interrupting = {each.hca for each in interrupts}
    known = {hca.pci for hca in snapshot.hcas if hca.name in interrupting}
    return unknown_of(
        "interrupts", (hca.name for hca in _adapters(snapshot) if hca.pci not in known)
    )
