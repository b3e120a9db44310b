"""What our driver publishes: devices, counters, taints, within the limits of the API."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.components.dra.devices import FOREIGN, HELD, UNHEALTHY, Conditions
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import BackingDevices, Pool
from nodetopo.components.dra.slices import changes
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import decode
from nodetopo.model.gpu import Fabric, FabricState, Mig, MigInstance
from nodetopo.model.gpu_health import GpuHealth
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.dra import devices_of
from nodetopo.topology.published import gpus_of

NOW = Conditions()
SETS = Form(has_admin=True)
GPUS = Form(has_sets=False, has_admin=True)
BARE = Form(has_sets=False, has_taints=False)
NODES = Path(__file__).parents[2] / "nodes"
SINCE = "2026-01-01T00:00:00Z"


def pool(snapshot: Snapshot, form: Form = SETS) -> Pool:
    return Pool.of(snapshot, snapshot.gpus, form=form)


def node(shape: str) -> Snapshot:
    """Return a machine of ``tests/nodes``."""
    text = (NODES / shape / "snapshot.json").read_text(encoding="utf-8")
    return decode(text).snapshot


def devices(pool: Pool, now: Conditions = NOW, used: tuple[str, ...] = ()) -> dict[str, Any]:
    return {it["name"]: it for group in pool.groups(used, now) for it in group.devices}


def stored(each: dict[str, Any]) -> str:
    """Return a slice as the API server returns it, with all that it adds."""
    metadata = {
        **each["metadata"],
        "name": "gpu-node-0123456789.example.com-nodetopo.io-1-devices-0",
        "uid": "01234567-89ab-cdef-0123-456789abcdef",
        "resourceVersion": "1234567890",
        "generation": 123,
        "creationTimestamp": SINCE,
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "name": "gpu-node-0123456789.example.com",
                "uid": "01234567-89ab-cdef-0123-456789abcdef",
            }
        ],
        "managedFields": [
            {
                "manager": "nodetopo",
                "operation": "Apply",
                "apiVersion": "resource.k8s.io/v1",
                "time": SINCE,
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {
                        "f:ownerReferences": {
                            'k:{"uid":"01234567-89ab-cdef-0123-456789abcdef"}': {}
                        }
                    },
                    "f:spec": {
                        "f:devices": {},
                        "f:driver": {},
                        "f:nodeName": {},
                        "f:pool": {"f:generation": {}, "f:name": {}, "f:resourceSliceCount": {}},
                    },
                },
            }
        ],
    }
    return json.dumps({**each, "metadata": metadata}, separators=(",", ":"))


def written(made: Pool, now: Conditions = NOW) -> list[dict[str, Any]]:
    found = changes("n", None, made.counter_sets, made.groups((), now), {})
    return [dict(each) for each in found.applied]


@pytest.mark.parametrize("form", [SETS, GPUS, Form(has_lists=True)])
@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "l40s-pcie-4", "dgx-2", "gb200-nvl72"])
def test_the_slices_keep_the_limits_of_the_api(name: str, form: Form) -> None:
    found = written(pool(machine(name), form))
    assert len(found) == (2 if form.has_sets else 1)
    names = [it["metadata"]["name"] for it in found]
    assert names == sorted(names)
    for each in found:
        spec = each["spec"]
        assert ("devices" in spec) != ("sharedCounters" in spec)
        assert len(spec.get("devices", ())) <= 64
        assert spec["pool"]["resourceSliceCount"] == len(found)
        for device in spec.get("devices", ()):
            values = [it for one in device["attributes"].values() for it in one.values()]
            assert len(values) + len(device.get("capacity", ())) <= 32
            assert sum(len(it) if isinstance(it, list) else 1 for it in values) <= 48
            assert len(device.get("consumesCounters", ())) <= 1
        for each_set in spec.get("sharedCounters", ()):
            assert len(each_set["counters"]) <= 32


def test_without_sets_there_are_single_gpus_and_no_counters() -> None:
    made = pool(machine("dgx-h100"), GPUS)
    assert made.counter_sets == []
    found = devices(made)
    assert {it["attributes"]["type"]["string"] for it in found.values()} == {"gpu", "admin"}
    assert not any("consumesCounters" in it for it in found.values())


def test_a_node_of_more_gpus_than_counters_has_no_sets() -> None:
    snapshot = machine("dgx-2")
    gpus = tuple(
        replace(
            snapshot.gpus[at % 16],
            index=at,
            uuid=f"GPU-{at}",
            pci=PciAddress(at // 16, 0x40 + at, 0, 0),
        )
        for at in range(32)
    )
    made = pool(replace(snapshot, gpus=gpus))
    assert not made.form.has_sets
    assert len([it for it in devices(made) if it.startswith("gpu-")]) == 32


def test_a_set_on_one_numa_node_names_it() -> None:
    found = devices(pool(machine("dgx-h100")))
    quad = found["gpus-1b-43-52-61"]["attributes"]
    assert quad["resource.kubernetes.io/numaNode"] == {"int": 0}
    assert quad["type"] == {"string": "gpu-set"}
    assert quad["gpus"] == {"int": 4}
    assert quad["nvlinkIsland"] == {"int": 0}
    across = found["gpus-1b-43-52-61-9d-c3-d1-df"]["attributes"]
    assert "resource.kubernetes.io/numaNode" not in across
    assert across["numaNodes"] == {"int": 2}


def test_a_single_gpu_is_known_by_uuid_address_and_rail() -> None:
    snapshot = machine("dgx-h100")
    one = devices(pool(snapshot))["gpu-43"]["attributes"]
    assert one["uuid"] == {"string": snapshot.gpus[1].uuid}
    assert one["resource.kubernetes.io/pciBusID"] == {"string": "0000:43:00.0"}
    assert one["rail"] == {"int": 1}
    assert one["nearestHcas"] == {"string": "mlx5_1"}
    assert one["driverVersion"]["version"].count(".") == 2
    assert one["resource.kubernetes.io/pcieRoot"]["string"].startswith("pci0000:")


def test_sets_consume_the_counters_of_their_gpus() -> None:
    snapshot = machine("dgx-h100")
    made = pool(snapshot)
    (of_gpus,) = made.counter_sets
    assert of_gpus["counters"]["count"] == {"value": "8"}
    for device in devices_of(written(made)):
        backing = made.backing(device.name)
        assert backing is not None
        seen = [snapshot.gpus[at].id for at in gpus_of(device, snapshot)]
        assert seen == ([] if backing.needs_admin else list(backing.gpus))


def test_an_unhealthy_gpu_taints_every_device_with_it() -> None:
    snapshot = machine("dgx-h100")
    bad = snapshot.gpus[0].id
    now = Conditions(
        health={bad: GpuHealth(is_healthy=False, reason="Xid79")},
        since={(bad, UNHEALTHY): "2026-01-01T00:00:00Z"},
    )
    found = devices(pool(snapshot), now)
    tainted = {name for name, it in found.items() if "taints" in it}
    assert tainted == {name for name in found if name.startswith("gpu") and "-1b" in name}
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
    singles = next(it for it in found if it.name == "001-gpus")
    assert singles.tried == 7
    assert singles.devices[-1]["name"] == "gpu-1b"
    assert singles.devices[-1]["taints"][0]["key"] == HELD


def test_a_lost_gpu_stays_published() -> None:
    snapshot = machine("dgx-h100")
    lost = replace(snapshot, gpus=(replace(snapshot.gpus[0], is_lost=True), *snapshot.gpus[1:]))
    before, after = pool(snapshot), pool(lost)
    gone = {"admin-0000-1b-00-0"}
    assert devices(before).keys() - devices(after).keys() == gone
    assert before.counter_sets == after.counter_sets
    assert after.groups((), NOW)[0].tried == 7


LINKS = {"bandwidthGBs", "nvlinks", "nvlinkIsland", "nvlinkRings", "nvlinkPartition"}


def without_links_of_first(snapshot: Snapshot, case: str) -> Snapshot:
    """Return *snapshot* as it is read while the NVLinks of its first GPU are not known."""
    first = snapshot.gpus[0]
    links = snapshot.nvlinks or ()
    match case:
        case "lost, fabric never read":
            first = replace(first, is_lost=True, fabric=None)
            links = tuple(link for link in links if link.gpu != first.index)
        case "lost":
            first = replace(first, is_lost=True)
        case "registers":
            first = replace(first, fabric=Fabric(state=FabricState.IN_PROGRESS))
        case "refused by the fabric":
            first = replace(first, fabric=Fabric(state=FabricState.COMPLETED, status=1))
        case "states not read":
            links = tuple(
                replace(link, is_active=None) if link.gpu == first.index else link for link in links
            )
    return replace(snapshot, gpus=(first, *snapshot.gpus[1:]), nvlinks=links)


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v"])
@pytest.mark.parametrize(
    "case",
    [
        "lost, fabric never read",
        "lost",
        "registers",
        "refused by the fabric",
        "states not read",
    ],
)
def test_a_gpu_of_unknown_links_takes_no_attribute_from_others(case: str, name: str) -> None:
    snapshot = machine(name)
    partial = pool(without_links_of_first(snapshot, case))
    before, after = devices(pool(snapshot)), devices(partial)
    for each in before.keys() & after.keys():
        wanted = before[each]["attributes"]
        if snapshot.gpus[0].id in partial.backings[each].gpus:
            wanted = {key: it for key, it in wanted.items() if key not in LINKS}
        found = after[each]["attributes"]
        assert found.keys() & LINKS == wanted.keys() & LINKS, each
        assert {key: found[key] for key in found.keys() & LINKS} == {
            key: wanted[key] for key in wanted.keys() & LINKS
        }, each


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


@pytest.mark.parametrize("form", [SETS, GPUS])
def test_mig_devices_have_no_counters_and_their_gpu_is_in_no_set(form: Form) -> None:
    made = pool(with_mig(machine("dgx-h100")), form)
    found = devices(made)
    assert not [name for name in found if name.startswith("gpu") and "-1b" in name]
    (part, other) = (it for name, it in found.items() if name.startswith("mig"))
    assert part["name"] == "mig-0000-1b-00-0-1-0"
    assert part["attributes"]["profile"] == {"string": "3g.40gb"}
    assert "consumesCounters" not in part
    assert made.backing(other["name"]) == BackingDevices(
        uuids=("MIG-1",), gpus=(made.snapshot.gpus[0].id,), is_part=True
    )


def test_a_node_of_mig_devices_has_one_slice() -> None:
    snapshot = with_mig(machine("dgx-h100"))
    made = Pool.of(snapshot, snapshot.gpus[:1], form=SETS)
    (only,) = written(made)
    assert [it["name"] for it in only["spec"]["devices"]] == [
        "mig-0000-1b-00-0-1-0",
        "mig-0000-1b-00-0-2-0",
        "admin-0000-1b-00-0",
    ]


def test_a_device_that_the_node_lacks_has_nothing_behind_it() -> None:
    assert pool(machine("dgx-h100")).backing("gpu-99") is None


@pytest.mark.parametrize("form", [SETS, GPUS])
def test_each_gpu_has_a_device_for_administration_that_nothing_taints(form: Form) -> None:
    snapshot = machine("dgx-h100")
    bad = snapshot.gpus[0]
    now = Conditions(
        health={bad.id: GpuHealth(is_healthy=False, reason="Xid79")},
        held=frozenset([bad.id]),
        foreign={bad.id: "gpu.nvidia.com"},
        since={(bad.id, key): SINCE for key in (UNHEALTHY, HELD, FOREIGN)},
    )
    made = pool(snapshot, form)
    found = devices(made, now)
    assert sum(name.startswith("admin-") for name in found) == 8
    one = found["admin-0000-1b-00-0"]
    assert one.keys() == {"name", "attributes"}
    assert one["attributes"]["type"] == {"string": "admin"}
    assert one["attributes"]["gpus"] == {"int": 0}
    assert one["attributes"]["uuid"] == {"string": bad.uuid}
    assert bad.uuid is not None
    assert made.backing("admin-0000-1b-00-0") == BackingDevices(
        uuids=(bad.uuid,), gpus=(bad.id,), needs_admin=True
    )
    of_gpu = made.backing("gpu-1b")
    assert of_gpu is not None
    assert not of_gpu.needs_admin


@pytest.mark.parametrize("form", [Form(), Form(has_sets=False)])
def test_there_are_no_devices_for_administration_unless_asked_for(form: Form) -> None:
    found = devices(pool(machine("dgx-h100"), form))
    assert not [name for name in found if name.startswith("admin-")]


def test_a_gpu_that_another_driver_publishes_is_tainted_with_its_name() -> None:
    snapshot = machine("dgx-h100")
    twice = snapshot.gpus[0].id
    now = Conditions(foreign={twice: "gpu.example.com/x!"}, since={(twice, FOREIGN): SINCE})
    made = pool(snapshot, GPUS)
    assert devices(made, now)["gpu-1b"]["taints"] == [
        {
            "key": FOREIGN,
            "value": "gpu.example.com-x",
            "effect": "NoSchedule",
            "timeAdded": SINCE,
        }
    ]
    assert made.groups((), now)[0].tried == 7


def test_without_taints_gpus_that_must_not_be_allocated_are_left_out() -> None:
    snapshot = with_mig(machine("dgx-h100"))
    sick, held, twice = (gpu.id for gpu in (snapshot.gpus[0], *snapshot.gpus[2:4]))
    now = Conditions(
        health={sick: GpuHealth(is_healthy=False, reason="Xid79")},
        held=frozenset([held]),
        foreign={twice: "gpu.nvidia.com"},
    )
    found = devices(pool(snapshot, BARE), now)
    assert [it for it in found if not it.startswith("admin-")] == [
        "gpu-9d",
        "gpu-c3",
        "gpu-d1",
        "gpu-df",
        "gpu-43",
    ]
    assert not any("taints" in it for it in found.values())


def test_without_taints_a_lost_gpu_is_left_out() -> None:
    snapshot = machine("dgx-h100")
    lost = replace(snapshot, gpus=(replace(snapshot.gpus[0], is_lost=True), *snapshot.gpus[1:]))
    assert "gpu-1b" not in devices(pool(lost, BARE))
    assert "gpu-1b" in devices(pool(lost, GPUS))


def gone(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, gpus=snapshot.gpus[1:])


def test_a_claimed_set_whose_gpu_is_gone_keeps_the_counters_of_the_others() -> None:
    snapshot = machine("dgx-h100")
    ids = tuple(gpu.id for gpu in snapshot.gpus)
    kept = {"gpus-1b-43-52-61": ids[:4], "gpu-9d": ids[4:5]}
    left = gone(snapshot)
    made = Pool.of(left, left.gpus, kept=kept)
    assert made.kept == {"gpus-1b-43-52-61": tuple(sorted(ids[:4]))}
    now = Conditions(
        health={ids[0]: GpuHealth(is_healthy=False, reason="GpuLost")},
        since={(ids[0], UNHEALTHY): SINCE},
    )
    found = devices(made, now, used=ids[:5])
    claimed = found["gpus-1b-43-52-61"]
    assert claimed["consumesCounters"][0]["counters"] == {
        "count": {"value": "3"},
        "gpu-0000-43-00-0": {"value": "1"},
        "gpu-0000-52-00-0": {"value": "1"},
        "gpu-0000-61-00-0": {"value": "1"},
    }
    assert claimed["attributes"]["type"] == {"string": "claimed"}
    assert [it["key"] for it in claimed["taints"]] == [UNHEALTHY]
    assert made.backing("gpus-1b-43-52-61") is None
    singles = next(it for it in made.groups((), NOW) if it.name == "001-gpus")
    assert set(singles.able) == {"gpu-9d", "gpu-c3", "gpu-d1", "gpu-df"}


def test_a_pool_is_made_again_when_the_claim_of_a_kept_device_ends() -> None:
    snapshot = machine("dgx-h100")
    ids = tuple(gpu.id for gpu in snapshot.gpus)
    made = Pool.of(snapshot, snapshot.gpus, kept={"gpus-old": ids[:2]})
    assert made.holds({"gpus-old": ids[:2]})
    assert made.holds({"gpus-old": ids[:2], "gpus-9d-c3": ids[4:6]})
    assert not made.holds({"gpus-9d-c3": ids[4:6]})
    assert Pool.of(snapshot, snapshot.gpus).holds({})


def test_without_counters_the_gpus_of_a_claimed_set_are_left_out() -> None:
    snapshot = machine("dgx-h100")
    ids = tuple(gpu.id for gpu in snapshot.gpus)
    kept = {"gpus-1b-43": ids[:2], "gpu-9d": ids[4:5]}
    made = Pool.of(snapshot, snapshot.gpus, form=GPUS, kept=kept)
    found = devices(made, used=(*ids[:2], ids[4]))
    assert {"gpu-1b", "gpu-43", "gpus-1b-43"}.isdisjoint(found)
    assert "gpu-9d" in found


def test_numa_nodes_are_a_list_where_the_cluster_keeps_lists() -> None:
    found = devices(pool(machine("dgx-h100"), Form(has_lists=True)))
    key = "resource.kubernetes.io/numaNode"
    assert found["gpu-1b"]["attributes"][key] == {"ints": [0]}
    assert found["gpus-9d-c3-d1-df"]["attributes"][key] == {"ints": [1]}
    assert found["gpus-1b-43-52-61-9d-c3-d1-df"]["attributes"][key] == {"ints": [0, 1]}


def test_the_list_has_the_nodes_of_the_same_socket_that_are_as_near() -> None:
    snapshot = node("a100x4-snc2-4numa")
    found = devices(pool(snapshot, Form(has_lists=True)))
    key = "resource.kubernetes.io/numaNode"
    lists = [it["attributes"][key]["ints"] for it in found.values() if key in it["attributes"]]
    first = next(gpu for gpu in snapshot.gpus if gpu.numa_node is not None)
    assert any(it[0] == first.numa_node and len(it) == 2 for it in lists)


def test_the_complex_of_a_gpu_behind_data_direct_is_named_after_its_function() -> None:
    snapshot = node("gb300x2-station-1grace-datadirect")
    singles = [it for name, it in devices(pool(snapshot)).items() if name.startswith("gpu-")]
    known = [it["attributes"].get("dataDirectComplex") for it in singles]
    functions = {str(it.pci) for it in snapshot.data_directs or ()}
    assert {it["string"] for it in known if it is not None} <= functions
    assert any(known)
    elsewhere = devices(pool(machine("dgx-h100")))
    assert not any("dataDirectComplex" in it["attributes"] for it in elsewhere.values())


@pytest.mark.parametrize("form", [SETS, GPUS, Form(has_lists=True)])
@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "rtxpro6000-pcie-8", "hgx-b200"])
def test_a_node_of_eight_gpus_weighs_25_kb_at_most(name: str, form: Form) -> None:
    assert sum(len(stored(each)) for each in written(pool(machine(name), form))) <= 25_000


def test_devices_that_share_a_gpu_with_a_claimed_one_are_left_out() -> None:
    snapshot = machine("dgx-h100")
    ids = tuple(gpu.id for gpu in snapshot.gpus)
    made = pool(snapshot)
    now = Conditions(
        health={ids[0]: GpuHealth(is_healthy=False, reason="Xid79")},
        since={(ids[0], UNHEALTHY): SINCE},
    )
    found = {
        it["name"]
        for group in made.groups(ids[:4], now, ["gpus-1b-43-52-61"])
        for it in group.devices
    }
    of_four = {name for name in found if set(name.split("-")) & {"1b", "43", "52", "61"}}
    assert {it for it in of_four if not it.startswith("admin-")} == {
        "gpus-1b-43-52-61",  # the claim's own
        "gpu-1b",  # has the time of its taint
    }
    assert {"gpu-9d", "gpus-9d-c3", "gpus-9d-c3-d1-df"} <= found
    assert len(devices(made, used=ids[:4])) == len(made.bodies)
