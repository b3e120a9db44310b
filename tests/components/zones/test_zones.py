"""Zones: what each NUMA node has, lets pods have, and has left."""

from msgspec.structs import replace

from nodetopo.components.zones.zones import MAX_ID, Zone, ZoneResource, hugepages_name, zones
from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.node import NodeOffer, PlacedDevice, PodHolding
from nodetopo.model.numa import CpuSet, NumaNode
from tests.components.zones.machines import GIB, GPU, NODES, OFFER, gpu, memory, pod


def amounts(found: tuple[Zone, ...], name: str) -> list[tuple[int, int, int]]:
    """Return capacity, allocatable and available of a resource, by zone."""
    return [
        (one.capacity, one.allocatable, one.available)
        for zone in found
        for one in zone.resources
        if one.name == name
    ]


def test_an_idle_node_has_all_left_that_it_lets_pods_have() -> None:
    first, second = zones(NODES, OFFER, ())
    assert first == Zone(
        id=0,
        resources=(
            ZoneResource(name="cpu", capacity=8, allocatable=7, available=7),
            ZoneResource(
                name="hugepages-2Mi", capacity=2 * GIB, allocatable=2 * GIB, available=2 * GIB
            ),
            ZoneResource(
                name="memory", capacity=64 * GIB, allocatable=61 * GIB, available=61 * GIB
            ),
            ZoneResource(name=GPU, capacity=2, allocatable=2, available=2),
        ),
        costs={0: 10, 1: 21},
    )
    assert (second.id, second.costs) == (1, {0: 21, 1: 10})


def test_what_a_pod_was_given_is_not_available() -> None:
    held = pod(
        "a",
        devices=(gpu(2, 1),),
        cpus="8-11",
        pieces=(memory("memory", 10, 1), memory("hugepages-2Mi", 1, 1)),
    )
    found = zones(NODES, OFFER, [held])
    assert amounts(found, "cpu") == [(8, 7, 7), (8, 8, 4)]
    assert amounts(found, GPU) == [(2, 2, 2), (2, 2, 1)]
    assert amounts(found, "memory")[1] == (64 * GIB, 62 * GIB, 52 * GIB)
    assert amounts(found, "hugepages-2Mi")[1] == (2 * GIB, 2 * GIB, GIB)


def test_a_gpu_that_a_pod_has_by_claim_is_not_available() -> None:
    name = next(device.id for device in OFFER.devices if device.numa_nodes == (1,))
    offered = replace(OFFER, devices=tuple(replace(it, id=f"GPU-{it.id}") for it in OFFER.devices))
    claimed = ClaimedDevice(
        driver="nodetopo.io",
        pool="n",
        name="g",
        namespace="ml",
        claim="c",
        cdi_devices=(f"k/gpu=GPU-{name}",),
    )
    held = replace(pod("a"), claimed=(claimed,))
    assert amounts(zones(NODES, offered, [held]), GPU) == [(2, 2, 2), (2, 2, 1)]


def test_a_claim_without_uuids_takes_the_gpus_that_the_slices_say() -> None:
    claimed = ClaimedDevice(
        driver="gpu.nvidia.com", pool="n", name="gpu-7", namespace="ml", claim="c"
    )
    held = replace(pod("a"), claimed=(claimed,))
    found = zones(NODES, OFFER, [held], lambda it: {"GPU-2"} if it is claimed else set())
    assert amounts(found, GPU) == [(2, 2, 2), (2, 2, 1)]


def test_memory_over_several_nodes_empties_the_lowest_first() -> None:
    spanning = [pod(name, pieces=(memory("memory", 40, 0, 1),)) for name in "ab"]
    expected = [(64 * GIB, 61 * GIB, 0), (64 * GIB, 62 * GIB, (62 - 80 + 61) * GIB)]
    assert amounts(zones(NODES, OFFER, spanning), "memory") == expected


def test_more_memory_than_there_is_leaves_nothing_and_never_less() -> None:
    found = zones(NODES, OFFER, [pod("a", pieces=(memory("memory", 500, 0),))])
    assert [available for _, _, available in amounts(found, "memory")] == [0, 62 * GIB]


