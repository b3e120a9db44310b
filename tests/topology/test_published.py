"""Which GPUs and HCAs are behind published devices."""

import pytest
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.dra import ClaimedDevice, PublishedDevice
from nodetopo.model.gpu import Mig, MigInstance
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.published import ClaimedGpus, counted_gpu, gpus_of, hca_of, published_gpus


def device(**attributes: str) -> PublishedDevice:
    return PublishedDevice(
        driver="gpu.nvidia.com",
        pool="n",
        name="gpu-0",
        attributes={
            name.replace("__", "/").replace("_", "."): it for name, it in attributes.items()
        },
    )


@pytest.fixture(scope="module")
def dgx() -> Snapshot:
    return machine("dgx-h100")


def test_a_gpu_is_found_by_its_uuid_and_by_its_address(dgx: Snapshot) -> None:
    gpu = dgx.gpus[3]
    assert gpus_of(device(gpu_nvidia_com__uuid=str(gpu.uuid)), dgx) == (3,)
    assert gpus_of(device(resource_kubernetes_io__pciBusID=str(gpu.pci)), dgx) == (3,)


def test_a_mig_device_counts_as_its_gpu(dgx: Snapshot) -> None:
    parent = str(dgx.gpus[2].uuid)
    found = device(gpu_nvidia_com__uuid="MIG-1", gpu_nvidia_com__parentUUID=parent)
    assert gpus_of(found, dgx) == (2,)


def test_a_set_of_ours_is_found_by_its_counters(dgx: Snapshot) -> None:
    addresses = [str(dgx.gpus[at].pci).replace(":", "-").replace(".", "-") for at in (1, 5)]
    counters = ("gpus/count", *(f"gpus/gpu-{address}" for address in addresses))
    found = PublishedDevice(driver="nodetopo.io", pool="n", name="set", counters=counters)
    assert gpus_of(found, dgx) == (1, 5)
    assert list(published_gpus([found, found], dgx)) == [1, 5]


def test_a_device_for_administration_stands_for_no_gpu(dgx: Snapshot) -> None:
    uuid = str(dgx.gpus[3].uuid)
    found = PublishedDevice(
        driver="nodetopo.io",
        pool="n",
        name="admin",
        attributes={"nodetopo.io/type": "admin", "nodetopo.io/uuid": uuid},
    )
    assert gpus_of(found, dgx) == ()
    places = ClaimedGpus(replace(dgx, published=(found,)))
    claimed = ClaimedDevice(
        driver="nodetopo.io",
        pool="n",
        name="admin",
        namespace="d",
        claim="c",
        cdi_devices=(f"nodetopo.io/gpu={uuid}",),
    )
    assert places.gpus(claimed) == ()
    assert places.uuids(claimed) == set()


def test_what_is_no_gpu_of_the_node_has_none(dgx: Snapshot) -> None:
    assert gpus_of(device(), dgx) == ()
    assert gpus_of(device(resource_kubernetes_io__pciBusID="0000:ff:00.0"), dgx) == ()
    assert gpus_of(device(resource_kubernetes_io__pciBusID="none"), dgx) == ()


def test_an_hca_is_found_by_its_address(dgx: Snapshot) -> None:
    assert dgx.hcas
    nic = PublishedDevice(
        driver="dra.net",
        pool="n",
        name="nic",
        attributes={"dra.net/pciAddress": str(dgx.hcas[2].pci)},
    )
    assert hca_of(nic, dgx) == 2
    assert hca_of(device(), dgx) is None


@pytest.mark.parametrize("counter", ["gpus/count", "gpus/gpu-1", "gpus/gpu-0000-1b-00-9"])
def test_another_counter_is_about_no_gpu(counter: str) -> None:
    assert counted_gpu(counter) is None


def test_a_counter_of_a_part_names_its_gpu() -> None:
    assert counted_gpu("m/gpu-0000-1b-00-0-slices") == PciAddress(0, 0x1B, 0, 0)


def claimed(name: str, *cdi: str, driver: str = "gpu.nvidia.com") -> ClaimedDevice:
    return ClaimedDevice(
        driver=driver, pool="n", name=name, namespace="ml", claim="c", cdi_devices=cdi
    )


