"""Allocate and the small calls, with a raw client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.settings import PluginSettings, Strategy
from tests.deviceplugin.machines import GPUS
from tests.deviceplugin.raw_client import Client, serving
from tests.generous_deadlines import GENEROUS


@pytest.fixture
def served() -> Iterator[Client]:
    with serving() as it:
        yield it


def test_the_options_announce_preferred_allocations_only(served: Client) -> None:
    expected = pb.DevicePluginOptions(get_preferred_allocation_available=True)
    assert served.stub.GetDevicePluginOptions(pb.Empty()) == expected


REPLICAS = tuple(replace(gpu, id=f"{gpu.id}::{number}") for gpu in GPUS[:2] for number in (0, 1))
ONE_EACH = PluginSettings(fails_requests_greater_than_one=True)


def test_replicas_of_a_gpu_are_given_as_that_gpu_once(served: Client) -> None:
    served.servicer.update(REPLICAS)
    (container,) = served.allocate("GPU-1::0", "GPU-0::1", "GPU-1::1").container_responses
    assert [device.name for device in container.cdi_devices] == [
        "nvidia.com/gpu=GPU-0",
        "nvidia.com/gpu=GPU-1",
    ]


def test_two_replicas_are_refused_by_the_name_of_the_setting() -> None:
    with serving(settings=ONE_EACH, devices=REPLICAS) as served:
        with pytest.raises(grpc.RpcError) as caught:
            served.allocate("GPU-0::0", "GPU-1::0")
        one = served.allocate("GPU-0::0")
    error: Any = caught.value
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == (
        "nvidia.com/gpu: shared, so 2 of it are no more of a GPU than 1 — "
        "failRequestsGreaterThanOne is set: ask for 1"
    )
    assert len(one.container_responses) == 1


def test_devices_that_are_not_shared_may_be_asked_for_together() -> None:
    with serving(settings=ONE_EACH) as served:
        (container,) = served.allocate("GPU-0", "GPU-1").container_responses
    assert len(container.cdi_devices) == 2


def test_allocated_devices_are_distinct_and_in_device_order(served: Client) -> None:
    (container,) = served.allocate("GPU-5", "GPU-2", "GPU-5").container_responses
    assert [device.name for device in container.cdi_devices] == [
        "nvidia.com/gpu=GPU-2",
        "nvidia.com/gpu=GPU-5",
    ]


def test_an_unknown_device_is_an_invalid_argument(served: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        served.allocate("GPU-0", "GPU-77")
    error: Any = caught.value
    assert (error.code(), error.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "nvidia.com/gpu has no device GPU-77",
    )


def test_a_device_node_without_a_number_is_a_failed_precondition() -> None:
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,))
    with serving(settings=settings) as served:
        served.servicer.update([replace(GPUS[0], minor=None)])
        with pytest.raises(grpc.RpcError) as caught:
            served.allocate("GPU-0")
    error: Any = caught.value
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_an_error_names_a_few_of_many_unknown_devices_in_part(served: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        served.allocate(*(f"{n:04}" + "x" * 1000 for n in range(2000)))
    error: Any = caught.value
    shown = [f"{n:04}" + "x" * 76 for n in range(4)]
    expected = f"nvidia.com/gpu has no device {', '.join(shown)} and 1996 more"
    assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, expected)


def test_nothing_happens_before_a_container_starts(served: Client) -> None:
    request = pb.PreStartContainerRequest(devices_ids=["GPU-0"])
    assert served.stub.PreStartContainer(request) == pb.PreStartContainerResponse()


def test_device_specs_name_nodes_found_when_the_service_was_made(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,), host_root=tmp_path)
    with serving(settings=settings) as served:
        (tmp_path / "dev/nvidiactl").unlink()
        (container,) = served.allocate("GPU-3").container_responses
    assert [spec.host_path for spec in container.devices] == ["/dev/nvidiactl", "/dev/nvidia3"]


def test_device_nodes_that_the_driver_makes_later_are_found(
    tmp_path: Path,
) -> None:
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,), host_root=tmp_path)
    with serving(settings=settings, deadlines=replace(GENEROUS, node_lookup_s=0.0)) as served:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/nvidia-uvm").touch()
        served.servicer.update(GPUS)
        (container,) = served.allocate("GPU-3").container_responses
    assert [spec.host_path for spec in container.devices] == ["/dev/nvidia-uvm", "/dev/nvidia3"]
