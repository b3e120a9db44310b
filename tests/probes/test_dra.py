"""ResourceSlices, reduced to the devices that they publish."""

from typing import Any

import pytest

from agent.model.dra import PublishedDevice
from agent.probes.dra import devices_of


def piece(name: str, devices: list[Any], *, generation: int = 1, pool: str = "n") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "n",
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 2},
            "devices": devices,
        },
    }


def test_a_device_has_its_attributes_by_full_name_counters_and_taints() -> None:
    (found,) = devices_of(
        [
            piece(
                "a",
                [
                    {
                        "name": "gpu-0",
                        "attributes": {
                            "uuid": {"string": "GPU-1"},
                            "resource.kubernetes.io/numaNode": {"int": 1},
                            "mig": {"bool": False},
                            "driverVersion": {"version": "580.1.0"},
                        },
                        "consumesCounters": [
                            {"counterSet": "gpus", "counters": {"b": {"value": "1"}, "a": {}}}
                        ],
                        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                    }
                ],
            )
        ]
    )
    assert found == PublishedDevice(
        driver="gpu.nvidia.com",
        pool="n",
        name="gpu-0",
        counters=("gpus/a", "gpus/b"),
        taints=("k=v:NoSchedule",),
        attributes=found.attributes,
    )
    assert found.attributes == {
        "gpu.nvidia.com/uuid": "GPU-1",
        "resource.kubernetes.io/numaNode": "1",
        "gpu.nvidia.com/mig": "false",
        "gpu.nvidia.com/driverVersion": "580.1.0",
    }


def test_devices_come_as_the_allocator_sees_them() -> None:
    slices = [
        piece("b", [{"name": "3"}, {"name": "1"}]),
        piece("a", [{"name": "2"}]),
        piece("z", [{"name": "0"}], pool="m"),
    ]
    assert [it.name for it in devices_of(slices)] == ["0", "2", "3", "1"]


def test_only_the_newest_generation_counts() -> None:
    slices = [piece("a", [{"name": "old"}]), piece("b", [{"name": "new"}], generation=2)]
    assert [it.name for it in devices_of(slices)] == ["new"]


@pytest.mark.parametrize(
    "broken",
    [{}, {"spec": 3}, {"spec": {"driver": "d", "pool": []}}, piece("a", [3, {}, {"name": 4}])],
)
def test_what_is_malformed_is_left_out(broken: dict[str, Any]) -> None:
    assert [it.name for it in devices_of([broken, piece("b", [{"name": "good"}])])] == ["good"]
