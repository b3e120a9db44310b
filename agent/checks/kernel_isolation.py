"""Rule on CPUs that the kernel keeps apart, and the pods that share them all the same."""

import re

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kernel_inputs import CPU_STATE, cpu_list, missing
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.numa import CpuSet
from agent.model.snapshot import Snapshot

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


RULES: tuple[Rule, ...] = (
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
