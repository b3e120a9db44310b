"""Rules on what the kernel does with memory: swap, balancing, reclaim, huge pages."""

from collections.abc import Callable, Iterator, Mapping

from agent.checks.inputs import Inputs, missing_gpus, missing_numa_nodes, no_gpus, nothing_to_align
from agent.checks.kernel_inputs import (
    cgroup_version,
    missing,
    missing_cgroup,
    missing_sysctl,
    of_host,
    sysctl,
)
from agent.checks.kubelet.inputs import lacking, place, running, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.host import SwapArea
from agent.model.kubelet import KubeletSettings
from agent.model.kubernetes import release
from agent.model.numa import HugePages, NumaNode
from agent.model.snapshot import Snapshot

SWAPPINESS = 10
"""Most that a node of long-running jobs should have: RHEL's tuned profile throughput-performance
sets it; the kernel's default is 60."""

_GIB = 1 << 30
_NO_SWAP = "NoSwap"
_NO_SWAP_SINCE = (1, 30)
"""Release whose default is NoSwap (kubernetes CHANGELOG-1.30, KEP-2400)."""

_SWAP_FIELDS = ("failSwapOn", "memorySwap.swapBehavior")
_ADMIN = "https://docs.kernel.org/admin-guide"


def _swaps(snapshot: Snapshot) -> tuple[SwapArea, ...] | None:
    return of_host(snapshot, lambda host: host.swaps)


def _without_swap(snapshot: Snapshot) -> str | None:
    return "no swap" if _swaps(snapshot) == () else no_gpus(snapshot)


def _missing_swap(snapshot: Snapshot) -> Inputs:
    swaps, settings = _swaps(snapshot), running(snapshot)
    absent = missing_gpus(snapshot) + missing(snapshot, swaps, "swap areas", "swaps")
    if not swaps:
        return absent
    absent += lacking(snapshot, settings, *_SWAP_FIELDS) + missing_cgroup(snapshot)
    has_default = settings is not None and settings.swap_behavior == ""
    is_undated = release(version(snapshot)) is None
    return absent + (("version of the kubelet",) if has_default and is_undated else ())


