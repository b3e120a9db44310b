"""KUB-016, KUB-017, KUB-025: the memory that the kubelet keeps."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding
from nodetopo.model.kubelet import ReservedMemory
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import GIB, NODE, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import FILE, missing, node, observed, skipped


def reserved(*entries: tuple[int, Mapping[str, str]]) -> tuple[ReservedMemory, ...]:
    return tuple(ReservedMemory(numa_node=one, limits=limits) for one, limits in entries)


def with_capacity(snapshot: Snapshot, memory: int) -> Snapshot:
    status = replace(NODE, capacity={"memory": memory, "nvidia.com/gpu": 8})
    return replace(snapshot, node_status=status)


def test_a_sum_that_is_not_what_is_kept_back_is_found_with_its_parts() -> None:
    snapshot = node(
        reserved_memory=reserved((0, {"memory": "1Gi"}), (1, {"memory": "512Mi"})),
        kube_reserved={"memory": "1Gi"},
    )
    (finding,) = result("KUB-016", snapshot).findings
    assert finding == Finding(
        subject=f"reservedMemory in {FILE}",
        observed="1536Mi of memory on all NUMA nodes",
        expected="3172Mi: systemReserved and kubeReserved have 3Gi, "
        "evictionHard memory.available 100Mi",
    )


@pytest.mark.parametrize(
    "texts",
    [("2148Mi",), ("2Gi", "100Mi"), ("2252341248",), ("2.09765625Gi",), ("2252341248000m",)],
)
def test_any_way_of_writing_the_sum_is_right(texts: tuple[str, ...]) -> None:
    entries = reserved(*((number, {"memory": text}) for number, text in enumerate(texts)))
    assert observed("KUB-016", node(reserved_memory=entries)) == []


def test_one_byte_too_many_is_found() -> None:
    entries = reserved((0, {"memory": "2252341249"}))
    assert observed("KUB-016", node(reserved_memory=entries)) == [
        "2.098Gi (2252341249 bytes) of memory on all NUMA nodes"
    ]


def test_no_reserved_memory_at_all_is_found() -> None:
    nothing: dict[str, Any] = {"system_reserved": {}, "eviction_hard": {"memory.available": "0%"}}
    assert observed("KUB-016", node(reserved_memory=(), **nothing)) == [
        "0 bytes of memory on all NUMA nodes"
    ]


@pytest.mark.parametrize(
    ("share", "capacity", "kept"),
    # Computed by Go 1.26: int64(float64(capacity) * float64(float32(share) / 100)).
    [
        ("5%", 1 << 30, 53_687_092),
        ("33%", 1 << 30, 354_334_816),
        ("0.1%", 527_564_800 << 10, 540_226_380),
        ("99.9%", 1_055_744_000 << 10, 1_080_000_788_062),
        ("0.0%", 1 << 30, 0),
    ],
)
def test_a_share_of_the_memory_is_resolved_as_the_kubelet_does(
    share: str, capacity: int, kept: int
) -> None:
    settings = node(
        reserved_memory=reserved((0, {"memory": str(2 * GIB + kept)})),
        eviction_hard={"memory.available": share},
    )
    assert observed("KUB-016", with_capacity(settings, capacity)) == []


def test_a_share_needs_the_memory_of_the_node_object() -> None:
    settings = node(eviction_hard={"memory.available": "5%"})
    assert missing("KUB-016", replace(settings, node_status=None)) == (
        "memory capacity of the Node object",
    )


def test_eviction_without_memory_keeps_none() -> None:
    settings = node(
        reserved_memory=reserved((0, {"memory": "2Gi"})), eviction_hard={"nodefs.available": "10%"}
    )
    assert observed("KUB-016", settings) == []


@pytest.mark.parametrize("text", ["0", "-1", "x", "101%", "nan%", "1e5%", "%"])
def test_a_threshold_that_the_kubelet_refuses_is_found(text: str) -> None:
    snapshot = with_capacity(node(eviction_hard={"memory.available": text}), GIB)
    subjects = [finding.subject for finding in result("KUB-016", snapshot).findings]
    assert subjects[0] == f"evictionHard in {FILE}"


@pytest.mark.parametrize(
    ("entries", "finding"),
    [
        (((0, {"memory": "2148Mi"}), (2, {"memory": "0"})), "numaNode 2"),
        (((0, {"memory": "2148Mi"}), (1, {"memory": "0"})), "numaNode 1: memory: 0"),
        (((0, {"memory": "1Gi"}), (0, {"memory": "1124Mi"})), "numaNode 0: memory stated 2 times"),
        (((0, {"memory": "lots"}),), "numaNode 0: memory: lots"),
        (((0, {"memory": "-1Gi"}),), "numaNode 0: memory: -1Gi"),
    ],
)
def test_entries_that_the_kubelet_refuses_are_found(
    entries: tuple[tuple[int, Mapping[str, str]], ...], finding: str
) -> None:
    assert finding in observed("KUB-016", node(reserved_memory=reserved(*entries)))


@pytest.mark.parametrize("text", ["some", "-1Gi", ""])
@pytest.mark.parametrize("code", ["KUB-016", "KUB-025"])
def test_a_reservation_that_is_no_quantity_is_found(code: str, text: str) -> None:
    assert observed(code, node(kube_reserved={"memory": text})) == [f"memory: {text}"]


@pytest.mark.parametrize("code", ["KUB-016", "KUB-017"])
def test_policy_none_does_not_look_at_reserved_memory(code: str) -> None:
    snapshot = node(memory_manager_policy="None", reserved_memory=())
    assert skipped(code, snapshot) == "memoryManagerPolicy is None"


@pytest.mark.parametrize("code", ["KUB-016", "KUB-017"])
def test_unread_reserved_memory_is_unknown(code: str) -> None:
    assert missing(code, node(reserved_memory=None)) == ("reservedMemory",)


def test_huge_pages_are_found_each() -> None:
    pages = {"memory": "2148Mi", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "2Gi"}
    assert observed("KUB-017", node(reserved_memory=reserved((0, pages)))) == [
        "numaNode 0: hugepages-2Mi: 1Gi",
        "numaNode 0: hugepages-1Gi: 2Gi",
    ]


def test_no_memory_kept_is_found_whatever_is_kept_of_cpus() -> None:
    found = observed("KUB-025", node(system_reserved={"cpu": "1"}, kube_reserved={"memory": "0"}))
    assert found == ["no memory reserved"]


def test_memory_kept_for_the_kubelet_alone_is_enough() -> None:
    assert observed("KUB-025", node(system_reserved={}, kube_reserved={"memory": "1Gi"})) == []


def test_a_node_without_gpus_may_keep_none() -> None:
    snapshot = replace(node(system_reserved={}), gpus=())
    assert skipped("KUB-025", snapshot) == "no GPU"
    assert healthy().gpus
