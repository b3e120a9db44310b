"""The annotation that KAI Scheduler reads, in the format of its own exporter."""

from nodetopo.components.zones.observed import observed_placement
from nodetopo.components.zones.zones import zones
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.numa import CpuSet, NumaNode
from tests.components.zones.machines import GIB, GPU, NODES, gpu, memory, pod

OFFER_NEAR_TWO = NodeOffer(devices=(gpu(0, 0, 1), gpu(1, 1), gpu(2, 0)))


def test_a_pod_on_one_node_has_all_of_it_there() -> None:
    held = pod(
        "a",
        devices=(gpu(0, 0), gpu(1, 0)),
        cpus="0-7",
        pieces=(memory("memory", 10, 0), memory("memory", 6, 0)),
    )
    # The example of kai-scheduler/KAI-Scheduler v0.17.0, pkg/npe/placement/placement.go, with
    # the names in the order in which Go writes a map.
    expected = (
        '[{"zone":"node-0","amount":{"cpu":"8","memory":"17179869184","nvidia.com/gpu":"2"}}]'
    )
    assert observed_placement(held, NODES) == expected


def test_a_pod_over_two_nodes_has_a_part_on_each() -> None:
    held = pod("a", devices=(gpu(0, 0), gpu(2, 1), gpu(3, 1)), cpus="6-9")
    assert observed_placement(held, NODES) == (
        '[{"zone":"node-0","amount":{"cpu":"2","nvidia.com/gpu":"1"}},'
        '{"zone":"node-1","amount":{"cpu":"2","nvidia.com/gpu":"2"}}]'
    )


def test_huge_pages_and_other_devices_keep_their_names() -> None:
    nic = PlacedDevice(resource="rdma/hca", id="mlx5_0", numa_nodes=(1,))
    held = pod("a", devices=(nic,), pieces=(memory("hugepages-2Mi", 1, 1),))
    assert observed_placement(held, NODES) == (
        f'[{{"zone":"node-1","amount":{{"hugepages-2Mi":"{GIB}","rdma/hca":"1"}}}}]'
    )


def test_a_device_near_two_nodes_counts_in_each_as_in_the_zones() -> None:
    held = pod("a", devices=(gpu(0, 0, 1), gpu(1, 1)))
    assert observed_placement(held, NODES) == (
        '[{"zone":"node-0","amount":{"nvidia.com/gpu":"1"}},'
        '{"zone":"node-1","amount":{"nvidia.com/gpu":"2"}}]'
    )
    # KAI takes it from what may be given, and comes to what is available.
    for zone, taken in zip(zones(NODES, OFFER_NEAR_TWO, [held]), (1, 2), strict=True):
        (gpus,) = (one for one in zone.resources if one.name == GPU)
        assert gpus.available == gpus.allocatable - taken


def test_what_is_on_no_zone_counts_nowhere() -> None:
    held = pod(
        "a",
        devices=(gpu(1), gpu(2, -1), gpu(3, 64)),
        cpus="99",
        pieces=(memory("memory", 1, 0, 1), memory("memory", 0, 0), memory("memory", 1, 64)),
    )
    assert observed_placement(held, (*NODES, NumaNode(id=64, cpus=CpuSet.parse("99")))) is None


def test_a_pod_that_only_shares_has_no_placement() -> None:
    assert observed_placement(pod("a"), NODES) is None