def test_a_claimed_gpu_is_found_by_its_slice(dgx: Snapshot) -> None:
    published = (device(gpu_nvidia_com__uuid=str(dgx.gpus[3].uuid)),)
    places = ClaimedGpus(replace(dgx, published=published))
    assert places.gpus(claimed("gpu-0")) == (3,)
    assert not places.is_part(claimed("gpu-0"))


def test_a_claimed_gpu_is_found_by_its_cdi_names_where_no_slice_is_known(dgx: Snapshot) -> None:
    names = [f"device-plugin.nodetopo.io/gpu={dgx.gpus[at].uuid}" for at in (5, 1)]
    assert ClaimedGpus(dgx).gpus(claimed("set", *names, driver="nodetopo.io")) == (1, 5)


def test_a_claimed_mig_device_is_a_part_of_its_gpu(dgx: Snapshot) -> None:
    mig = Mig(is_enabled=True, instances=(MigInstance(uuid="MIG-1"),))
    first = replace(dgx.gpus[0], mig=mig)
    places = ClaimedGpus(replace(dgx, gpus=(first, *dgx.gpus[1:])))
    found = claimed("mig", "k/gpu=MIG-1", driver="nodetopo.io")
    assert places.gpus(found) == (0,)
    assert places.is_part(found)


@pytest.mark.parametrize(
    ("driver", "expected"),
    [("gpu.nvidia.com", None), ("nodetopo.io", None), ("dra.net", ()), ("cpu.dra", ())],
)
def test_a_claimed_device_of_an_unknown_slice_is_unknown_if_it_may_be_a_gpu(
    dgx: Snapshot, driver: str, expected: tuple[int, ...] | None
) -> None:
    assert ClaimedGpus(dgx).gpus(claimed("x", driver=driver)) == expected


def test_a_claimed_hca_is_found_by_its_slice(dgx: Snapshot) -> None:
    assert dgx.hcas
    nic = PublishedDevice(
        driver="dra.net",
        pool="n",
        name="nic",
        attributes={"dra.net/pciAddress": str(dgx.hcas[1].pci)},
    )
    places = ClaimedGpus(replace(dgx, published=(nic,)))
    assert places.hca(claimed("nic", driver="dra.net")) == 1
    assert places.gpus(claimed("nic", driver="dra.net")) == ()
    assert places.hca(claimed("other", driver="dra.net")) is None


def test_a_claimed_gpu_is_offered_by_its_uuid_or_those_of_its_mig_devices(dgx: Snapshot) -> None:
    mig = Mig(is_enabled=True, instances=(MigInstance(uuid="MIG-1"), MigInstance(uuid="MIG-2")))
    gpus = (replace(dgx.gpus[0], mig=mig), *dgx.gpus[1:])
    whole = device(resource_kubernetes_io__pciBusID=str(dgx.gpus[0].pci))
    places = ClaimedGpus(replace(dgx, gpus=gpus, published=(whole,)))
    assert places.uuids(claimed("gpu-0")) == {str(dgx.gpus[0].uuid), "MIG-1", "MIG-2"}


def test_a_claimed_mig_device_is_offered_by_its_own_uuid_only(dgx: Snapshot) -> None:
    attributes = {
        "gpu_nvidia_com__type": "mig",
        "gpu_nvidia_com__uuid": "MIG-1",
        "gpu_nvidia_com__parentUUID": str(dgx.gpus[0].uuid),
    }
    places = ClaimedGpus(replace(dgx, published=(device(**attributes),)))
    assert places.uuids(claimed("gpu-0", "k8s.gpu.nvidia.com/claim=9-gpu-0")) == {"MIG-1"}


def test_a_claimed_device_without_a_slice_is_offered_by_what_its_cdi_names_say(
    dgx: Snapshot,
) -> None:
    places = ClaimedGpus(dgx)
    assert places.uuids(claimed("x", "k/gpu=GPU-of-another-scan")) == {"GPU-of-another-scan"}
    assert places.uuids(claimed("x", "k8s.gpu.nvidia.com/claim=9-gpu-0")) == set()
