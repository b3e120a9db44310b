"""Which GPUs are missing."""

import pytest
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import NvidiaDriver
from nodetopo.model.node import NodeStatus
from nodetopo.model.operator_labels import INSTANCE_TYPE
from nodetopo.model.presence import ExpectedGpus, UnlistedGpu
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.presence import (
    absent_gpus,
    dead_gpus,
    expected_gpus,
    gpus_of_type,
    meant_gpus,
    missing_text,
)

DGX = machine("dgx-h100")


def without(count: int, *drivers: str | None) -> Snapshot:
    """Return a DGX whose last *count* GPUs are on PCI alone, bound to *drivers*."""
    kept, gone = DGX.gpus[:-count], DGX.gpus[-count:]
    unlisted = tuple(
        UnlistedGpu(pci=gpu.pci, driver=driver)
        for gpu, driver in zip(gone, drivers, strict=True)
        if gpu.pci is not None
    )
    return replace(DGX, gpus=kept, unlisted_gpus=unlisted)


def had(count: int, *, is_set: bool = False) -> Snapshot:
    expected = ExpectedGpus(count=count, source="it has had", is_set=is_set)
    return replace(DGX, expected_gpus=expected)


@pytest.mark.parametrize("driver", ["nvidia", None])
def test_a_gpu_of_the_driver_or_of_no_driver_is_dead(driver: str | None) -> None:
    node = without(1, driver)
    assert dead_gpus(node) == node.unlisted_gpus
    assert missing_text(node) == (
        f"GPUs are missing: {node.unlisted_gpus[0].pci} on the PCI bus, and not listed by NVML"
    )


def test_gpus_of_another_driver_are_meant() -> None:
    node = without(2, "vfio-pci", "nvidia")
    assert [gpu.driver for gpu in dead_gpus(node)] == ["nvidia"]
    assert [gpu.driver for gpu in meant_gpus(node)] == ["vfio-pci"]


def test_all_gpus_may_be_dead() -> None:
    assert len(dead_gpus(without(8, *["nvidia"] * 8))) == 8


def test_gpus_that_are_all_bound_to_no_driver_are_not_known_to_be_dead() -> None:
    assert dead_gpus(without(8, *[None] * 8)) == ()


def test_gpus_that_a_parameter_excludes_are_not_known_to_be_dead() -> None:
    parameters = {"ExcludedGpus": "GPU-1"}
    node = replace(without(1, "nvidia"), nvidia=NvidiaDriver(parameters=parameters))
    assert dead_gpus(node) == ()


@pytest.mark.parametrize(
    ("node", "absent"),
    [
        (DGX, None),
        (had(8), 0),
        (had(10), 2),
        (had(6), 0),
        (had(10, is_set=True), 2),
        (had(0, is_set=True), None),
        (replace(had(10), pci_gpus=None), None),
        (replace(DGX, product_name="p5.48xlarge"), 0),
        (replace(had(10), product_name="p5.48xlarge"), 2),
        (replace(had(8, is_set=True), product_name="a2-megagpu-16g"), 0),
        (replace(DGX, node_status=NodeStatus(labels={INSTANCE_TYPE: "a2-megagpu-16g"})), 8),
    ],
)
def test_what_is_expected_is_compared_with_what_is_on_pci(
    node: Snapshot, absent: int | None
) -> None:
    assert absent_gpus(node) == absent


def test_mig_and_dead_gpus_are_on_pci_all_the_same() -> None:
    node = replace(without(1, "nvidia"), expected_gpus=had(8).expected_gpus)
    assert absent_gpus(node) == 0


def test_nothing_is_expected_of_a_type_that_is_not_known() -> None:
    assert expected_gpus(replace(DGX, product_name="m5.large")) is None


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("p4d.24xlarge", 8),
        ("g6e.12xlarge", 4),
        ("Standard_NC48ads_A100_v4", 2),
        ("a3-highgpu-1g", 1),
        ("a2-megagpu-16g", 16),
        ("a4x-highgpu-4g", 4),
    ],
)
def test_instance_types_have_gpus(name: str, count: int) -> None:
    found = gpus_of_type(name)
    assert found is not None
    assert found.count == count
