"""What our driver publishes: devices, counters, taints, within the limits of the API."""

from dataclasses import replace
from typing import Any

import pytest

from agent.dra.devices import HELD, UNHEALTHY, Conditions
from agent.dra.pool import BackingDevices, Pool
from agent.dra.slices import changes
from agent.health.status import GpuHealth
from agent.machines.bundled import machine
from agent.model.gpu import Mig, MigInstance
from agent.model.snapshot import Snapshot
from agent.probes.dra import devices_of
from agent.topology.published import gpus_of

NOW = Conditions()


def pool(snapshot: Snapshot) -> Pool:
    return Pool.of(snapshot, snapshot.gpus)


def devices(pool: Pool, now: Conditions = NOW, used: tuple[str, ...] = ()) -> dict[str, Any]:
    return {it["name"]: it for group in pool.groups(used, now) for it in group.devices}


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "l40s-pcie-4", "dgx-2", "gb200-nvl72"])
def test_the_slices_keep_the_limits_of_the_api(name: str) -> None:
    made = pool(machine(name))
    found = changes("n", None, made.counter_sets, made.groups((), NOW), {})
    assert found.deleted == ()
    names = [it["metadata"]["name"] for it in found.applied]
    assert names == sorted(names)
    for each in found.applied:
        spec = each["spec"]
        assert ("devices" in spec) != ("sharedCounters" in spec)
        assert len(spec.get("devices", ())) <= 64
        assert spec["pool"]["resourceSliceCount"] == len(found.applied)
        for device in spec.get("devices", ()):
            assert len(device["attributes"]) + len(device.get("capacity", ())) <= 32
            assert len(device["consumesCounters"]) <= 2
        for each_set in spec.get("sharedCounters", ()):
            assert len(each_set["counters"]) <= 32


def test_a_set_on_one_numa_node_names_it() -> None:
    found = devices(pool(machine("dgx-h100")))
    quad = found["gpus-1b-43-52-61"]["attributes"]
    assert quad["resource.kubernetes.io/numaNode"] == {"int": 0}
    assert quad["type"] == {"string": "gpu-set"}
    assert quad["gpus"] == {"int": 4}
    assert quad["nvlinkIsland"] == {"int": 0}
    assert quad["driverVersion"]["version"].count(".") == 2
    across = found["gpus-1b-43-52-9d"]["attributes"]
    assert "resource.kubernetes.io/numaNode" not in across
    assert across["numaNodes"] == {"int": 2}


def test_a_single_gpu_is_known_by_uuid_address_and_rail() -> None:
    snapshot = machine("dgx-h100")
    one = devices(pool(snapshot))["gpu-43"]["attributes"]
    assert one["uuid"] == {"string": snapshot.gpus[1].uuid}
    assert one["resource.kubernetes.io/pciBusID"] == {"string": "0000:43:00.0"}
    assert one["rail"] == {"int": 1}
    assert one["resource.kubernetes.io/pcieRoot"]["string"].startswith("pci0000:")


def test_sets_consume_the_counters_of_their_gpus() -> None:
    snapshot = machine("dgx-h100")
    made = pool(snapshot)
    (of_gpus,) = made.counter_sets
    assert of_gpus["counters"]["count"] == {"value": "8"}
    applied = changes("n", None, made.counter_sets, made.groups((), NOW), {}).applied
    for device in devices_of(applied):
        backing = made.backing(device.name)
        assert backing is not None
        assert [snapshot.gpus[at].id for at in gpus_of(device, snapshot)] == list(backing.gpus)


def test_an_unhealthy_gpu_taints_every_device_with_it() -> None:
    snapshot = machine("dgx-h100")
    bad = snapshot.gpus[0].id
    now = Conditions(
        health={bad: GpuHealth(is_healthy=False, reason="Xid79")},
        since={bad: "2026-01-01T00:00:00Z"},
    )
    found = devices(pool(snapshot), now)
    tainted = {name for name, it in found.items() if "taints" in it}
    assert tainted == {name for name in found if "-1b" in name}
    assert found["gpu-1b"]["taints"] == [
        {
            "key": UNHEALTHY,
            "value": "Xid79",
            "effect": "NoSchedule",
            "timeAdded": "2026-01-01T00:00:00Z",
        }
    ]
    evicting = devices(pool(snapshot), replace(now, evicts=True))
    assert evicting["gpu-1b"]["taints"][0]["effect"] == "NoExecute"


def test_a_gpu_that_a_device_plugin_gave_out_is_tainted_and_last() -> None:
    snapshot = machine("dgx-h100")
    held = snapshot.gpus[0].id
    found = pool(snapshot).groups((), Conditions(held=frozenset([held])))
    singles = next(it for it in found if it.name == "000-single")
    assert singles.tried == 7
    assert singles.devices[-1]["name"] == "gpu-1b"
    assert singles.devices[-1]["taints"][0]["key"] == HELD


def test_a_lost_gpu_stays_published() -> None:
    snapshot = machine("dgx-h100")
    lost = replace(snapshot, gpus=(replace(snapshot.gpus[0], is_lost=True), *snapshot.gpus[1:]))
    before, after = pool(snapshot), pool(lost)
    assert devices(before).keys() == devices(after).keys()
    assert before.counter_sets == after.counter_sets
    assert after.groups((), NOW)[0].tried == 7


def with_mig(snapshot: Snapshot) -> Snapshot:
    instances = tuple(
        MigInstance(
            uuid=f"MIG-{at}",
            profile=profile,
            gpu_instance=at + 1,
            compute_instance=0,
            memory_mib=mib,
        )
        for at, (profile, mib) in enumerate((("3g.40gb", 40448), ("1g.10gb", 9856)))
    )
    first = replace(snapshot.gpus[0], mig=Mig(is_enabled=True, instances=instances))
    return replace(snapshot, gpus=(first, *snapshot.gpus[1:]))


def test_mig_devices_consume_parts_of_their_gpu_which_is_in_no_set() -> None:
    made = pool(with_mig(machine("dgx-h100")))
    found = devices(made)
    assert not [name for name in found if name.startswith("gpu") and "-1b" in name]
    (part, other) = (it for name, it in found.items() if name.startswith("mig"))
    assert part["name"] == "mig-0000-1b-00-0-1-0"
    assert part["attributes"]["profile"] == {"string": "3g.40gb"}
    (consumed,) = part["consumesCounters"]
    assert consumed == {
        "counterSet": "mig-0000-1b-00-0",
        "counters": {
            "gpu-0000-1b-00-0-slices": {"value": "3"},
            "gpu-0000-1b-00-0-memory-mib": {"value": "40448"},
        },
    }
    totals = made.counter_sets[1]["counters"]
    assert totals["gpu-0000-1b-00-0-slices"] == {"value": "4"}
    assert made.backing(other["name"]) == BackingDevices(
        uuids=("MIG-1",), gpus=(made.snapshot.gpus[0].id,), is_part=True
    )


def test_a_device_that_the_node_lacks_has_nothing_behind_it() -> None:
    assert pool(machine("dgx-h100")).backing("gpu-99") is None
