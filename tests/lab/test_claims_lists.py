"""Exported claims with attributes that are lists (KEP-6072), by kube-scheduler's allocator."""

from collections.abc import Iterator

import pytest

from nodetopo.machines import bundled
from nodetopo.tools.cluster.export.dra import ClaimOptions
from tests.lab.dra_allocator import DraAllocator
from tests.lab.test_claims_drivers import exported, filled
from tests.tools.cluster.export.drivers import (
    CPU_CLASS,
    NVIDIA_CLASS,
    Dranet,
    Json,
    Nvidia,
    cpus,
    dranet,
    nvidia_gpus,
    places_of,
)

pytestmark = pytest.mark.lab

GATE = "DRAListTypeAttributes"


@pytest.fixture(scope="module", params=["1.36", "1.37"])
def scheduler(request: pytest.FixtureRequest) -> Iterator[tuple[str, DraAllocator]]:
    with DraAllocator(request.param) as found:
        found.set_gates({GATE: True})
        yield request.param, found


@pytest.mark.parametrize("machine", ["dgx-1v", "dgx-h100", "h100-vm-8"])
@pytest.mark.parametrize("nics", ["v1.4.0", "main", "main, lists"])
@pytest.mark.parametrize("form", ["alternatives", "plain"])
@pytest.mark.parametrize("is_told", [False, True])
def test_claims_are_met(
    scheduler: tuple[str, DraAllocator], machine: str, nics: Dranet, form: str, *, is_told: bool
) -> None:
    name, allocator = scheduler
    snapshot = bundled.machine(machine)
    published = [
        nvidia_gpus(snapshot, "n", "main, lists", seed=2),
        dranet(snapshot, "n", nics),
        cpus(snapshot, "n", "main", "numanode"),
    ]
    nodes = places_of(published)
    release = (1, 37) if name == "1.37" else (1, 36)
    options = ClaimOptions(
        nic_driver="dra.net",
        cpu_driver="dra.cpu",
        cpus=4,
        form=form,
        release=release if is_told else None,
    )
    classes, specs = exported(snapshot, published, options)
    allocator.publish(published)
    allocator.set_classes([NVIDIA_CLASS, CPU_CLASS, *classes])
    for size, spec in specs.items():
        (taken,) = filled(allocator, spec, 1)
        if size <= 4 and release == (1, 37) and is_told and form == "alternatives":
            assert len({nodes[it] for it in taken}) == 1, (size, taken)


@pytest.mark.parametrize("form", ["alternatives", "plain"])
def test_gpus_alone_land_as_well_as_with_numbers(
    scheduler: tuple[str, DraAllocator], form: str
) -> None:
    name, allocator = scheduler
    release = (1, 37) if name == "1.37" else (1, 36)
    snapshot = bundled.machine("dgx-h100")
    found = []
    gpus: tuple[Nvidia, ...] = ("main", "main, lists")
    for of in gpus:
        published = [nvidia_gpus(snapshot, "n", of, seed=7)]
        classes, specs = exported(snapshot, published, ClaimOptions(form=form, release=release))
        allocator.publish(published)
        allocator.set_classes([NVIDIA_CLASS, *classes])
        found.append({size: filled(allocator, spec, 8) for size, spec in specs.items()})
    numbers, lists = found
    if name == "1.37":
        assert numbers == lists
    assert {size: len(its) for size, its in lists.items()} == {1: 8, 2: 4, 4: 2, 8: 1}
    if form == "alternatives":
        (four, _) = lists[4]
        nodes = places_of(published)
        assert len({nodes[it] for it in four}) == 1


def test_what_a_list_does_to_a_comparison_with_a_number(
    scheduler: tuple[str, DraAllocator],
) -> None:
    """Why exported claims name PCI addresses: an old ``==`` selects nothing, and is no error."""
    _, allocator = scheduler
    domain = 'device.attributes["resource.kubernetes.io"].numaNode'
    allocator.publish([nvidia_gpus(bundled.machine("dgx-h100"), "n", "main, lists")])
    allocator.set_classes([NVIDIA_CLASS])
    assert filled(allocator, _selecting(f"{domain} == 0"), 1) == []
    assert len(filled(allocator, _selecting(f"{domain}.includes(0)"), 8)) == 4


def _selecting(expression: str) -> Json:
    exactly = {"deviceClassName": "gpu.nvidia.com"}
    selectors = [{"cel": {"expression": expression}}]
    return {
        "devices": {"requests": [{"name": "g", "exactly": {**exactly, "selectors": selectors}}]}
    }
