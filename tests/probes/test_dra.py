"""ResourceSlices, reduced to the devices that they publish."""

from typing import Any

import pytest

from nodetopo.model.dra import PublishedDevice
from nodetopo.probes.dra import devices_of, newest_of, pools_of


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


def test_lists_shares_and_capacity_are_kept() -> None:
    device = {
        "name": "gpu-0",
        "attributes": {
            "resource.kubernetes.io/numaNode": {"ints": [1, 0]},
            "pcieRoot": {"strings": ["pci0000:00", "pci0000:40"]},
            "odd": {"string": "[not a list"},
        },
        "capacity": {"memory": {"value": "80Gi"}, "dra.cpu/cpu": {"value": 4}, "bad": 3},
        "allowMultipleAllocations": True,
    }
    (found,) = devices_of([piece("a", [device])])
    assert found.attributes["resource.kubernetes.io/numaNode"] == "[1, 0]"
    assert found.values("resource.kubernetes.io/numaNode") == ("1", "0")
    assert found.is_list("resource.kubernetes.io/numaNode")
    assert found.values("gpu.nvidia.com/pcieRoot") == ("pci0000:00", "pci0000:40")
    assert found.values("gpu.nvidia.com/odd") == ("[not a list",)
    assert found.values("gpu.nvidia.com/none") == ()
    assert found.capacity == {"gpu.nvidia.com/memory": "80Gi", "dra.cpu/cpu": "4"}
    assert found.is_shared


def test_a_pool_is_the_slices_of_its_newest_generation() -> None:
    old, new = piece("a", [{"name": "0"}]), piece("b", [{"name": "1"}], generation=2)
    groups = {"consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["x"]}]}
    shared = piece("c", [{"name": "2", **groups}], pool="rack")
    shared["spec"] |= {"nodeName": None, "allNodes": True}
    node, rack = pools_of([old, new, shared])
    assert (node.name, node.nodes, node.devices) == ("n", ("n",), 1)
    assert (node.slices, node.expected, node.is_complete) == (1, 2, False)
    assert (rack.nodes, rack.selects_by, rack.has_groups) == ((), ("allNodes",), True)
    assert newest_of([old, new]) == (new,)
