"""What a claim is made of, by what the releases of drivers publish."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodetopo.errors import InputError
from nodetopo.machines import bundled
from nodetopo.probes.dra import devices_of
from nodetopo.tools.cluster.export.dra import ClaimOptions, export_claims
from nodetopo.tools.cluster.export.record import Exported
from nodetopo.tools.cluster.export.shapes import Shape, shapes_of
from tests.tools.cluster.export.drivers import (
    DRANET,
    NVIDIA,
    Dranet,
    Json,
    Nvidia,
    cpus,
    dranet,
    nvidia_gpus,
    ours,
)

NUMA = "resource.kubernetes.io/numaNode"
ROOT = "resource.kubernetes.io/pcieRoot"
KINDS = {"gpu": "gpu.nvidia.com", "nic": "dra.net", "cpu": "dra.cpu"}


def shapes(slices: Sequence[Json], options: ClaimOptions) -> tuple[Shape, ...]:
    return shapes_of(
        {"n": devices_of(slices)},
        (),
        map(bundled.machine, bundled.names()),
        drivers=options.drivers,
        prefix="gpu.topology/",
    )


def exported(slices: Sequence[Json], **options: Any) -> Exported:
    wanted = ClaimOptions(**options)
    return export_claims(shapes(slices, wanted), wanted)


def specs(found: Exported) -> list[Any]:
    kind = "ResourceClaimTemplate"
    return [it["spec"]["spec"]["devices"] for it in found.objects if it["kind"] == kind]


def warnings(found: Exported) -> str:
    return "\n".join(it.text for it in found.remarks if it.kind == "warning")


@pytest.mark.parametrize("machine", ["dgx-1v", "dgx-h100", "h100-vm-8"])
@pytest.mark.parametrize("gpus", NVIDIA)
@pytest.mark.parametrize("nics", DRANET)
@pytest.mark.parametrize("form", ["alternatives", "plain"])
def test_a_constraint_is_over_attributes_that_all_its_devices_have(
    machine: str, gpus: Nvidia, nics: Dranet, form: str
) -> None:
    snapshot = bundled.machine(machine)
    slices = [
        nvidia_gpus(snapshot, "n", gpus),
        dranet(snapshot, "n", nics),
        cpus(snapshot, "n", "v0.2.0", "numanode"),
    ]
    common: dict[str, set[str]] = {}
    for each in slices:
        sets = [
            {*device["attributes"]}
            for device in each["spec"]["devices"]
            if device["name"] != "net-bond0"
        ]
        common[each["spec"]["driver"]] = set.intersection(*sets)
    found = exported(slices, nic_driver="dra.net", cpu_driver="dra.cpu", form=form, sizes=(1, 2))
    for devices in specs(found):
        for constraint in devices.get("constraints", ()):
            name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
            for request in constraint["requests"]:
                assert name in common[KINDS[request[:3]]], (constraint, gpus, nics)


def test_without_a_numa_node_in_common_a_nic_is_anywhere_and_that_is_a_warning() -> None:
    machine = bundled.machine("h100-vm-8")
    slices = [nvidia_gpus(machine, "n", "main"), dranet(machine, "n", "v1.4.0")]
    found = exported(slices, nic_driver="dra.net", sizes=(2,))
    assert f"its NICs do not have {NUMA} (dranet publishes it after v1.4.0)" in warnings(found)
    (devices,) = specs(found)
    assert not any("nics" in it["requests"] for it in devices.get("constraints", ()))


def test_a_bundled_machine_knows_the_numa_nodes_that_nvidias_driver_did_not_publish() -> None:
    slices = [nvidia_gpus(bundled.machine("dgx-h100"), "n", "v0.4.1")]
    found = exported(slices, sizes=(4,))
    assert f"its GPUs do not have {NUMA}" in warnings(found)
    assert "their places are those of the bundled machine" in warnings(found)
    ((request,),) = [it["requests"] for it in specs(found)]
    assert {"numa-node-0", "numa-node-1"} <= {it["name"] for it in request["firstAvailable"]}


def test_a_list_that_the_scheduler_does_not_match_is_a_warning_and_gpus_are_named() -> None:
    slices = [nvidia_gpus(bundled.machine("dgx-h100"), "n", "main, lists")]
    for release, said in (
        (None, "which the scheduler matches from Kubernetes 1.37 on"),
        ((1, 36), "which the scheduler of this cluster does not match"),
    ):
        found = exported(slices, sizes=(2,), release=release)
        assert said in warnings(found)
        assert not any(it.get("constraints") for it in specs(found))
    found = exported(slices, sizes=(2,), release=(1, 37))
    assert warnings(found) == ""
    (devices,) = specs(found)
    assert {it["matchAttribute"] for it in devices["constraints"]} == {NUMA}


@pytest.mark.parametrize("nics", ["v1.4.0", "main"])
def test_cpus_join_a_nic_to_gpus_where_these_have_no_attribute_in_common(nics: Dranet) -> None:
    machine = bundled.machine("h100-vm-8")
    slices = [
        nvidia_gpus(machine, "n", "main"),
        dranet(machine, "n", nics),
        cpus(machine, "n", "main", "numanode"),
    ]
    found = exported(slices, nic_driver="dra.net", cpu_driver="dra.cpu", sizes=(2,))
    (devices,) = specs(found)
    follows = {"requests": ["cpus", "nics/near"], "matchAttribute": "dra.net/numaNode"}
    assert (follows in devices["constraints"]) is (nics == "v1.4.0")


def test_cpus_are_as_many_as_the_gpus_ask_for_on_each_numa_node() -> None:
    machine = bundled.machine("dgx-h100")
    slices = [nvidia_gpus(machine, "n", "main"), cpus(machine, "n", "main", "numanode")]
    found = exported(slices, cpu_driver="dra.cpu", cpus=10, sizes=(2, 8))
    two, eight = specs(found)
    amount = {"requests": {"dra.cpu/cpu": "20"}}
    assert [it["exactly"]["capacity"] for it in two["requests"][1:]] == [amount]
    amount = {"requests": {"dra.cpu/cpu": "40"}}
    assert [it["exactly"]["capacity"] for it in eight["requests"][1:]] == [amount] * 2
    assert {"requests": ["cpus-0", "cpus-1"], "distinctAttribute": NUMA} in eight["constraints"]


def test_single_cpus_leave_room_for_few_gpus_and_that_is_a_warning() -> None:
    machine = bundled.machine("dgx-h100")
    slices = [nvidia_gpus(machine, "n", "main"), cpus(machine, "n", "main", "individual")]
    found = exported(slices, cpu_driver="dra.cpu", cpus=8)
    ways = [it["requests"][-1]["firstAvailable"] for it in specs(found)]
    assert [[it["count"] for it in each] for each in ways] == [[8, 8], [16, 16], [24, 24]]
    assert "claims are for 3 GPUs and fewer" in warnings(found)
    assert "holds the scheduler up" in warnings(found)
    with pytest.raises(InputError, match="a claim takes 32 devices"):
        exported(slices, cpu_driver="dra.cpu", cpus=32)


def test_more_cpus_than_a_node_has_and_a_node_without_their_driver_are_warnings() -> None:
    machine = bundled.machine("dgx-h100")
    gpus = nvidia_gpus(machine, "n", "main")
    found = exported([gpus], cpu_driver="dra.cpu")
    assert "no node publishes CPUs of dra.cpu: its claims wait for ever" in warnings(found)
    slices = [gpus, cpus(machine, "n", "main", "numanode")]
    found = exported(slices, cpu_driver="dra.cpu", cpus=100, sizes=(4,))
    assert "asks for more CPUs than the 224 of a node" in warnings(found)


def test_plain_claims_of_sets_are_for_clusters_that_have_some() -> None:
    singles = [
        {**device, "attributes": {**device["attributes"], "index": {"int": 0}}}
        for device in nvidia_gpus(bundled.machine("dgx-h100"), "n", "main")["spec"]["devices"]
    ]
    one = nvidia_gpus(bundled.machine("dgx-h100"), "n", "main")
    one["spec"] |= {"driver": "nodetopo.io", "devices": singles}
    found = exported([one], driver="nodetopo.io", form="plain", sizes=(4,))
    ((request,),) = [it["requests"] for it in specs(found)]
    assert request["exactly"]["deviceClassName"] == "gpu.nodetopo.io"
    assert any("no sets are published" in it.text for it in found.remarks)
    sets = {"name": "s", "attributes": {"type": {"string": "gpu-set"}, "gpus": {"int": 4}}}
    singles.append(sets)
    found = exported([one], driver="nodetopo.io", form="plain", sizes=(4,))
    ((request,),) = [it["requests"] for it in specs(found)]
    assert request["exactly"]["deviceClassName"] == "gpus.nodetopo.io"


def test_devices_for_admin_access_are_no_gpus_of_a_shape() -> None:
    one = nvidia_gpus(bundled.machine("dgx-h100"), "n", "main")
    gpus = one["spec"]["devices"]
    admin = [
        {"name": f"a-{it['name']}", "attributes": {**it["attributes"], "type": {"string": "admin"}}}
        for it in gpus
    ]
    one["spec"] |= {"driver": "nodetopo.io", "devices": admin}
    assert shapes([one], ClaimOptions(driver="nodetopo.io")) == ()


def test_a_claim_keeps_to_a_partition_of_fabric_manager() -> None:
    one = nvidia_gpus(bundled.machine("dgx-h100"), "n", "main")
    for at, device in enumerate(one["spec"]["devices"]):
        device["attributes"]["partition2"] = {"int": at // 2}
    found = exported([one], sizes=(1, 2, 4))
    _, two, four = specs(found)
    (request,) = two["requests"]
    assert "firstAvailable" not in request
    match = {"requests": ["gpus"], "matchAttribute": "gpu.nvidia.com/partition2"}
    assert two["constraints"] == [match]
    assert match not in four.get("constraints", [])
    text = "Fabric Manager activates GPUs by partition: claims for 2 GPUs match one"
    assert any(text in it.text for it in found.remarks)


def test_gpus_that_claims_share_are_a_warning() -> None:
    one = nvidia_gpus(bundled.machine("dgx-h100"), "n", "main")
    one["spec"]["devices"][0]["allowMultipleAllocations"] = True
    assert "claims share its GPUs (consumable capacity)" in warnings(exported([one], sizes=(2,)))


@pytest.mark.parametrize(
    ("has_sets", "sizes", "size", "names"),
    [
        (True, (), 1, ["best-1", "singles"]),
        (True, (), 4, ["set-of-4", "singles"]),
        (True, (3,), 3, ["set-of-3", "singles"]),
        (True, (3,), 4, ["best-4", "singles"]),
        (False, (), 4, ["best-4", "singles"]),
    ],
)
def test_alternatives_of_our_driver_are_those_that_it_publishes(
    has_sets: bool, sizes: tuple[int, ...], size: int, names: list[str]
) -> None:
    slices = ours(bundled.machine("dgx-h100"), "n", has_sets=has_sets, sizes=sizes)
    found = exported(slices, driver="nodetopo.io", sizes=(size,))
    (devices,) = specs(found)
    assert [it["name"] for it in devices["requests"][0]["firstAvailable"]] == names
    plain = specs(exported(slices, driver="nodetopo.io", sizes=(size,), form="plain"))[0]
    (request,) = plain["requests"]
    assert request["exactly"]["count"] == (1 if f"set-of-{size}" in names else size)
    text = f"no sets of {size} GPUs are published" if has_sets else "no sets are published"
    is_said = any(text in it.text for it in found.remarks)
    assert is_said == (size > 1 and f"best-{size}" in names)
