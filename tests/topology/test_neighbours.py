"""What other DRA drivers give out on a node."""

from typing import Any

import pytest

from nodetopo.machines.bundled import machine
from nodetopo.model.dra import PCI_BUS_ID, PublishedDevice
from nodetopo.topology.neighbours import NOBODY, ServedByDra, served_by_dra

DGX = machine("dgx-h100")
GPU = "nvidia.com/gpu"


def published(*positions: int, driver: str = "gpu.nvidia.com") -> list[PublishedDevice]:
    return [
        PublishedDevice(
            driver=driver,
            pool="n",
            name=f"gpu-{at}",
            attributes={PCI_BUS_ID: str(DGX.gpus[at].pci)},
        )
        for at in positions
    ]


def device_class(expression: str | None, resource: str | None = GPU) -> dict[str, Any]:
    spec: dict[str, Any] = {"extendedResourceName": resource}
    if expression is not None:
        spec["selectors"] = [{"cel": {"expression": expression}}]
    return {"metadata": {"name": "class"}, "spec": spec}


def served(devices: list[PublishedDevice], *classes: dict[str, Any]) -> ServedByDra:
    return served_by_dra(devices, classes, DGX)


def test_a_gpu_that_a_driver_publishes_is_not_ours() -> None:
    found = served(published(0, 3))
    assert found.has(DGX.gpus[0].id)
    assert not found.has(DGX.gpus[1].id)
    assert found.sentences() == (
        "2 GPUs are published by the DRA driver gpu.nvidia.com, and not offered by device plugin",
    )


def test_devices_that_are_no_gpus_take_nothing() -> None:
    nic = PublishedDevice(driver="dra.net", pool="n", name="nic")
    assert served([nic], device_class(None)) == NOBODY
    assert served([]) == NOBODY


def test_slices_of_our_own_driver_that_are_still_there_count_as_any() -> None:
    assert len(served(published(0, driver="nodetopo.io")).gpus) == 1


@pytest.mark.parametrize(
    ("expression", "is_taken"),
    [
        ('device.driver == "gpu.nvidia.com"', True),
        ("device.driver == 'gpu.nvidia.com' && true", True),
        ("true", True),
        (None, True),
        ('device.driver == "gpu.amd.com"', False),
    ],
)
def test_a_class_may_give_the_whole_resource_to_a_driver_of_the_node(
    expression: str | None, is_taken: bool
) -> None:
    found = served(published(0), device_class(expression))
    assert dict(found.resources) == ({GPU: "class"} if is_taken else {})


def test_a_class_of_a_driver_elsewhere_and_one_without_a_resource_take_nothing() -> None:
    ours = device_class('device.driver == "gpu.nvidia.com"')
    assert not served([], ours)
    assert not served(published(0), {"metadata": {"name": "c"}, "spec": {}}).resources


def test_a_class_that_names_a_driver_of_the_node_takes_its_resource_whatever_it_publishes() -> None:
    unknown = PublishedDevice(driver="gpu.example.com", pool="n", name="gpu-0")
    found = served([unknown], device_class('device.driver == "gpu.example.com"'))
    assert (dict(found.gpus), dict(found.resources)) == ({}, {GPU: "class"})


def test_a_driver_whose_slices_are_not_known_may_have_every_gpu() -> None:
    found = ServedByDra(suspect="gpu.nvidia.com")
    assert all(found.has(gpu.id) for gpu in DGX.gpus)
    assert "ResourceSlices are not known" in found.sentences()[0]
