"""Swap, balancing, reclaim and huge pages."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.host import SwapArea
from nodetopo.model.numa import CpuSet, HugePages, NumaNode
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, NODE, SETTINGS, healthy, result

AREA = SwapArea(name="/swap.img", size=8 << 30, used=1 << 30)
CALM = replace(SETTINGS, fail_swap_on=False, swap_behavior="NoSwap")


def _swapping(cgroup: int = 2, version: str | None = "v1.36.3", **settings: object) -> Snapshot:
    return replace(
        healthy(),
        host=replace(HOST, swaps=(AREA,), cgroup_version=cgroup),
        kubelet=replace(CALM, **settings),  # by name
        node_status=replace(NODE, kubelet_version=version),
    )


def test_swap_that_pods_do_not_use_passes() -> None:
    assert result("KRN-001", _swapping()).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (
            _swapping(swap_behavior="LimitedSwap"),
            f"memorySwap.swapBehavior in {SETTINGS.source} is LimitedSwap",
        ),
        (
            _swapping(fail_swap_on=True),
            f"failSwapOn in {SETTINGS.source} is true, so the kubelet will not start again",
        ),
        (_swapping(cgroup=1), "on cgroup v1 the kubelet sets pods no limit of swap"),
        (
            _swapping(swap_behavior="", version="v1.29.4"),
            "before Kubernetes 1.30 pods may swap unless told otherwise",
        ),
    ],
)
def test_swap_that_reaches_pods_is_found_with_the_reason(snapshot: Snapshot, reason: str) -> None:
    assert result("KRN-001", snapshot).findings == (
        Finding(
            subject="swap area /swap.img",
            observed=f"8Gi, 1Gi in use; {reason}",
            expected="no swap, or swapBehavior NoSwap on cgroup v2",
        ),
    )


@pytest.mark.parametrize(
    ("snapshot", "missing"),
    [
        (_swapping(swap_behavior=None), ("memorySwap.swapBehavior",)),
        (_swapping(swap_behavior="", version=None), ("version of the kubelet",)),
        (replace(_swapping(), kubelet=None), ("kubelet settings",)),
        (
            replace(_swapping(), host=replace(HOST, swaps=(AREA,), cgroup_version=None)),
            ("version of control groups",),
        ),
        (replace(_swapping(), host=None), ("swap areas",)),
    ],
)
def test_swap_of_unknown_reach_is_unknown(snapshot: Snapshot, missing: tuple[str, ...]) -> None:
    found = result("KRN-001", snapshot)
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, missing)


def test_the_default_of_a_newer_kubelet_is_no_swap() -> None:
    assert result("KRN-001", _swapping(swap_behavior="")).verdict is Verdict.PASS


@pytest.mark.parametrize("code", ["KRN-001", "KRN-002"])
def test_without_swap_rules_on_swap_do_not_apply(code: str) -> None:
    assert result(code, healthy()).skipped == "no swap"


def _with_sysctl(name: str, value: str) -> Snapshot:
    whole = _swapping()
    assert whole.kernel is not None
    return replace(whole, kernel=replace(whole.kernel, sysctls={name: value}))


@pytest.mark.parametrize(
    ("code", "name", "good", "bad", "expected"),
    [
        ("KRN-002", "vm.swappiness", "10", "11", "at most 10"),
        ("KRN-003", "kernel.numa_balancing", "0", "1", "0"),
        ("KRN-003", "kernel.numa_balancing", "0", "2", "0"),
        ("KRN-004", "vm.zone_reclaim_mode", "0", "1", "0"),
    ],
)
def test_a_setting_of_the_kernel_is_judged(
    code: str, name: str, good: str, bad: str, expected: str
) -> None:
    assert result(code, _with_sysctl(name, good)).verdict is Verdict.PASS
    assert result(code, _with_sysctl(name, bad)).findings == (
        Finding(subject=name, observed=bad, expected=expected),
    )
    assert result(code, _with_sysctl(name, "many")).missing == (name,)


def test_a_setting_that_could_not_be_read_is_missing_with_the_reason() -> None:
    issue = ProbeIssue(probe="kernel", subject="sys/vm/zone_reclaim_mode", reason="EACCES: no")
    snapshot = replace(_with_sysctl("vm.swappiness", "1"), issues=(issue,))
    assert result("KRN-004", snapshot).missing == (
        "vm.zone_reclaim_mode (sys/vm/zone_reclaim_mode: EACCES: no)",
    )


def test_huge_pages_turned_off_are_a_remark() -> None:
    whole = healthy()
    assert whole.kernel is not None
    found = result(
        "KRN-005", replace(whole, kernel=replace(whole.kernel, transparent_hugepages="never"))
    )
    assert (found.verdict, len(found.findings)) == (Verdict.PASS, 1)


def _node(number: int, cpus: str, *pages: int) -> NumaNode:
    sizes = zip((2048, 1 << 20), pages, strict=False)
    return NumaNode(
        id=number,
        cpus=CpuSet.parse(cpus),
        hugepages=tuple(HugePages(size_kib=size, total=total) for size, total in sizes),
    )


def _paged(*nodes: NumaNode) -> Snapshot:
    return replace(healthy(), numa_nodes=nodes)


def test_a_node_with_gpus_that_has_less_than_half_the_huge_pages_is_found() -> None:
    found = result("KRN-006", _paged(_node(0, "0-55", 1000, 4), _node(1, "56-111", 499, 4)))
    assert found.findings == (
        Finding(
            subject="NUMA node 1, huge pages of 2Mi",
            observed="499",
            expected="as many as other nodes with GPUs: 1000",
        ),
    )


def test_small_differences_are_the_kernels_own() -> None:
    found = result("KRN-006", _paged(_node(0, "0-55", 1000, 0), _node(1, "56-111", 500, 0)))
    assert (found.verdict, found.skipped) == (Verdict.PASS, None)


def test_huge_pages_on_nodes_without_gpus_alone_are_of_no_use() -> None:
    nodes = (_node(0, "0-1", 0, 0), _node(1, "2-3", 0, 0), _node(2, "4-5", 64, 0))
    assert [one.observed for one in result("KRN-006", _paged(*nodes)).findings] == ["0", "0"]


@pytest.mark.parametrize(
    ("nodes", "skipped"),
    [
        ((_node(0, "0-1", 0, 0), _node(1, "2-3", 0, 0), _node(9, "")), "no huge pages"),
        ((_node(0, "0-1", 8, 0),), "one NUMA node"),
    ],
)
def test_without_a_choice_of_nodes_huge_pages_do_not_count(
    nodes: tuple[NumaNode, ...], skipped: str
) -> None:
    assert (result("KRN-006", _paged(*nodes)).skipped or "").startswith(skipped)


def test_huge_pages_that_were_not_read_are_unknown() -> None:
    found = result("KRN-006", _paged(_node(0, "0-1", 8, 0), _node(1, "2-3")))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("huge pages of NUMA node 1",))
