"""Claims of Dynamic Resource Allocation, by machine and size."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.errors import InputError, NothingFound
from nodetopo.machines import bundled
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.export.dra import ClaimOptions, claim_spec, export_claims
from nodetopo.tools.cluster.export.record import Exported
from nodetopo.tools.cluster.export.shapes import Shape, shape_of

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def exported(machine: str, **options: Any) -> Exported:
    wanted = ClaimOptions(**options)
    return export_claims([shape_of(bundled.machine(machine), wanted.drivers)], wanted)


def texts(found: Exported) -> list[str]:
    return [f"{remark.kind}: {remark.text}" for remark in found.remarks]


def devices_of(template: Any) -> Any:
    return template["spec"]["spec"]["devices"]


def subrequests(spec: Any) -> list[Any]:
    (request,) = spec["devices"]["requests"]
    found: list[Any] = request["firstAvailable"]
    return found


def test_the_last_alternative_is_any_gpus_of_the_class() -> None:
    found = subrequests(claim_spec(bundled.machine("dgx-1v"), 2))
    assert len(found) == 8
    assert found[-1] == {
        "name": "any",
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 2,
    }


def test_a_claim_for_the_whole_node_has_one_request() -> None:
    (request,) = claim_spec(bundled.machine("dgx-h100"), 8)["devices"]["requests"]
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 8}
    assert request == {"name": "gpus", "exactly": exactly}


def requests_of(devices: Any) -> Iterator[tuple[str, Any]]:
    for request in devices["requests"]:
        if "exactly" in request:
            yield request["name"], request["exactly"]
        for each in request.get("firstAvailable", ()):
            yield f"{request['name']}/{each['name']}", each


@pytest.mark.parametrize("machine", bundled.names())
@pytest.mark.parametrize("form", ["alternatives", "plain"])
@pytest.mark.parametrize("nic_driver", [None, "dra.net"])
def test_every_object_keeps_to_the_limits_of_the_api(
    machine: str, form: str, nic_driver: str | None
) -> None:
    for item in exported(machine, form=form, nic_driver=nic_driver).objects:
        assert DNS_SUBDOMAIN.fullmatch(item["metadata"]["name"])
        if item["kind"] != "ResourceClaimTemplate":
            continue
        devices = devices_of(item)
        assert len(devices["requests"]) <= 32
        assert len(devices.get("constraints", ())) <= 32
        names = set()
        results = 0
        for request in devices["requests"]:
            names.add(request["name"])
            assert DNS_LABEL.fullmatch(request["name"])
            alternatives = request.get("firstAvailable", [])
            assert len(alternatives) <= 8
            assert all(DNS_LABEL.fullmatch(each["name"]) for each in alternatives)
            assert len({each["name"] for each in alternatives}) == len(alternatives)
            results += request.get("exactly", *alternatives[:1])["count"]
        assert results <= 32
        for name, each in requests_of(devices):
            names.add(name)
            expressions = [it["cel"]["expression"] for it in each.get("selectors", ())]
            assert len(expressions) <= 32
            assert all(len(it) <= 10 * 1024 for it in expressions)
        for constraint in devices.get("constraints", ()):
            assert {*constraint["requests"]} <= names


def test_each_pair_of_gpu_and_nic_shares_a_pcie_root() -> None:
    (_, template) = exported("dgx-h100", nic_driver="dra.net", sizes=(2,)).objects
    devices = devices_of(template)
    assert [request["name"] for request in devices["requests"]] == [
        "gpu-0",
        "nic-0",
        "gpu-1",
        "nic-1",
    ]
    pair = "resource.kubernetes.io/pcieRoot"
    assert devices["constraints"] == [
        {"requests": ["gpu-0", "nic-0"], "matchAttribute": pair},
        {"requests": ["gpu-1", "nic-1"], "matchAttribute": pair},
        {"requests": ["gpu-0/near", "gpu-1"], "matchAttribute": "resource.kubernetes.io/numaNode"},
    ]
    assert [it["name"] for it in devices["requests"][0]["firstAvailable"]] == ["near", "any"]


def test_pairs_are_together_by_as_many_as_a_numa_node_has() -> None:
    (_, template) = exported("dgx-a100", nic_driver="dra.net", sizes=(3,)).objects
    numa = "resource.kubernetes.io/numaNode"
    together = [it for it in devices_of(template)["constraints"] if it["matchAttribute"] == numa]
    assert [it["requests"] for it in together] == [["gpu-0/near", "gpu-1"]]


def test_a_plain_claim_for_pairs_has_no_alternatives() -> None:
    (_, template) = exported("dgx-h100", nic_driver="dra.net", sizes=(3,), form="plain").objects
    devices = devices_of(template)
    assert all("exactly" in request for request in devices["requests"])
    assert devices["constraints"][-1]["requests"] == ["gpu-0", "gpu-1", "gpu-2"]


def test_a_claim_begins_with_the_socket_that_has_nics() -> None:
    h100 = bundled.machine("dgx-h100")
    options = ClaimOptions(nic_driver="dra.net", sizes=(1, 2, 4))
    shape = shape_of(replace(h100, hcas=(h100.hcas or ())[4:]), options.drivers)
    offer = replace(shape.offered, nics=shape.offered.gpus)
    objects = export_claims([replace(shape, offered=offer)], options).objects
    for template in objects[1:]:
        devices = devices_of(template)
        first = devices["requests"][0]["firstAvailable"][0]["name"]
        assert f"gpus/{first}" in devices["constraints"][0]["requests"]
        assert "nics" in devices["constraints"][0]["requests"]
        assert first in {"numa-node-1", "one-numa-node-nic"}


def test_pairs_of_a_whole_node_name_their_gpus_so_that_no_order_is_tried() -> None:
    (_, template) = exported("dgx-h100", nic_driver="dra.net", sizes=(8,)).objects
    selected = [each.get("selectors") for name, each in requests_of(devices_of(template))]
    assert len([it for it in selected[::2] if it]) == 8
    assert not any(selected[1::2])


def test_pairs_that_may_hold_the_scheduler_up_are_a_warning() -> None:
    found = texts(exported("dgx-h100", nic_driver="dra.net", sizes=(6,)))
    assert found[0] == (
        "warning: 8x NVIDIA H100 80GB HBM3: a claim for 6 pairs that cannot be met holds the "
        "scheduler up (0.6 s at 6 pairs, 3.6 s at 8)"
    )


def test_a_nic_is_near_where_no_gpu_has_one_of_its_own() -> None:
    (_, template) = exported("dgx-1v", nic_driver="dra.net", sizes=(2,)).objects
    devices = devices_of(template)
    gpus, nic = devices["requests"]
    assert nic["exactly"]["count"] == 1
    constrained = {name for rule in devices["constraints"] for name in rule["requests"]}
    near = {f"gpus/{each['name']}" for each in gpus["firstAvailable"]} & constrained
    assert "gpus/any" not in near
    assert "gpus/gpu-0-4" not in near  # of two NUMA nodes
    assert {"gpus/gpu-0-3", "gpus/one-numa-node"} <= near


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("data-direct", "its NICs reach GPUs by Data Direct functions, whose PCIe roots differ"),
        ("virtual", "the PCIe tree of a virtual machine is not that of its host"),
    ],
)
def test_no_pairs_where_the_root_says_nothing(change: str, why: str) -> None:
    snapshot = bundled.machine("dgx-h100")
    changed = {
        "data-direct": replace(snapshot, data_directs=(_data_direct(),)),
        "virtual": replace(snapshot, cpu=replace(snapshot.cpu, is_virtual=True)),  # type: ignore[type-var]
    }[change]
    options = ClaimOptions(nic_driver="dra.net", sizes=(2,))
    found = export_claims([shape_of(changed, options.drivers)], options)
    assert any(why in text for text in texts(found))
    assert [it["name"] for it in devices_of(found.objects[1])["requests"]] == ["gpus", "nics"]


def _data_direct() -> Any:
    from nodetopo.model.hca import DataDirect  # noqa: PLC0415 - one test

    return DataDirect()


@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "nodetopo.io"])
def test_a_nic_follows_the_gpus_of_either_driver(driver: str) -> None:
    found = texts(exported("dgx-1v", nic_driver="dra.net", sizes=(2,), driver=driver))
    text = "each claim gets one NIC, near them by PCIe root"
    assert any(line.endswith(text) for line in found)


def test_a_machine_without_nics_is_a_warning() -> None:
    found = texts(exported("l40s-pcie-4", nic_driver="dra.net"))
    assert "warning: 4x NVIDIA L40S: no RDMA NIC is known there: its claims wait for ever" in found


def test_our_own_driver_is_asked_for_a_set_then_for_the_best_singles_then_for_any() -> None:
    spec = claim_spec(bundled.machine("dgx-h100"), 4, driver="nodetopo.io")
    one, best, singles = subrequests(spec)
    assert (one["deviceClassName"], one["count"]) == ("gpus.nodetopo.io", 1)
    assert one["selectors"][0]["cel"]["expression"] == 'device.attributes["nodetopo.io"].gpus == 4'
    for each in (best, singles):
        assert (each["deviceClassName"], each["count"]) == ("gpu.nodetopo.io", 4)
    (selector,) = best["selectors"]
    assert selector["cel"]["expression"] == '"best4" in device.attributes["nodetopo.io"]'
    assert "selectors" not in singles


def test_all_gpus_of_a_node_need_no_best_ones() -> None:
    (request,) = claim_spec(bundled.machine("dgx-h100"), 8, driver="nodetopo.io")["devices"][
        "requests"
    ]
    assert [it["name"] for it in request["firstAvailable"]] == ["set-of-8", "singles"]


def test_no_claim_for_more_gpus_than_there_are() -> None:
    with pytest.raises(InputError, match="cannot claim 9 GPUs — this machine allows 1 to 8"):
        claim_spec(bundled.machine("dgx-h100"), 9)
    with pytest.raises(InputError, match="no claim for 9 GPUs — ask for 1 to 8"):
        exported("dgx-h100", sizes=(1, 9))


def test_a_size_that_one_shape_lacks_is_exported_for_the_others() -> None:
    shapes = [shape_of(bundled.machine(name)) for name in ("dgx-h100", "l40s-pcie-4")]
    found = export_claims(shapes, ClaimOptions(sizes=(8,)))
    assert [it["metadata"]["name"] for it in found.objects] == ["gpu-topology-8x-h100-80gb-hbm3-8"]


def test_gpus_without_addresses_cannot_be_claimed() -> None:
    gpus = tuple(replace(gpu, pci=None) for gpu in bundled.machine("l40s-pcie-4").gpus)
    with pytest.raises(InputError, match="no GPU with a PCI address to claim"):
        claim_spec(Snapshot(gpus=gpus), 1)


def test_lost_gpus_are_not_claimed_even_as_any() -> None:
    snapshot = bundled.machine("l40s-pcie-4")
    gpus = (replace(snapshot.gpus[0], is_lost=True), *snapshot.gpus[1:])
    (request,) = claim_spec(replace(snapshot, gpus=gpus), 3)["devices"]["requests"]
    (selector,) = request["exactly"]["selectors"]
    assert str(snapshot.gpus[0].pci) not in selector["cel"]["expression"]


def test_nothing_to_export_without_a_shape() -> None:
    with pytest.raises(
        NothingFound, match=r"no node publishes GPUs of the driver gpu\.nvidia\.com"
    ):
        export_claims([], ClaimOptions())


def test_nodes_of_a_shape_are_named_by_their_selector_or_by_name() -> None:
    shape = replace(shape_of(bundled.machine("l40s-pcie-4")), nodes=("n1", "n2"))
    named = export_claims([shape], ClaimOptions(sizes=(1,)))
    assert named.objects[0]["metadata"]["annotations"]["gpu.topology/nodes"] == "n[1-2]"
    assert "note: 4x NVIDIA L40S: for n[1-2]" in texts(named)
    label = {"nvidia.com/gpu.product": "NVIDIA-L40S"}
    selected = export_claims([replace(shape, selector=label)], ClaimOptions(sizes=(1,)))
    annotations = selected.objects[0]["metadata"]["annotations"]
    assert annotations["gpu.topology/node-selector"] == "nvidia.com/gpu.product=NVIDIA-L40S"


def test_what_is_not_known_of_a_shape_is_said() -> None:
    known = shape_of(bundled.machine("l40s-pcie-4"))
    shape = Shape(
        name="x", snapshot=known.snapshot, offered=known.offered, nodes=("n1",), has_nvlinks=False
    )
    text = (
        "note: 4x NVIDIA L40S: its NVLinks are not published and no bundled machine has this layout"
    )
    assert any(line.startswith(text) for line in texts(export_claims([shape], ClaimOptions())))
