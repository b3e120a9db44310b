"""Sets of GPUs as devices: which there are, and in which order."""

from itertools import combinations

import pytest
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator
from nodetopo.components.dra.choice import sizes
from nodetopo.components.dra.sets import GpuSet, gpu_sets, ranked, singles_of
from nodetopo.machines.bundled import machine
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot

MACHINES = ("dgx-h100", "dgx-1v", "l40s-pcie-4")


def all_sets(snapshot: Snapshot) -> tuple[Allocator, tuple[GpuSet, ...]]:
    allocator, ids = Allocator(snapshot), [gpu.id for gpu in snapshot.gpus]
    sets = gpu_sets(snapshot, allocator, ids, room=48)
    return allocator, (*singles_of(snapshot, ids), *sets)


def test_sets_are_named_after_the_buses_of_their_gpus() -> None:
    _, sets = all_sets(machine("dgx-h100"))
    assert len({each.name for each in sets}) == len(sets)
    assert (sets[0].name, sets[8].name) == ("gpu-1b", "gpus-1b-43")
    assert sets[-1].name == "gpus-1b-43-52-61-9d-c3-d1-df"


def test_the_order_has_every_device_whichever_gpus_are_free() -> None:
    snapshot = machine("dgx-1v")
    allocator, sets = all_sets(snapshot)
    for free in combinations([gpu.id for gpu in snapshot.gpus], 3):
        order = ranked(sets, allocator, free)
        assert sorted(it.name for it in order) == sorted(it.name for it in sets)


@pytest.mark.parametrize("name", MACHINES)
def test_the_first_single_gpus_are_good_sets(name: str) -> None:
    snapshot = machine(name)
    allocator, sets = all_sets(snapshot)
    ids = [gpu.id for gpu in snapshot.gpus]
    for free in combinations(ids, len(ids) - 1):
        singles = [it.gpus[0] for it in ranked(sets, allocator, free) if it.is_single]
        size = sizes(len(free))[-2]
        assert set(singles[:size]) == set(allocator.allocate(available=free, size=size).chosen)
        assert set(singles[: len(free)]) == set(free)


def test_a_degraded_gpu_is_in_the_last_of_the_free_sets() -> None:
    snapshot = machine("dgx-h100")
    allocator, sets = all_sets(snapshot)
    ids = [gpu.id for gpu in snapshot.gpus]
    order = [it for it in ranked(sets, allocator, ids, degraded=ids[:1]) if it.size == 2]
    assert [ids[0] in it.gpus for it in order] == [False] * 9 + [True] * 3


def test_gpus_of_one_bus_or_of_long_addresses_have_a_digest() -> None:
    snapshot = machine("dgx-h100")
    gpus = tuple(
        replace(gpu, pci=PciAddress(0x10000 + at, at, 0, 1)) for at, gpu in enumerate(snapshot.gpus)
    )
    _, sets = all_sets(replace(snapshot, gpus=gpus))
    assert len({each.name for each in sets}) == len(sets)
    assert all(len(each.name) <= 63 for each in sets)
