"""Exported claims against the rules of a real API server, every field of them known to it."""

from collections.abc import Iterator

import pytest

from nodetopo.machines import bundled
from nodetopo.tools.cluster.export.dra import ClaimOptions, claim_spec, export_claims
from nodetopo.tools.cluster.export.shapes import shape_of
from tests.lab.api import ApiError, Object
from tests.lab.cluster import Cluster
from tests.lab.dra_allocator import DraAllocator
from tests.lab.schedulers.exported import lost
from tests.tools.cluster.export.dra_machines import free_sets, slices, taken

pytestmark = pytest.mark.lab

API = "/apis/resource.k8s.io/v1"
MACHINES = ("dgx-1v", "dgx-2", "dgx-h100", "gb200-nvl72", "h100-vm-8", "rtxpro6000-pcie-8")


def path(item: Object) -> str:
    """Return where *item* is."""
    name = item["metadata"]["name"]
    if item["kind"] == "DeviceClass":
        return f"{API}/deviceclasses/{name}"
    return f"{API}/namespaces/default/resourceclaimtemplates/{name}"


def objects(machine: str, options: ClaimOptions) -> list[Object]:
    """Return what is exported for *machine*."""
    return [
        dict(it)
        for it in export_claims(
            [shape_of(bundled.machine(machine), options.drivers)], options
        ).objects
    ]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "options",
    [
        ClaimOptions(),
        ClaimOptions(form="plain", device_class="gpu-of-a-site"),
        ClaimOptions(nic_driver="dra.net"),
        ClaimOptions(driver="nodetopo.io"),
        ClaimOptions(nic_driver="dra.net", cpu_driver="dra.cpu"),
    ],
    ids=["alternatives", "plain", "nics", "own", "cpus"],
)
def test_the_api_server_keeps_all_that_is_exported(
    cluster: Cluster, machine: str, options: ClaimOptions
) -> None:
    sent = objects(machine, options)
    stored = [cluster.api.apply(path(item), item) for item in sent]
    for item in sent:
        cluster.api.delete(path(item))
    assert stored
    assert [lost(*pair) for pair in zip(sent, stored, strict=True)] == [[]] * len(stored)


def test_the_api_server_refuses_a_ninth_alternative_and_what_is_no_cel(cluster: Cluster) -> None:
    (item,) = objects("dgx-1v", ClaimOptions(sizes=(2,)))
    alternatives = item["spec"]["spec"]["devices"]["requests"][0]["firstAvailable"]
    alternatives.append({**alternatives[-1], "name": "ninth"})
    with pytest.raises(ApiError, match="must have at most 8 items"):
        cluster.api.apply(path(item), item, is_dry_run=True)
    del alternatives[-1]
    alternatives[0]["selectors"][0]["cel"]["expression"] = "dra.pciBusID in []"
    with pytest.raises(ApiError, match="undeclared reference to 'dra'"):
        cluster.api.apply(path(item), item, is_dry_run=True)


# What kube-scheduler's allocator makes of them.

NVIDIA_CLASS = {
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": 'device.driver == "gpu.nvidia.com" && '
                    'device.attributes["gpu.nvidia.com"].type == "gpu"'
                }
            }
        ]
    },
}


def holder(address: str) -> Object:
    """Return the spec of a claim for the GPU at *address*."""
    domain = 'device.attributes["resource.kubernetes.io"]'
    selector = {"cel": {"expression": f'{domain}.pciBusID == "{address}"'}}
    exactly = {"deviceClassName": "gpu.nvidia.com", "selectors": [selector], "count": 1}
    exactly["allocationMode"] = "ExactCount"
    return {"devices": {"requests": [{"name": "held", "exactly": exactly}]}}


@pytest.fixture(scope="module")
def allocator() -> Iterator[DraAllocator]:
    with DraAllocator() as found:
        yield found


@pytest.mark.parametrize("machine", ["dgx-1v", "dgx-h100", "rtxpro6000-pcie-8"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_schedulers_allocator_takes_what_the_imitation_says_whatever_is_free(
    allocator: DraAllocator, machine: str, size: int
) -> None:
    snapshot = bundled.machine(machine)
    published = slices(snapshot, "n", seed=size)
    devices = published[0]["spec"]["devices"]
    addresses = {f"gpu-{gpu.index}": str(gpu.pci) for gpu in snapshot.gpus}
    spec = claim_spec(snapshot, size)
    allocator.set_classes([NVIDIA_CLASS])
    allocator.publish(published)
    compared = 0
    for free in free_sets(devices, size):
        held = [name for name in addresses if name not in free]
        for name in held:
            assert allocator.allocate(f"held-{name}", holder(addresses[name]), "n") is not None
        found = allocator.allocate("job", spec, "n")
        for name in (*(f"held-{name}" for name in held), "job"):
            allocator.free(name)
        assert found is not None
        assert {it.device for it in found} == {*(taken(spec, devices, free) or ())}
        compared += 1
    assert compared > 100


def test_pairs_share_their_roots_and_a_whole_node_that_is_in_use_is_refused(
    allocator: DraAllocator,
) -> None:
    snapshot = bundled.machine("dgx-h100")
    options = ClaimOptions(nic_driver="dra.net", sizes=(4, 8))
    nic_class, four, whole = export_claims([shape_of(snapshot, options.drivers)], options).objects
    published = slices(snapshot, "n", nics=True)
    roots = {
        device["name"]: device["attributes"]["resource.kubernetes.io/pcieRoot"]["string"]
        for each in published
        for device in each["spec"]["devices"]
    }
    allocator.set_classes([NVIDIA_CLASS, nic_class])
    allocator.publish(published)
    for number, template in enumerate((four, whole)):
        found = allocator.allocate(f"job-{number}", template["spec"]["spec"], "n")
        if number:
            assert found is None
            continue
        assert found is not None
        by_request = {it.request.partition("/")[0]: roots[it.device] for it in found}
        assert len({*by_request.values()}) == 4
        assert all(by_request[f"gpu-{at}"] == by_request[f"nic-{at}"] for at in range(4))
    allocator.free("job-0")
    every = allocator.allocate("job-1", whole["spec"]["spec"], "n")
    allocator.free("job-1")
    assert every is not None
    assert len(every) == 16


def test_devices_without_the_attributes_do_not_end_the_allocation(allocator: DraAllocator) -> None:
    (published,) = slices(bundled.machine("dgx-h100"), "n")
    for device in published["spec"]["devices"]:
        for name in ("pciBusID", "pcieRoot", "numaNode"):
            del device["attributes"][f"resource.kubernetes.io/{name}"]
    allocator.set_classes([NVIDIA_CLASS])
    allocator.publish([published])
    for machine in ("dgx-1v", "dgx-h100"):
        found = allocator.allocate("job", claim_spec(bundled.machine(machine), 2), "n")
        allocator.free("job")
        assert found is not None
        assert {it.request for it in found} == {"gpus/any"}
