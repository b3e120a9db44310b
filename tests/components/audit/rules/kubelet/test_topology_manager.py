"""KUB-018, KUB-019, KUB-020, KUB-021: numbers of NUMA nodes, and what releases make of them."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import NODE, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import FILE, missing, node, observed, skipped

CODES = ("KUB-018", "KUB-019", "KUB-020")
CLOSEST = {"prefer-closest-numa-nodes": "true"}


def with_nodes(snapshot: Snapshot, *ids: int) -> Snapshot:
    """Put the DGX's CPUs on the first two of *ids*; the others are memory of coherent GPUs."""
    whole = snapshot.numa_nodes or ()
    cpus = (*(one.cpus for one in whole), *([CpuSet()] * len(ids)))
    pairs = zip(ids, cpus, strict=False)
    return replace(snapshot, numa_nodes=tuple(NumaNode(id=id_, cpus=each) for id_, each in pairs))


def of_version(version: str | None, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, node_status=replace(NODE, kubelet_version=version))


def test_nine_numa_nodes_are_one_too_many_without_the_option() -> None:
    assert observed("KUB-018", with_nodes(node(), *range(8))) == []
    assert observed("KUB-018", with_nodes(node(), *range(9))) == [
        "9 NUMA nodes, those without CPUs included"
    ]


def test_the_option_raises_the_number_of_nodes() -> None:
    raised = node(topology_manager_options={"max-allowable-numa-nodes": "16"})
    assert observed("KUB-018", with_nodes(raised, *range(16))) == []
    assert len(observed("KUB-018", with_nodes(raised, *range(17)))) == 1


def test_a_number_that_the_kubelet_cannot_read_is_left_to_the_rule_on_options() -> None:
    broken = node(topology_manager_options={"max-allowable-numa-nodes": "many"})
    assert observed("KUB-018", with_nodes(broken, *range(9))) == []


@pytest.mark.parametrize("code", CODES)
def test_policy_none_bears_any_numa_nodes(code: str) -> None:
    settings = node(topology_manager_policy="none", topology_manager_options=CLOSEST)
    assert skipped(code, with_nodes(settings, 0, 8, *range(248, 256))) == (
        "topologyManagerPolicy is none"
    )


@pytest.mark.parametrize("code", CODES)
def test_unread_nodes_and_options_are_unknown(code: str) -> None:
    assert missing(code, replace(healthy(), numa_nodes=None)) == ("NUMA nodes",)
    options = node(topology_manager_options=None)
    assert missing(code, options) == ("topologyManagerPolicyOptions",)


@pytest.mark.parametrize(
    ("ids", "findings"),
    [
        ((0, 1), []),
        ((0, 2), ["prefer-closest-numa-nodes with NUMA nodes 0, 2"]),
        ((1, 2), ["prefer-closest-numa-nodes with NUMA nodes 1, 2"]),
    ],
)
def test_gaps_in_the_numbers_are_found_with_prefer_closest(
    ids: tuple[int, ...], findings: list[str]
) -> None:
    settings = node(topology_manager_options=CLOSEST)
    assert observed("KUB-019", with_nodes(settings, *ids)) == findings
    assert observed("KUB-019", with_nodes(node(), *ids)) == []


def test_a_number_beyond_the_mask_is_found_with_the_policy() -> None:
    snapshot = with_nodes(node(), 0, 63, 64)
    (finding,) = result("KUB-020", snapshot).findings
    assert (finding.subject, finding.observed) == (
        "NUMA node 64",
        f"topologyManagerPolicy in {FILE} is single-numa-node",
    )


def test_many_nodes_stall_an_old_kubelet_and_pinned_memory_every_one() -> None:
    many = with_nodes(node(cpu_manager_options={}), *range(17))
    assert [text[-7:] for text in observed("KUB-021", of_version("v1.35.3", many))] == [
        "135541)",
        "135541)",
    ]
    assert len(observed("KUB-021", of_version("v1.37.0", many))) == 1
    unpinned = with_nodes(node(memory_manager_policy="None", cpu_manager_options={}), *range(17))
    assert observed("KUB-021", of_version("v1.36.0", unpinned)) == []


def test_sixteen_nodes_stall_no_kubelet() -> None:
    few = with_nodes(node(cpu_manager_options={}), *range(16))
    assert observed("KUB-021", of_version("v1.35.3", few)) == []


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_many_nodes_matter_only_to_a_policy_that_aligns(policy: str) -> None:
    settings = node(
        topology_manager_policy=policy, memory_manager_policy="None", cpu_manager_options={}
    )
    found = observed("KUB-021", of_version("v1.35.3", with_nodes(settings, *range(34))))
    assert len(found) == (0 if policy == "none" else 1)


def test_a_version_that_is_not_known_or_no_version_is_unknown() -> None:
    assert missing("KUB-021", of_version(None, node())) == ("version of the kubelet",)
    assert missing("KUB-021", of_version("master", node())) == ("version of the kubelet",)


def test_no_policy_is_demanded_where_each_would_panic() -> None:
    idle = node(topology_manager_policy="none")
    reason = "a NUMA node's number is 64 or more, with which no policy works"
    assert skipped("KUB-003", with_nodes(idle, 0, 1, 64)) == reason
    assert observed("KUB-003", with_nodes(idle, 0, 1, 63)) == ["none"]


def test_where_the_managers_would_stall_their_policies_are_not_demanded() -> None:
    idle = node(topology_manager_policy="none", memory_manager_policy="None")
    many = of_version("v1.35.3", with_nodes(idle, *range(34)))
    assert skipped("KUB-003", many) == "more than 16 NUMA nodes, with which this kubelet stalls"
    assert skipped("KUB-004", many) == "more than 16 NUMA nodes, with which policy Static stalls"
    newer = of_version("v1.36.3", many)
    assert result("KUB-003", newer).verdict is Verdict.FAIL