def _pods_swap(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = running(snapshot)
    reason = None if settings is None else _why_pods_swap(snapshot, settings)
    return tuple(
        Finding(
            subject=f"swap area {area.name}",
            observed=f"{area.size / _GIB:.1f} GiB, {area.used / _GIB:.1f} in use; {reason}",
            expected=f"no swap, or swapBehavior {_NO_SWAP} on cgroup v2",
        )
        for area in (_swaps(snapshot) or ())
        if reason
    )


def _why_pods_swap(snapshot: Snapshot, settings: KubeletSettings) -> str | None:
    if settings.fail_swap_on:
        where = place(settings, "failSwapOn")
        return f"{where} is true, so the kubelet will not start again"
    if cgroup_version(snapshot) == 1:
        return "on cgroup v1 the kubelet sets pods no limit of swap"
    behavior, known = settings.swap_behavior, release(version(snapshot))
    if behavior == "" and known is not None and known < _NO_SWAP_SINCE:
        return "before Kubernetes 1.30 pods may swap unless told otherwise"
    if behavior in (None, "", _NO_SWAP):
        return None
    return f"{place(settings, 'memorySwap.swapBehavior')} is {behavior}"


def _above(name: str, most: int) -> Callable[[Snapshot], tuple[Finding, ...]]:
    def check(snapshot: Snapshot) -> tuple[Finding, ...]:
        value = sysctl(snapshot, name)
        if value is None or value <= most:
            return ()
        expected = str(most) if most == 0 else f"at most {most}"
        return (Finding(subject=name, observed=str(value), expected=expected),)

    return check


def _missing_huge_page_setting(snapshot: Snapshot) -> Inputs:
    kernel = snapshot.kernel
    value = None if kernel is None else kernel.transparent_hugepages
    return missing(snapshot, value, "transparent huge pages", "kernel/mm/transparent_hugepage")


def _never(snapshot: Snapshot) -> tuple[Finding, ...]:
    kernel = snapshot.kernel
    if kernel is None or kernel.transparent_hugepages != "never":
        return ()
    subject = "/sys/kernel/mm/transparent_hugepage/enabled"
    return (Finding(subject=subject, observed="never", expected="madvise | always"),)


def _gpu_nodes(snapshot: Snapshot) -> tuple[NumaNode, ...]:
    """Return the nodes with GPUs of which the huge pages are known."""
    homes = {gpu.numa_node for gpu in snapshot.gpus}
    nodes = (node for node in snapshot.numa_nodes or () if node.id in homes)
    return tuple(node for node in nodes if node.hugepages)


def _of_cpus(snapshot: Snapshot) -> tuple[NumaNode, ...]:
    """Return the nodes with CPUs: a GPU's own memory holds no huge pages of pods."""
    return tuple(node for node in snapshot.numa_nodes or () if len(node.cpus))


def _without_huge_pages(snapshot: Snapshot) -> str | None:
    nodes = _of_cpus(snapshot)
    if nodes and all(node.hugepages for node in nodes) and not any(_sizes(nodes)):
        return "no huge pages are set aside"
    return nothing_to_align(snapshot)


def _sizes(nodes: tuple[NumaNode, ...]) -> Iterator[int]:
    """Yield the sizes, in KiB, of which some node has a page, each once, ascending."""
    pages = (pages for node in nodes for pages in node.hugepages)
    yield from sorted({one.size_kib for one in pages if one.total})


def _missing_huge_pages(snapshot: Snapshot) -> Inputs:
    silent = [node.id for node in _of_cpus(snapshot) if not node.hugepages]
    homeless = [gpu.name for gpu in snapshot.gpus if gpu.numa_node is None]
    unknown = [f"huge pages of NUMA node {', '.join(map(str, silent))}"] if silent else []
    unknown += [f"NUMA node of {', '.join(homeless)}"] if homeless else []
    return missing_gpus(snapshot) + missing_numa_nodes(snapshot) + tuple(unknown)


def _uneven(snapshot: Snapshot) -> tuple[Finding, ...]:
    nodes = _gpu_nodes(snapshot)
    return tuple(
        finding for size in _sizes(_of_cpus(snapshot)) for finding in _uneven_of(size, nodes)
    )


def _uneven_of(size: int, nodes: tuple[NumaNode, ...]) -> Iterator[Finding]:
    """Yield the nodes with less than half of what the one with the most has.

    Small differences are the kernel's own: it sets pages aside in turns, and one node may be
    short of memory in one piece.
    """
    totals: Mapping[int, int] = {node.id: _total(node.hugepages, size) for node in nodes}
    most = max(totals.values(), default=0)
    for node, total in totals.items():
        if total * 2 < most or most == 0:
            yield Finding(
                subject=f"NUMA node {node}, huge pages of {size} KiB",
                observed=f"{total}",
                expected=f"as many as other nodes with GPUs: {most}" if most else "some",
            )


def _total(pages: tuple[HugePages, ...], size: int) -> int:
    return sum(one.total for one in pages if one.size_kib == size)


RULES: tuple[Rule, ...] = (
    Rule(
        code="KRN-001",
        claim="no memory of pods is swapped out",
        why="A job whose memory was swapped out waits for a disk, and all its peers on other nodes "
        "wait for it. With failSwapOn the kubelet does not even start again.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_swap,
        check=_pods_swap,
        skips=_without_swap,
        remedy="run `swapoff -a` and take the areas out of /etc/fstab, or set memorySwap: "
        "{swapBehavior: NoSwap} with failSwapOn: false on cgroup v2",
        reference="https://kubernetes.io/docs/concepts/cluster-administration/"
        "swap-memory-management/",
    ),
    Rule(
        code="KRN-002",
        claim="the kernel swaps only as a last resort",
        why="With a high vm.swappiness the kernel swaps out programs, the kubelet and the "
        "container runtime among them, to keep files of finished reads in memory.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=lambda snapshot: (
            missing(snapshot, _swaps(snapshot), "swap areas", "swaps")
            + missing_sysctl("vm.swappiness")(snapshot)
        ),
        check=_above("vm.swappiness", SWAPPINESS),
        skips=_without_swap,
        remedy=f"set vm.swappiness = {SWAPPINESS} or less in /etc/sysctl.d, then run "
        "`sysctl --system`",
        reference=f"{_ADMIN}/sysctl/vm.html#swappiness",
    ),
    Rule(
        code="KRN-003",
        claim="the kernel does not balance memory between NUMA nodes by itself",
        why="Automatic balancing unmaps pages to see who uses them, and moves them. Jobs that are "
        "pinned to their node gain nothing, and stall on the page faults.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_sysctl("kernel.numa_balancing"),
        check=_above("kernel.numa_balancing", 0),
        skips=nothing_to_align,
        remedy="set kernel.numa_balancing = 0 in /etc/sysctl.d, then run `sysctl --system`",
        reference=f"{_ADMIN}/sysctl/kernel.html#numa-balancing",
    ),
    Rule(
        code="KRN-004",
        claim="a full NUMA node takes memory from another one before it reclaims its own",
        why="With zone reclaim the kernel drops cached files, or swaps, as soon as one node is "
        "full, though others have free memory; loading data then stalls.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_sysctl("vm.zone_reclaim_mode"),
        check=_above("vm.zone_reclaim_mode", 0),
        skips=nothing_to_align,
        remedy="set vm.zone_reclaim_mode = 0 in /etc/sysctl.d, then run `sysctl --system`",
        reference=f"{_ADMIN}/sysctl/vm.html#zone-reclaim-mode",
    ),
    Rule(
        code="KRN-005",
        claim="programs can have transparent huge pages",
        why="Without them large buffers cost the CPU more address translations, and pinning them "
        "for RDMA takes longer.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_huge_page_setting,
        check=_never,
        skips=no_gpus,
        remedy="write madvise to /sys/kernel/mm/transparent_hugepage/enabled, and "
        "transparent_hugepage=madvise on the kernel's command line",
        reference=f"{_ADMIN}/mm/transhuge.html",
    ),
    Rule(
        code="KRN-006",
        claim="every NUMA node with GPUs has its share of the huge pages",
        why="A pod that asks for huge pages is given those of a node that has them, and then lies "
        "away from its GPUs, or is rejected where the Memory Manager aligns them.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_huge_pages,
        check=_uneven,
        skips=_without_huge_pages,
        remedy="set the pages aside for each node, in /sys/devices/system/node/nodeN/hugepages/"
        "hugepages-<size>kB/nr_hugepages or by hugepages=<node>:<number> on the kernel's command "
        "line, and restart the kubelet",
        reference=f"{_ADMIN}/mm/hugetlbpage.html",
    ),
)
