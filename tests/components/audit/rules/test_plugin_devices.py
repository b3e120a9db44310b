"""PLG-001 to PLG-004: devices as the kubelet has them from plugins."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodetopo.model.kubelet_state import DeviceState, HeldDevices
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import METRICS, NODE, POD, STATE, TRAINER, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import missing, observed, skipped

GPU = "nvidia.com/gpu"


def with_devices(capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> Snapshot:
    status = replace(NODE, capacity=capacity, allocatable=allocatable)
    return replace(healthy(), node_status=status)


def with_held(ids: Mapping[str, tuple[str, ...]]) -> Snapshot:
    held = HeldDevices(pod_uid="u", container="c", resource=GPU, ids=ids)
    state = replace(STATE, devices=DeviceState(held=(held,)))
    return replace(healthy(), kubelet_state=state, offer=None)


def with_offer(*places: tuple[str, tuple[int, ...]]) -> Snapshot:
    devices = (
        PlacedDevice(resource=GPU, id=f"d{index}", numa_nodes=nodes)
        for index, (_, nodes) in enumerate(places)
    )
    return replace(healthy(), offer=NodeOffer(devices=tuple(devices)))


def test_a_resource_with_nothing_left_is_found() -> None:
    snapshot = with_devices({GPU: 8, "rdma/hca": 4}, {GPU: 0, "rdma/hca": 4})
    (finding,) = result("PLG-001", snapshot).findings
    assert (finding.subject, finding.observed) == (GPU, "0 of 8 allocatable")
    assert observed("PLG-002", snapshot) == []


def test_a_resource_that_is_missing_from_the_allocatable_has_nothing_left() -> None:
    assert observed("PLG-001", with_devices({GPU: 8}, {})) == ["0 of 8 allocatable"]


def test_some_devices_that_are_not_allocatable_are_unhealthy() -> None:
    snapshot = with_devices({GPU: 8}, {GPU: 7})
    assert observed("PLG-001", snapshot) == []
    assert observed("PLG-002", snapshot) == ["7 of 8 allocatable"]


@pytest.mark.parametrize("name", ["cpu", "hugepages-1Gi", "attachable.kubernetes.io/x"])
def test_what_no_plugin_gives_is_not_judged(name: str) -> None:
    snapshot = with_devices({GPU: 8, name: 4}, {GPU: 8, name: 0})
    assert observed("PLG-001", snapshot) == []


@pytest.mark.parametrize("code", ["PLG-001", "PLG-002"])
@pytest.mark.parametrize("half", [{"capacity": None}, {"allocatable": None}])
def test_half_a_status_is_unknown(code: str, half: Mapping[str, None]) -> None:
    status = replace(NODE, capacity={GPU: 8}, allocatable={GPU: 8})
    snapshot = replace(healthy(), node_status=replace(status, **half))
    assert missing(code, snapshot) == ("the Node object",)


def test_a_resource_whose_plugin_left_for_good_has_no_capacity_and_no_finding() -> None:
    assert observed("PLG-001", with_devices({GPU: 0}, {GPU: 0})) == []


@pytest.mark.parametrize("code", ["PLG-001", "PLG-002"])
def test_without_plugins_there_is_nothing_to_say(code: str) -> None:
    assert skipped(code, with_devices({"cpu": 1}, {"cpu": 1})) == "no device plugin has registered"


@pytest.mark.parametrize("code", ["PLG-001", "PLG-002"])
def test_without_the_node_object_it_is_unknown(code: str) -> None:
    assert missing(code, replace(healthy(), node_status=None)) == ("the Node object",)


def test_an_unhealthy_device_of_a_pod_is_named() -> None:
    container = replace(TRAINER, unhealthy_devices=("GPU-1",))
    snapshot = replace(healthy(), pods=(replace(POD, containers=(container,)),))
    (finding,) = result("PLG-002", snapshot).findings
    assert (finding.subject, finding.observed) == (
        "ml/job-0 container trainer",
        "device GPU-1 is not Healthy",
    )


def test_devices_without_a_node_beside_others_are_found() -> None:
    (finding,) = result("PLG-003", with_held({"0": ("b",), "-1": ("c", "a")})).findings
    assert (finding.subject, finding.observed) == (GPU, "a, c without a NUMA node")
    assert observed("PLG-003", with_offer(("", (0,)), ("", ()))) == ["d1 without a NUMA node"]


def test_devices_that_all_have_a_node_or_none_are_fine() -> None:
    assert observed("PLG-003", with_held({"-1": ("a", "b")})) == []
    assert observed("PLG-003", with_held({"0": ("a",), "1": ("b",)})) == []
    assert observed("PLG-003", with_offer(("", ()), ("", ()))) == []


def test_what_the_kubelet_lists_counts_for_more_than_its_checkpoint() -> None:
    before = with_held({"0": ("d0",), "-1": ("d1",)})
    now = with_offer(("", (0,)), ("", (1,)))
    assert observed("PLG-003", replace(before, offer=now.offer)) == []
    others = NodeOffer(devices=(PlacedDevice(resource="rdma/hca", id="h", numa_nodes=(0,)),))
    assert observed("PLG-003", replace(before, offer=others)) == ["d1 without a NUMA node"]


def test_one_numa_node_needs_no_places() -> None:
    whole = with_held({"0": ("b",), "-1": ("a",)})
    assert skipped("PLG-003", replace(whole, numa_nodes=(whole.numa_nodes or ())[:1])) == (
        "one NUMA node"
    )


def test_nothing_is_said_of_places_where_the_numa_nodes_are_not_known() -> None:
    blind = replace(with_offer(("", (0,)), ("", ())), numa_nodes=None)
    assert (missing("PLG-003", blind), observed("PLG-003", blind)) == (("NUMA nodes",), [])


def test_places_need_the_checkpoint_or_the_offer() -> None:
    issue = ProbeIssue(probe="kubelet", subject="checkpoint", reason="denied")
    blind = replace(healthy(), kubelet_state=None, offer=None, issues=(issue,))
    assert missing("PLG-003", blind) == ("devices of the kubelet (checkpoint: denied)",)
    assert result("PLG-003", replace(blind, offer=NodeOffer())).missing == ()


@pytest.mark.parametrize(
    ("share", "found"), [(0.25, ["25% of Allocate calls took longer than 1 s"]), (0.01, [])]
)
def test_more_than_one_slow_call_in_a_hundred_is_found(share: float, found: list[str]) -> None:
    metrics = replace(METRICS, slow_allocations={GPU: share})
    assert observed("PLG-004", replace(healthy(), kubelet_metrics=metrics)) == found


def test_uncounted_calls_are_unknown() -> None:
    metrics = replace(METRICS, slow_allocations=None)
    assert missing("PLG-004", replace(healthy(), kubelet_metrics=metrics)) == (
        "metrics of the kubelet",
    )
