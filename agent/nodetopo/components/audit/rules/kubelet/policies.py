"""Rules on the kubelet's policies that decide alignment."""

from collections.abc import Iterator

from nodetopo.checks.inputs import needs_alignment, nothing_to_align
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.kubelet.inputs import (
    missing_settings_and_nodes,
    place,
    running,
    stated,
    version,
)
from nodetopo.components.audit.rules.kubelet.known_bugs import MANY_NODES, QUICK_SINCE
from nodetopo.components.audit.rules.kubelet.remedies import (
    all_nodes_allowed,
    memory_reserved,
    restarted_with,
    whole_cores_reserved,
)
from nodetopo.components.audit.rules.kubelet.topology_manager import MASK_BITS
from nodetopo.model.kubernetes import release
from nodetopo.model.snapshot import Snapshot


@rule(
    "KUB-001",
    Severity.ERROR,
    unless=nothing_to_align,
    cure=restarted_with(whole_cores_reserved, drained=True, cpu_manager_policy="static"),
)
def exclusive_cpus(snapshot: Snapshot) -> Judgement:
    """Expect a policy of the CPU Manager that gives exclusive CPUs."""
    yield from _expect(snapshot, "cpuManagerPolicy", "static")


@rule(
    "KUB-003",
    Severity.ERROR,
    cure=restarted_with(all_nodes_allowed, topology_manager_policy="best-effort"),
)
def aligned_devices(snapshot: Snapshot) -> Judgement:
    """Expect a policy of the Topology Manager other than none, unless it would stall or panic."""
    number = release(version(snapshot))
    if _has_many_nodes(snapshot) and number is not None and number < QUICK_SINCE:
        yield Skip(f"more than {MANY_NODES} NUMA nodes, with which this kubelet stalls")
        return
    if any(node.id >= MASK_BITS for node in snapshot.numa_nodes or ()):
        yield Skip(f"a NUMA node's number is {MASK_BITS} or more, with which no policy works")
        return
    if reason := nothing_to_align(snapshot):
        yield Skip(reason)
        return
    policies = ("best-effort", "restricted", "single-numa-node")
    yield from _expect(snapshot, "topologyManagerPolicy", *policies)


@rule(
    "KUB-004",
    Severity.WARNING,
    cure=restarted_with(memory_reserved, drained=True, memory_manager_policy="Static"),
)
def pinned_memory(snapshot: Snapshot) -> Judgement:
    """Expect the static Memory Manager, unless it would stall (KUB-021)."""
    if _has_many_nodes(snapshot):
        yield Skip(f"more than {MANY_NODES} NUMA nodes, with which policy Static stalls")
        return
    if reason := nothing_to_align(snapshot):
        yield Skip(reason)
        return
    yield from _expect(snapshot, "memoryManagerPolicy", "Static")


def _has_many_nodes(snapshot: Snapshot) -> bool:
    return len(snapshot.numa_nodes or ()) > MANY_NODES


def _expect(snapshot: Snapshot, field: str, *good: str) -> Iterator[Finding | Missing]:
    """Yield a finding for any other value of *field* where there is something to align."""
    settings = running(snapshot)
    yield from missing_settings_and_nodes(snapshot, settings, field)
    if settings is None or not needs_alignment(snapshot):
        return
    observed = stated(settings, field)
    if observed is not None and observed not in good:
        expected = " | ".join(good)
        yield Finding(subject=place(settings, field), observed=observed, expected=expected)
