"""A kubelet that was restarted offers no devices and lists no pods for a while."""

from msgspec.structs import replace

from nodetopo.components.zones.zones import ABSENCE_S, SteadyOffer, SteadyPods
from nodetopo.model.node import NodeOffer, PlacedDevice, PodHolding
from nodetopo.model.numa import CpuSet
from tests.components.zones.machines import OFFER, gpu, pod

NO_DEVICES = replace(OFFER, devices=())
FEWER = replace(OFFER, devices=OFFER.devices[1:])


def test_what_the_first_offer_lacks_is_not_missed() -> None:
    assert SteadyOffer().take(NO_DEVICES, 0.0) == NO_DEVICES


def test_a_missing_resource_is_bridged_until_it_is_back() -> None:
    steady = SteadyOffer()
    steady.take(OFFER, 0.0)
    assert steady.take(NO_DEVICES, 10.0) == OFFER
    assert steady.take(FEWER, 20.0) == FEWER
    assert steady.take(NO_DEVICES, 10.0 + ABSENCE_S) == FEWER


def test_a_resource_that_stays_away_is_gone_in_the_end() -> None:
    steady = SteadyOffer()
    steady.take(OFFER, 0.0)
    assert steady.take(NO_DEVICES, 10.0) == OFFER
    assert steady.take(NO_DEVICES, 10.0 + ABSENCE_S) == NO_DEVICES
    assert steady.take(NO_DEVICES, 11.0 + ABSENCE_S) == NO_DEVICES


def test_a_device_less_counts_at_once() -> None:
    steady = SteadyOffer()
    steady.take(OFFER, 0.0)
    assert steady.take(FEWER, 1.0) == FEWER


def test_what_else_changes_while_a_resource_is_missing_counts_at_once() -> None:
    steady = SteadyOffer()
    steady.take(OFFER, 0.0)
    nic = PlacedDevice(resource="rdma/hca", id="mlx5_0", numa_nodes=(0,))
    found = steady.take(NodeOffer(devices=(nic,), cpus=CpuSet.parse("1-3")), 1.0)
    assert found == NodeOffer(
        devices=(nic, *OFFER.devices), cpus=CpuSet.parse("1-3"), memory=OFFER.memory
    )


def test_cpus_and_memory_of_a_kubelet_that_is_not_up_yet_are_bridged_too() -> None:
    steady = SteadyOffer()
    steady.take(OFFER, 0.0)
    assert steady.take(replace(OFFER, cpus=CpuSet(), memory=()), 1.0) == OFFER


def test_each_missing_resource_has_a_time_of_its_own() -> None:
    steady = SteadyOffer()
    steady.take(OFFER, 0.0)
    steady.take(NO_DEVICES, 1.0)
    steady.take(NodeOffer(), ABSENCE_S)
    assert steady.take(NodeOffer(), 1.0 + ABSENCE_S) == NO_DEVICES


A, B = pod("a", devices=(gpu(0, 0),)), pod("b", devices=(gpu(1, 0),))


def names(found: tuple[PodHolding, ...]) -> list[str]:
    return [one.name for one in found]


def test_a_pod_that_is_listed_no_more_is_gone_at_once() -> None:
    steady = SteadyPods()
    assert names(steady.take((A, B), "first", 0.0)) == ["a", "b"]
    assert names(steady.take((B,), "first", 2.0)) == ["b"]


def test_pods_that_a_kubelet_does_not_list_yet_after_its_start_are_still_there() -> None:
    steady = SteadyPods()
    steady.take((A, B), "first", 0.0)
    assert steady.take((), "second", 10.0) == (A, B)
    assert steady.take((B,), "second", 12.0) == (A, B)
    assert steady.take((B,), "second", 9.9 + ABSENCE_S) == (A, B)
    assert steady.take((B,), "second", 10.0 + ABSENCE_S) == (B,)


def test_a_pod_that_was_listed_since_the_start_is_gone_with_the_list() -> None:
    steady = SteadyPods()
    steady.take((A, B), "first", 0.0)
    steady.take((A, B), "second", 2.0)
    assert steady.take((B,), "second", 4.0) == (B,)


def test_a_kubelet_that_starts_again_and_again_loses_no_pod() -> None:
    steady = SteadyPods()
    steady.take((A, B), "first", 0.0)
    for start in range(5):
        assert steady.take((), start, start * 50.0) == (A, B)


def test_what_a_pod_holds_after_the_start_counts_and_two_of_one_name_both() -> None:
    steady = SteadyPods()
    steady.take((A,), "first", 0.0)
    moved = pod("a", devices=(gpu(3, 1),))
    assert steady.take((moved,), "second", 2.0) == (moved,)
    assert steady.take((moved, A), "second", 4.0) == (moved, A)
