"""What is offered of devices that several pods share, and how many at most."""

import tracemalloc

import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.devices import MOST_BYTES, PluginDevice, copies, list_bytes
from nodetopo.deviceplugin.resources import MigStrategy, Rules, Shared, offer
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.deviceplugin.stream import device_list
from nodetopo.model.gpu_health import GpuHealth
from tests.deviceplugin.machines import rules
from tests.deviceplugin.offered import GPU, MIG, WHOLE, changed, counts, divided


def test_replicas_are_numbered_from_zero_behind_the_uuid() -> None:
    (found,) = offer(WHOLE, rules(gpu=4), {}).resources
    first = WHOLE.gpus[0].id
    assert [device.id for device in found.devices[:4]] == [f"{first}::{n}" for n in range(4)]
    assert (found.name, len(found.devices), found.is_shared) == (GPU, 32, True)


def test_every_replica_stands_for_its_gpu() -> None:
    (found,) = offer(WHOLE, rules(gpu=2), {}).resources
    assert {device.uuid for device in found.devices} == {gpu.id for gpu in WHOLE.gpus}
    assert all(found.gpus[device.id] == device.uuid for device in found.devices)


def test_a_renamed_resource_keeps_the_name_it_had() -> None:
    (found,) = offer(WHOLE, rules(MigStrategy.NONE, ".shared", gpu=2), {}).resources
    assert (found.name, found.unshared_name) == ("nvidia.com/gpu.shared", GPU)


def test_replicas_of_a_mig_resource_stand_for_the_mig_device() -> None:
    shared = Rules(
        mig=MigStrategy.MIXED,
        shared={"nvidia.com/mig-3g.40gb": Shared(name="nvidia.com/mig-3g.40gb", replicas=3)},
    )
    found = offer(MIG, shared, {})
    assert counts(found) == {GPU: 5, "nvidia.com/mig-1g.10gb": 7, "nvidia.com/mig-3g.40gb": 6}
    third = next(one for one in found.resources if one.name.endswith("3g.40gb"))
    assert {(d.uuid, third.gpus[d.id]) for d in third.devices} == {
        (instance.uuid, MIG.gpus[1].id)
        for instance in (MIG.gpus[1].mig.instances if MIG.gpus[1].mig else ())
    }


def test_sharing_single_shares_the_mig_devices() -> None:
    snapshot = changed(WHOLE, divided("1g.10gb"))
    assert counts(offer(snapshot, rules(MigStrategy.SINGLE, gpu=2), {})) == {GPU: 16}


def test_a_shared_resource_that_the_node_lacks_changes_nothing() -> None:
    shared = Rules(shared={"nvidia.com/mig-1g.5gb": Shared(name="x.y/z", replicas=2)})
    assert offer(WHOLE, shared, {}) == offer(WHOLE, Rules(), {})


REASON = "a kubelet reads messages of 4194304 — lower its replicas, or set numa-mode to none"


def test_more_devices_than_a_kubelet_reads_are_not_offered() -> None:
    (refusal,) = offer(WHOLE, rules(gpu=8000), {}).refusals
    assert refusal.resource == GPU
    assert refusal.reason == f"a list of 64000 devices takes 4215120 bytes; {REASON}"


def test_devices_that_no_kubelet_reads_are_not_made_to_be_counted() -> None:
    tracemalloc.start()
    (refusal,) = offer(WHOLE, rules(gpu=10**8), {}).refusals
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refusal.reason.startswith("a list of 800000000 devices takes ")
    assert peak_bytes < 2**20


def test_as_many_devices_as_a_kubelet_reads_are_offered() -> None:
    one = replace(WHOLE, gpus=WHOLE.gpus[:1])
    assert counts(offer(one, rules(gpu=60_000), {})) == {GPU: 60_000}
    assert counts(offer(WHOLE, rules(gpu=7_800), {})) == {GPU: 62_400}


def test_a_refused_number_of_replicas_leaves_the_last_one() -> None:
    last = offer(WHOLE, rules(gpu=4), {}).resources
    for before, number in ((last, 32), (offer(WHOLE, Rules(), {}).resources, 8)):
        found = offer(WHOLE, rules(gpu=50_000), {}, last=before)
        assert counts(found) == {GPU: number}
        assert [refusal.resource for refusal in found.refusals] == [GPU]
    lost = {WHOLE.gpus[0].id: GpuHealth(is_healthy=False)}
    (kept,) = offer(WHOLE, rules(gpu=50_000), {}, lost, last).resources
    assert sum(device.is_healthy for device in kept.devices) == 28


def test_replicas_that_no_longer_fit_become_fewer_and_never_none() -> None:
    """The same number takes more bytes once NUMA nodes are reported."""
    asked = rules(gpu=8_000)
    before = offer(WHOLE, replace(asked, numa=NumaReport.NONE), {}).resources
    found = offer(WHOLE, asked, {}, last=before)
    assert counts(found) == {GPU: 8 * 7_960}
    assert [refusal.resource for refusal in found.refusals] == [GPU]
    fewer = [(device, 7_961) for device in offer(WHOLE, Rules(), {}).resources[0].devices]
    assert list_bytes(fewer, NumaReport.NUMA) > MOST_BYTES
    assert counts(offer(WHOLE, asked, {}, last=found.resources)) == counts(found)


@pytest.mark.parametrize("numa", NumaReport)
@pytest.mark.parametrize("count", [None, 0, 1, 9, 10, 11, 99, 101, 1234])
def test_the_size_of_a_list_is_that_of_its_message(numa: NumaReport, count: int | None) -> None:
    devices = [
        PluginDevice(id="GPU-0", numa_nodes=(0,)),
        PluginDevice(id="é" * 150, numa_nodes=(0, 1, 127, 128, 16384), socket_nodes=(1,)),
        PluginDevice(id="a" * 120, numa_nodes=tuple(range(64))),
        PluginDevice(id="b"),
    ]
    listed = [replace(copy, is_healthy=False) for one in devices for copy in copies(one, count)]
    size = device_list(listed, numa).ByteSize()
    assert list_bytes([(one, count) for one in devices], numa) == size
