"""What feature gates make of kube-scheduler's allocator, by release."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.lab.dra_allocator import AllocatorError, DraAllocator
from tests.lab.release import chosen

pytestmark = pytest.mark.lab

DRIVER = "gpu.example.com"
LISTS = {"DRAListTypeAttributes": True}
NO_TAINTS = {"DRADeviceTaints": False, "DRADeviceTaintRules": False}
CLASS = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}
ONE: Mapping[str, Any] = {
    "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}
}
PAIR: Mapping[str, Any] = {
    "devices": {
        "requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}}],
        "constraints": [{"matchAttribute": f"{DRIVER}/numa"}],
    }
}


@pytest.fixture
def allocator() -> Iterator[DraAllocator]:
    """Return the allocator with one class."""
    with DraAllocator() as program:
        program.set_classes([CLASS])
        yield program


def published(*devices: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the one slice of a node."""
    named = [{"name": f"gpu-{number}", **device} for number, device in enumerate(devices)]
    pool = {"name": "NODE", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "NODE", "devices": named}
    return [{"metadata": {"name": "NODE-0"}, "spec": spec}]


def numa(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"attributes": {"numa": value}}


@pytest.mark.parametrize(
    ("one", "other", "matches"),
    [
        ({"ints": [0, 1]}, {"ints": [1]}, True),
        ({"ints": [0]}, {"int": 0}, True),
        ({"ints": [0]}, {"ints": [1]}, False),
    ],
)
def test_lists_match_by_a_common_element_since_1_37(
    allocator: DraAllocator,
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    *,
    matches: bool,
) -> None:
    """1.36 has the gate, and does not hand it to its allocator (AllocatorFeatures)."""
    allocator.publish(published(numa(one), numa(other)))
    allocator.set_gates(LISTS)
    found = allocator.allocate("claim", PAIR, "NODE")
    assert (found is not None) == (matches and chosen().kubelet >= (1, 37))


def test_without_the_gate_a_list_spoils_all_selectors_up_to_1_36(allocator: DraAllocator) -> None:
    """Since 1.37 it is an attribute as any other, with the value of a list."""
    allocator.publish(published(numa({"ints": [0]})))
    if chosen().kubelet >= (1, 37):
        assert allocator.allocate("claim", ONE, "NODE") is not None
    else:
        with pytest.raises(AllocatorError, match="unsupported attribute value"):
            allocator.allocate("claim", ONE, "NODE")


def test_without_their_gate_taints_keep_nobody_off(allocator: DraAllocator) -> None:
    allocator.publish(published({"taints": [{"key": "a/b", "effect": "NoSchedule"}]}))
    assert allocator.allocate("claim", ONE, "NODE") is None
    allocator.set_gates(NO_TAINTS)
    assert allocator.allocate("claim", ONE, "NODE") is not None
    allocator.set_gates({})
    allocator.free("claim")
    assert allocator.allocate("claim", ONE, "NODE") is None


def test_a_bench_filters_nodes_that_are_alike(allocator: DraAllocator) -> None:
    slices = published(numa({"int": 0}), numa({"int": 0}))
    found = allocator.bench(slices, 50, PAIR, pods=2, per_pod=5)
    assert (found.slices, found.filtered, found.fitting) == (50, 10, 10)
    assert min(found.construct_cpu_s, found.filter_cpu_s) >= 0
    apart = published(numa({"int": 0}), numa({"int": 1}))
    assert allocator.bench(apart, 50, PAIR).fitting == 0
