"""KUB-022, KUB-023: the state files against the settings and the machine."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding
from nodetopo.model.kubelet_state import CpuState, MemoryBlock, MemoryState
from nodetopo.model.numa import CpuSet, HugePages
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import STATE, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import FILE, missing, node, observed

LOOSE = {"full-pcpus-only": "true"}
STRICT = {"strict-cpu-reservation": "true"}
ROOT = "/var/lib/kubelet"


def with_cpus(snapshot: Snapshot, default: str | None, *held: str) -> Snapshot:
    entries = {f"uid-{index}": {"c": CpuSet.parse(cpus)} for index, cpus in enumerate(held)}
    shared = None if default is None else CpuSet.parse(default)
    state = CpuState(policy="static", default=shared, entries=entries)
    return replace(snapshot, kubelet_state=replace(STATE, cpu=state))


def blocks(**changes: Any) -> tuple[MemoryBlock, ...]:
    """Return what the kubelet would write for the DGX, with *changes* on node 1."""
    whole = healthy().numa_nodes or ()
    found = []
    for one in whole:
        size = (one.memory_mib or 0) << 20
        kept = (2148 << 20) if one.id == 0 else 0
        block = MemoryBlock(
            numa_node=one.id,
            kind="memory",
            total=size,
            system_reserved=kept,
            allocatable=size - kept,
            reserved=0,
            free=size - kept,
        )
        found.append(replace(block, **changes) if one.id == 1 else block)
    return tuple(found)


def with_memory(snapshot: Snapshot, *found: MemoryBlock, policy: str = "Static") -> Snapshot:
    memory = MemoryState(policy=policy, blocks=found)
    return replace(snapshot, kubelet_state=replace(STATE, memory=memory))


def test_another_policy_is_found_with_the_file_and_the_setting() -> None:
    snapshot = node(cpu_manager_policy="none", root_directory="/data/kubelet/")
    (finding,) = result("KUB-022", snapshot).findings
    assert finding == Finding(
        subject="/data/kubelet/cpu_manager_state",
        observed="policy static",
        expected=f"policy none (cpuManagerPolicy in {FILE})",
    )


def test_reserved_cpus_must_be_shared_without_strictness() -> None:
    snapshot = with_cpus(node(cpu_manager_options=LOOSE), "1-167,169-223", "0,168")
    assert observed("KUB-022", snapshot) == ["reserved CPUs 0,168 are not in defaultCpuSet"]


def test_reserved_cpus_must_not_be_shared_with_strictness() -> None:
    snapshot = with_cpus(node(cpu_manager_options=STRICT), "0-55,57-223")
    assert observed("KUB-022", snapshot) == ["reserved CPUs 0,112,168 are shared"]


def test_all_online_cpus_in_some_set_are_right() -> None:
    snapshot = with_cpus(node(cpu_manager_options=LOOSE), "0-15,56,112,168", "16-55,57-111")
    whole = with_cpus(node(cpu_manager_options=LOOSE), "0-15,32-223", "16-31")
    assert observed("KUB-022", snapshot) == ["CPUs 113-167,169-223 are in no set"]
    assert observed("KUB-022", whole) == []


def test_a_cpu_that_went_offline_is_found() -> None:
    cpu = healthy().cpu
    assert cpu is not None
    online = CpuSet.parse("0-220")
    snapshot = with_cpus(node(cpu_manager_options=LOOSE), "0-223")
    assert observed("KUB-022", replace(snapshot, cpu=replace(cpu, online=online))) == [
        "CPUs 221-223, which are not online"
    ]


def test_strictness_leaves_as_many_cpus_out_as_are_reserved() -> None:
    settings = node(
        cpu_manager_options=STRICT, reserved_system_cpus="", kube_reserved={"cpu": "1500m"}
    )
    assert observed("KUB-022", with_cpus(settings, "1-111,113-223")) == []
    assert observed("KUB-022", with_cpus(settings, "2-111,113-223")) == [
        "CPUs 0-1,112 are in no set"
    ]


def test_cpus_that_are_shared_and_exclusive_are_found() -> None:
    snapshot = with_cpus(node(cpu_manager_options=LOOSE), "0-223", "4-5")
    assert observed("KUB-022", snapshot) == ["CPUs 4-5 of pod uid-0 container c are shared"]


def test_cpus_of_whole_pods_are_not_read_and_may_be_in_no_set() -> None:
    gates = {"PodLevelResourceManagers": True}
    snapshot = with_cpus(node(cpu_manager_options=LOOSE, feature_gates=gates), "0-200")
    assert observed("KUB-022", snapshot) == []


@pytest.mark.parametrize("default", [None, ""])
def test_a_fresh_file_fits_everything(default: str | None) -> None:
    assert observed("KUB-022", with_cpus(node(), default)) == []


def test_files_that_were_not_read_are_unknown_with_the_reason() -> None:
    issue = ProbeIssue(probe="kubelet", subject=f"{ROOT}/cpu_manager_state", reason="denied")
    snapshot = replace(healthy(), kubelet_state=None, issues=(issue,))
    assert missing("KUB-022", snapshot) == (
        f"cpu_manager_state ({ROOT}/cpu_manager_state: denied)",
    )
    assert missing("KUB-023", replace(healthy(), kubelet_state=None)) == ("memory_manager_state",)


def test_a_fitting_memory_file_passes() -> None:
    assert observed("KUB-023", with_memory(node(), *blocks())) == []


def test_another_memory_policy_is_found() -> None:
    snapshot = with_memory(node(), policy="None")
    assert observed("KUB-023", snapshot) == ["policy None"]


def test_memory_that_was_taken_out_is_found() -> None:
    total = blocks()[1].total
    grown = with_memory(node(), *blocks(total=total + (1 << 30)))
    assert observed("KUB-023", grown) == [f"NUMA node 1: {(total >> 20) + 1024}Mi of memory"]


def test_less_than_a_mib_is_beyond_what_is_known() -> None:
    whole = with_memory(node(), *blocks(total=blocks()[1].total + 1023))
    assert observed("KUB-023", whole) == []


def test_another_reservation_is_found() -> None:
    snapshot = with_memory(node(), *blocks(system_reserved=1 << 20))
    assert observed("KUB-023", snapshot) == ["NUMA node 1: 1Mi of memory reserved"]


def test_a_numa_node_that_is_gone_is_found() -> None:
    whole = with_memory(node(), *blocks())
    one = replace(whole, numa_nodes=(whole.numa_nodes or ())[:1])
    assert observed("KUB-023", one) == ["NUMA nodes 0, 1"]


@pytest.mark.parametrize(("count", "findings"), [(4, 0), (5, 1)])
def test_huge_pages_that_came_since_are_found(count: int, findings: int) -> None:
    pages = replace(
        blocks()[1], kind="hugepages-1Gi", total=4 << 30, system_reserved=0, allocatable=4 << 30
    )
    whole = with_memory(node(), *blocks(), pages)
    first, second = whole.numa_nodes or ()
    there = replace(second, hugepages=(HugePages(size_kib=1 << 20, total=count),))
    found = observed("KUB-023", replace(whole, numa_nodes=(first, there)))
    assert found == ["NUMA node 1: 4096Mi of hugepages-1Gi"][:findings]


def test_unread_memory_of_a_node_is_unknown() -> None:
    whole = with_memory(node(), *blocks())
    first, second = whole.numa_nodes or ()
    blind = replace(whole, numa_nodes=(first, replace(second, memory_mib=None)))
    assert missing("KUB-023", blind) == ("memory of NUMA node 1",)
