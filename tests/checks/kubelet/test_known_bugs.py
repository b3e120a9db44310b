"""KUB-021: which releases have which bug, and on which nodes it matters."""

from dataclasses import replace

import pytest

from agent.checks.kubelet.inputs import ATTRIBUTES
from agent.checks.rule import Verdict
from agent.model.numa import CpuSet, NumaNode
from agent.model.snapshot import Snapshot
from tests.checks.judge import NODE, healthy, result
from tests.checks.kubelet.kubelet_node import missing, node, skipped

RESTARTS = "ends running pods with devices when it restarts (kubernetes issue 118559)"
DEVICES = (
    "goes through all subsets of the NUMA nodes for each pod with devices, and stalls"
    " (kubernetes issue 135541)"
)
MEMORY = (
    "goes through all subsets of the NUMA nodes for each Guaranteed pod, and stalls"
    " (kubernetes issue 135541)"
)


def of(version: str, count: int = 2, **settings: str | None) -> Snapshot:
    """Return a node of *count* NUMA nodes whose kubelet has *version*."""
    nodes = tuple(NumaNode(id=number, cpus=CpuSet()) for number in range(count))
    status = replace(NODE, kubelet_version=version)
    return replace(node(**settings), numa_nodes=nodes, node_status=status)


def found(snapshot: Snapshot) -> list[tuple[str, str, str]]:
    return [
        (one.subject, one.observed, one.expected) for one in result("KUB-021", snapshot).findings
    ]


@pytest.mark.parametrize(
    ("release", "first", "cured"), [("1.25", 10, 14), ("1.26", 5, 9), ("1.27", 2, 6)]
)
def test_running_pods_end_from_the_first_release_with_the_bug_to_the_last(
    release: str, first: int, cured: int
) -> None:
    """First and cured as pkg/kubelet/cm/devicemanager/manager.go of these releases has it."""
    has = {patch for patch in range(20) if found(of(f"v{release}.{patch}"))}
    assert has == set(range(first, cured))


@pytest.mark.parametrize("release", ["1.24", "1.28", "1.36"])
def test_other_releases_end_no_pods(release: str) -> None:
    assert not any(found(of(f"v{release}.{patch}")) for patch in range(20))


@pytest.mark.parametrize("version", ["v1.25", "v1.26", "v1.27"])
def test_a_release_without_a_patch_number_is_not_accused(version: str) -> None:
    assert found(of(version)) == []


def test_each_bug_is_told_with_its_cure() -> None:
    assert result("KUB-021", of("v1.27.3", 17)).verdict is Verdict.WARN
    assert found(of("v1.27.3", 17)) == [
        ("kubelet v1.27.3", RESTARTS, "1.25.14, 1.26.9, 1.27.6 or newer"),
        ("kubelet v1.27.3", DEVICES, "1.36 or newer, or a build with pull request 138244"),
        ("kubelet v1.27.3", MEMORY, "memoryManagerPolicy None on nodes with so many NUMA nodes"),
    ]


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        ("v1.24.17", [DEVICES, MEMORY]),
        ("v1.35.99", [DEVICES, MEMORY]),
        ("v1.36.0", [MEMORY]),
        ("v1.37.9", [MEMORY]),
        ("v1.38.0", []),  # nobody has looked at its sources
        ("v2.0.0", []),
    ],
)
def test_many_numa_nodes_stall_the_releases_whose_sources_say_so(
    version: str, texts: list[str]
) -> None:
    assert [observed for _, observed, _ in found(of(version, 17))] == texts


def test_memory_of_many_nodes_stalls_only_where_hints_are_asked_for() -> None:
    idle = of("v1.36.3", 34, topology_manager_policy="none", memory_manager_policy="Static")
    assert found(idle) == []


@pytest.mark.parametrize("policy", ["topologyManagerPolicy", "memoryManagerPolicy"])
def test_a_policy_that_was_not_read_is_unknown(policy: str) -> None:
    assert missing("KUB-021", of("v1.36.3", 17, **{ATTRIBUTES[policy]: None})) == (policy,)


@pytest.mark.parametrize("version", ["", "master"])
def test_many_nodes_prove_nothing_of_a_release_that_is_not_known(version: str) -> None:
    assert missing("KUB-021", of(version, 17)) == ("version of the kubelet",)


def test_without_settings_only_what_needs_none_is_found() -> None:
    bare = replace(of("v1.27.3", 17), kubelet=None, kubelet_on_disk=None)
    assert [observed for _, observed, _ in found(bare)] == [RESTARTS]
    assert result("KUB-021", bare).missing == ("kubelet settings",)


def test_numa_nodes_that_were_not_read_are_unknown() -> None:
    assert missing("KUB-021", replace(of("v1.35.3"), numa_nodes=None)) == ("NUMA nodes",)


def test_all_that_is_not_known_is_named() -> None:
    bare = replace(healthy(), kubelet=None, numa_nodes=None, node_status=None)
    assert missing("KUB-021", replace(bare, kubelet_on_disk=None)) == (
        "NUMA nodes",
        "kubelet settings",
        "version of the kubelet",
    )


def test_a_node_without_gpus_has_no_bug_to_fear() -> None:
    snapshot = replace(of("v1.27.3", 17), gpus=())
    assert skipped("KUB-021", snapshot) is not None
    assert found(snapshot) == []