def test_a_device_near_two_nodes_counts_in_both_and_is_gone_from_both() -> None:
    offer = NodeOffer(devices=(gpu(0, 0, 1), gpu(1, 1)))
    assert amounts(zones(NODES, offer, ()), GPU) == [(1, 1, 1), (2, 2, 2)]
    taken = zones(NODES, offer, [pod("a", devices=(gpu(0, 0, 1),))])
    assert amounts(taken, GPU) == [(1, 1, 0), (2, 2, 1)]


def test_a_device_without_a_node_is_in_no_zone() -> None:
    offer = NodeOffer(devices=(gpu(0), gpu(1, 1)))
    assert amounts(zones(NODES, offer, ()), GPU) == [(1, 1, 1)]


def test_a_given_device_that_turned_unhealthy_takes_nothing_from_the_others() -> None:
    offer = replace(OFFER, devices=OFFER.devices[1:])
    held = pod("a", devices=(gpu(0, 0),))
    assert amounts(zones(NODES, offer, [held]), GPU) == [(1, 1, 1), (2, 2, 2)]


def test_devices_of_two_resources_may_have_the_same_id() -> None:
    nic = PlacedDevice(resource="rdma/hca", id="GPU-0", numa_nodes=(0,))
    offer = NodeOffer(devices=(gpu(0, 0), nic))
    found = zones(NODES, offer, [pod("a", devices=(nic,))])
    assert amounts(found, GPU) == [(1, 1, 1)]
    assert amounts(found, "rdma/hca") == [(1, 1, 0)]


def test_without_static_managers_neither_cpus_nor_memory_are_told_of() -> None:
    found = zones(NODES, NodeOffer(devices=OFFER.devices), ())
    assert [[one.name for one in zone.resources] for zone in found] == [[GPU], [GPU]]


def test_a_node_whose_cpus_are_all_reserved_has_none_to_give() -> None:
    offer = NodeOffer(cpus=CpuSet.parse("8-15"))
    assert amounts(zones(NODES, offer, ()), "cpu") == [(8, 0, 0), (8, 8, 8)]


def test_memory_of_a_gpu_is_no_zone_unless_something_is_given_from_it() -> None:
    nodes = tuple(replace(node, distances=(10, 40, 80)) for node in (NODES[0], bare(2), bare(10)))
    assert [zone.id for zone in zones(nodes, NodeOffer(), ())] == [0]
    (first, second) = zones(nodes, NodeOffer(memory=(memory("memory", 90, 10),)), ())
    assert (second.id, amounts((second,), "memory")) == (10, [(90 * GIB, 90 * GIB, 90 * GIB)])
    assert first.costs == {0: 10, 10: 80}


def test_distances_of_other_nodes_than_are_there_are_left_out() -> None:
    nodes = (replace(NODES[0], distances=(10, 21, 31)), replace(NODES[1], distances=None))
    assert [zone.costs for zone in zones(nodes, OFFER, ())] == [{}, {}]


def test_nodes_that_schedulers_have_no_number_for_are_left_out() -> None:
    nodes = (bare(MAX_ID, "0-3"), bare(MAX_ID + 1, "4-7"))
    offer = NodeOffer(devices=(gpu(0, MAX_ID + 1), gpu(1, -1)))
    assert [zone.id for zone in zones(nodes, offer, ())] == [MAX_ID]


def test_pods_that_only_share_change_nothing() -> None:
    sharing = [PodHolding(namespace="a", name=str(number)) for number in range(9)]
    assert zones(NODES, OFFER, sharing) == zones(NODES, OFFER, ())


def test_huge_pages_are_named_as_kubernetes_does() -> None:
    sizes = (64, 2048, 512 * 1024, 1 << 20, 16 << 20)
    assert [hugepages_name(size) for size in sizes] == [
        "hugepages-64Ki",
        "hugepages-2Mi",
        "hugepages-512Mi",
        "hugepages-1Gi",
        "hugepages-16Gi",
    ]


def bare(number: int, cpus: str = "") -> NumaNode:
    return NumaNode(id=number, cpus=CpuSet.parse(cpus))
