"""Every device of a GPU is as healthy as the GPU: replicas and MIG devices too."""

import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.resources import MigStrategy, Rules, offer
from nodetopo.model.gpu_health import GpuHealth, HealthClass, HealthView
from nodetopo.model.snapshot import Snapshot
from tests.deviceplugin.machines import node, rules

MIG = node("h100x8-nvswitch-2numa-mig")
WHOLE = node("h100x8-nvswitch-2numa-8cx7")
FELL_OFF = GpuHealth(is_healthy=False, reason="Xid79", said="it fell off", kind=HealthClass.REBOOT)
SLOW = GpuHealth(is_degraded=True, reason="Xid94", said="it had", kind=HealthClass.DEGRADED)


def sick(snapshot: Snapshot, by: Rules, health: HealthView) -> dict[str, set[str]]:
    """Return the ids of the unhealthy devices of each resource that has some."""
    found = {
        resource.name: {device.id for device in resource.devices if not device.is_healthy}
        for resource in offer(snapshot, by, {}, health).resources
    }
    return {name: ids for name, ids in found.items() if ids}


def test_all_replicas_of_a_gpu_with_xid_79_are_unhealthy_and_no_other_is() -> None:
    gpu = WHOLE.gpus[2].id
    assert sick(WHOLE, rules(gpu=4), {gpu: FELL_OFF}) == {
        "nvidia.com/gpu": {f"{gpu}::{number}" for number in range(4)}
    }


def test_all_mig_devices_of_a_gpu_with_xid_79_are_unhealthy_in_every_resource() -> None:
    gpu = MIG.gpus[1]
    assert gpu.mig is not None
    expected: dict[str, set[str]] = {}
    for one in gpu.mig.instances:
        expected.setdefault(f"nvidia.com/mig-{one.profile}", set()).add(one.uuid)
    assert sick(MIG, Rules(mig=MigStrategy.MIXED), {gpu.id: FELL_OFF}) == expected


def test_all_replicas_of_all_mig_devices_of_a_gpu_follow_it() -> None:
    gpu = MIG.gpus[0]
    assert gpu.mig is not None
    shared = rules(MigStrategy.MIXED, **{"mig-1g.10gb": 2})
    assert sick(MIG, shared, {gpu.id: FELL_OFF}) == {
        "nvidia.com/mig-1g.10gb": {
            f"{one.uuid}::{number}" for one in gpu.mig.instances for number in (0, 1)
        }
    }


@pytest.mark.parametrize("health", [{}, {WHOLE.gpus[0].id: GpuHealth()}, {WHOLE.gpus[0].id: SLOW}])
def test_a_gpu_that_is_sound_degraded_or_not_judged_is_healthy(health: HealthView) -> None:
    assert sick(WHOLE, Rules(), health) == {}


def test_a_lost_gpu_is_unhealthy_whatever_was_judged() -> None:
    lost = replace(WHOLE.gpus[0], is_lost=True)
    snapshot = replace(WHOLE, gpus=(lost, *WHOLE.gpus[1:]))
    assert sick(snapshot, Rules(), {lost.id: GpuHealth()}) == {"nvidia.com/gpu": {lost.id}}


def test_an_unhealthy_gpu_stays_in_the_list_under_its_id() -> None:
    gpu = WHOLE.gpus[2].id
    (before,), (after,) = (
        offer(WHOLE, Rules(), {}, health).resources for health in ({}, {gpu: FELL_OFF})
    )
    assert [device.id for device in after.devices] == [device.id for device in before.devices]
