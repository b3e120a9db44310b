"""What is offered of devices that several pods share, and how many at most."""

import tracemalloc

from nodetopo.deviceplugin.resources import (
    MOST_DEVICES,
    MigStrategy,
    Offer,
    Refusal,
    Rules,
    Shared,
    offer,
)
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


def test_more_devices_than_a_kubelet_takes_are_not_offered() -> None:
    found = offer(WHOLE, rules(gpu=MOST_DEVICES // 8 + 1), {})
    assert found == Offer(
        resources=(),
        refusals=(
            Refusal(
                resource=GPU,
                reason="10008 devices; a kubelet takes 10000 at most: lower its replicas",
            ),
        ),
    )


def test_devices_that_no_kubelet_takes_are_not_made_to_be_counted() -> None:
    tracemalloc.start()
    found = offer(WHOLE, rules(gpu=100_000), {})
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [refusal.reason for refusal in found.refusals] == [
        "800000 devices; a kubelet takes 10000 at most: lower its replicas"
    ]
    assert peak_bytes < 2**20


def test_as_many_devices_as_a_kubelet_takes_are_offered() -> None:
    assert counts(offer(WHOLE, rules(gpu=MOST_DEVICES // 8), {})) == {GPU: MOST_DEVICES}
