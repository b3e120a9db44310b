"""Rules on the kubelet: the policies that decide alignment, and all other ones of its area."""

from collections.abc import Callable
from operator import attrgetter

from agent.checks.inputs import needs_alignment, nothing_to_align
from agent.checks.kubelet import (
    cpu_manager,
    files,
    known_bugs,
    memory_manager,
    options,
    runtime,
    topology_manager,
)
from agent.checks.kubelet import (
    cpu_manager as kubelet_cpu_choices,
)
from agent.checks.kubelet import (
    files as kubelet_keys,
)
from agent.checks.kubelet import (
    runtime as kubelet_conduct,
)
from agent.checks.kubelet import (
    topology_manager as kubelet_jobs,
)
from agent.checks.kubelet.inputs import missing_settings_and_nodes, place, running, stated, version
from agent.checks.kubelet.known_bugs import MANY_NODES, QUICK_SINCE
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubernetes import release
from agent.model.snapshot import Snapshot

_TASKS = "https://kubernetes.io/docs/tasks/administer-cluster"


def _expect(field: str, *good: str) -> Callable[[Snapshot], tuple[Finding, ...]]:
    """Find fault with any other value of *field* where there is something to align."""

    def check(snapshot: Snapshot) -> tuple[Finding, ...]:
        settings = running(snapshot)
        if settings is None or not needs_alignment(snapshot):
            return ()
        observed = stated(settings, field)
        if observed is None or observed in good:
            return ()
        expected = " | ".join(good)
        return (Finding(subject=place(settings, field), observed=observed, expected=expected),)

    return check


def _without_pinning(snapshot: Snapshot) -> str | None:
    """Tell that the Memory Manager must not pin memory here (KUB-021)."""
    if _has_many_nodes(snapshot):
        return f"more than {MANY_NODES} NUMA nodes, with which policy Static stalls"
    return nothing_to_align(snapshot)


def _without_hints(snapshot: Snapshot) -> str | None:
    """Tell that the Topology Manager must not align devices here (KUB-021)."""
    found = release(version(snapshot))
    if _has_many_nodes(snapshot) and found is not None and found < QUICK_SINCE:
        return f"more than {MANY_NODES} NUMA nodes, with which this kubelet stalls"
    return nothing_to_align(snapshot)


def _has_many_nodes(snapshot: Snapshot) -> bool:
    return len(snapshot.numa_nodes or ()) > MANY_NODES


_POLICIES: tuple[Rule, ...] = (
    Rule(
        code="KUB-001",
        claim="the CPU Manager gives exclusive CPUs",
        why="Without exclusive CPUs the threads of a pod roam over all sockets, whatever GPUs "
        "it has; the Topology Manager has no CPUs to align.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=missing_settings_and_nodes(running, "cpuManagerPolicy"),
        check=_expect("cpuManagerPolicy", "static"),
        skips=nothing_to_align,
        remedy="set cpuManagerPolicy: static with reservedSystemCPUs; drain the node, stop the "
        "kubelet, delete cpu_manager_state, start the kubelet",
        reference=f"{_TASKS}/cpu-management-policies/",
    ),
    Rule(
        code="KUB-003",
        claim="the Topology Manager aligns devices with CPUs",
        why="With policy none the kubelet hands out GPUs and CPUs without regard to their NUMA "
        "nodes.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=missing_settings_and_nodes(running, "topologyManagerPolicy"),
        check=_expect("topologyManagerPolicy", "best-effort", "restricted", "single-numa-node"),
        skips=_without_hints,
        remedy="set topologyManagerPolicy: best-effort where jobs may span NUMA nodes, "
        "single-numa-node where none may, and restart the kubelet (with more than 8 NUMA nodes "
        "state max-allowable-numa-nodes in topologyManagerPolicyOptions too)",
        reference=f"{_TASKS}/topology-manager/",
    ),
    Rule(
        code="KUB-004",
        claim="the Memory Manager pins memory",
        why="Without it the memory of a pod may lie on the other socket than its GPUs and CPUs.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_settings_and_nodes(running, "memoryManagerPolicy"),
        check=_expect("memoryManagerPolicy", "Static"),
        skips=_without_pinning,
        remedy="set memoryManagerPolicy: Static and reservedMemory to the sum of kubeReserved, "
        "systemReserved and evictionHard; drain the node, stop the kubelet, delete "
        "memory_manager_state, start the kubelet",
        reference=f"{_TASKS}/memory-manager/",
    ),
)

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *_POLICIES,
            *known_bugs.RULES,
            *kubelet_conduct.CONDUCT_RULES,
            *kubelet_cpu_choices.CHOICES_RULES,
            *cpu_manager.RULES,
            *runtime.RULES,
            *files.RULES,
            *kubelet_jobs.JOBS_RULES,
            *kubelet_keys.KEYS_RULES,
            *memory_manager.RULES,
            *topology_manager.RULES,
            *options.RULES,
        ),
        key=attrgetter("code"),
    )
)
"""All of them, by code."""
