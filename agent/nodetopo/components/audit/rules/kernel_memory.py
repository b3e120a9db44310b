"""Rules on the kernel's memory management: swap, balancing, reclaim, huge pages."""

from collections.abc import Iterator

from nodetopo.checks.inputs import (
    missing_gpus,
    missing_numa_nodes,
    no_gpus,
    nothing_to_align,
    unknown_of,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.kernel_inputs import host_of, missing_cgroup, sysctl, unread
from nodetopo.components.audit.rules.kubelet.inputs import lacking, place, running, version
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import KIB, release, size_text
from nodetopo.model.snapshot import Snapshot

SWAPPINESS = 10
"""Most that a node of long-running jobs should have: RHEL's tuned profile throughput-performance
sets it; the kernel's default is 60."""

_NO_SWAP = "NoSwap"
_NO_SWAP_SINCE = (1, 30)
"""Release whose default is NoSwap (kubernetes CHANGELOG-1.30, KEP-2400)."""


def _no_swap(snapshot: Snapshot) -> str | None:
    return "no swap" if host_of(snapshot).swaps == () else no_gpus(snapshot)


@rule("KRN-001", Severity.WARNING, unless=_no_swap)
def swapped_pods(snapshot: Snapshot) -> Judgement:
    """Find swap areas to which the kubelet lets pods swap, or with which it will not start."""
    swaps, settings = host_of(snapshot).swaps, running(snapshot)
    cause = None if settings is None else _why_pods_swap(snapshot, settings)
    for area in (swaps or ()) if cause else ():
        yield Finding(
            subject=f"swap area {area.name}",
            observed=f"{size_text(area.size)}, {size_text(area.used)} in use; {cause}",
            expected=f"no swap, or swapBehavior {_NO_SWAP} on cgroup v2",
        )
    yield from missing_gpus(snapshot)
    if swaps is None:
        yield unread(snapshot, "swap areas", "swaps")
        return
    fields = lacking(snapshot, settings, "failSwapOn", "memorySwap.swapBehavior")
    yield from fields
    yield from missing_cgroup(snapshot)
    has_default = settings is not None and settings.swap_behavior == ""
    if has_default and release(version(snapshot)) is None:
        yield Missing("version of the kubelet")


@rule("KRN-002", Severity.WARNING, unless=_no_swap)
def swappiness(snapshot: Snapshot) -> Judgement:
    """Find a high ``vm.swappiness``."""
    if host_of(snapshot).swaps is None:
        yield unread(snapshot, "swap areas", "swaps")
    yield from _above(snapshot, "vm.swappiness", SWAPPINESS)


@rule("KRN-003", Severity.WARNING, unless=nothing_to_align)
def numa_balancing(snapshot: Snapshot) -> Judgement:
    """Find automatic balancing."""
    yield from _above(snapshot, "kernel.numa_balancing", 0)


@rule("KRN-004", Severity.WARNING, unless=nothing_to_align)
def zone_reclaim(snapshot: Snapshot) -> Judgement:
    """Find zone reclaim."""
    yield from _above(snapshot, "vm.zone_reclaim_mode", 0)


@rule("KRN-005", Severity.INFO, unless=no_gpus)
def transparent_huge_pages(snapshot: Snapshot) -> Judgement:
    """Find transparent huge pages off."""
    mode = None if snapshot.kernel is None else snapshot.kernel.transparent_hugepages
    if mode is None:
        yield unread(snapshot, "transparent huge pages", "kernel/mm/transparent_hugepage")
    if mode == "never":
        subject = "/sys/kernel/mm/transparent_hugepage/enabled"
        yield Finding(subject=subject, observed="never", expected="madvise | always")


@rule("KRN-006", Severity.WARNING)
def huge_pages(snapshot: Snapshot) -> Judgement:
    """Find NUMA nodes with GPUs and less than half the huge pages of the richest node.

    Small differences are normal: the kernel reserves pages in turns, and a node can lack contiguous
    memory.
    """
    # A GPU's own memory, which has no CPUs, holds no huge pages of pods.
    nodes = [node for node in snapshot.numa_nodes or () if len(node.cpus)]
    silent = [str(node.id) for node in nodes if not node.hugepages]
    sizes = sorted({p.size_kib for node in nodes for p in node.hugepages if p.total})
    reason = nothing_to_align(snapshot)
    if nodes and not silent and not sizes:
        reason = "no huge pages are set aside"
    if reason:
        yield Skip(reason)
        return
    homes = {gpu.numa_node for gpu in snapshot.gpus}
    for size in sizes:
        totals = {
            node.id: sum(pages.total for pages in node.hugepages if pages.size_kib == size)
            for node in snapshot.numa_nodes or ()
            if node.id in homes and node.hugepages
        }
        most = max(totals.values(), default=0)
        for node, total in totals.items():
            if total * 2 < most or most == 0:
                yield Finding(
                    subject=f"NUMA node {node}, huge pages of {size_text(size * KIB)}",
                    observed=f"{total}",
                    expected=f"as many as other nodes with GPUs: {most}" if most else "some",
                )
    yield from missing_gpus(snapshot)
    yield from missing_numa_nodes(snapshot)
    if silent:
        yield Missing(f"huge pages of NUMA node {', '.join(silent)}")
    homeless = (gpu.name for gpu in snapshot.gpus if gpu.numa_node is None)
    yield from unknown_of("NUMA node", homeless)


def _why_pods_swap(snapshot: Snapshot, settings: KubeletSettings) -> str | None:
    if settings.fail_swap_on:
        where = place(settings, "failSwapOn")
        return f"{where} is true, so the kubelet will not start again"
    if host_of(snapshot).cgroup_version == 1:
        return "on cgroup v1 the kubelet sets pods no limit of swap"
    behavior, since = settings.swap_behavior, release(version(snapshot))
    if behavior == "" and since is not None and since < _NO_SWAP_SINCE:
        return "before Kubernetes 1.30 pods may swap unless told otherwise"
    if behavior in (None, "", _NO_SWAP):
        return None
    return f"{place(settings, 'memorySwap.swapBehavior')} is {behavior}"


def _above(snapshot: Snapshot, name: str, most: int) -> Iterator[Finding | Missing]:
    """Find a number of ``/proc/sys`` that is greater than *most*."""
    value = sysctl(snapshot, name)
    if isinstance(value, Missing):
        yield value
    elif value > most:
        expected = str(most) if most == 0 else f"at most {most}"
        yield Finding(subject=name, observed=str(value), expected=expected)
