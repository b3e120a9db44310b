"""Sets of GPUs as devices: which there are, and in which order."""

from dataclasses import replace
from itertools import combinations

import pytest

from agent.allocation.allocator import Allocator
from agent.dra.sets import MOST_OF_A_SIZE, GpuSet, gpu_sets, ranked, sizes
from agent.machines.bundled import machine
from agent.model.pci import PciAddress
from agent.model.snapshot import Snapshot

MACHINES = ("dgx-h100", "dgx-1v", "l40s-pcie-4")


def all_sets(snapshot: Snapshot) -> tuple[Allocator, tuple[GpuSet, ...]]:
    allocator = Allocator(snapshot)
    return allocator, gpu_sets(snapshot, allocator, [gpu.id for gpu in snapshot.gpus])


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, ()), (1, (1,)), (4, (1, 2, 4)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))],
)
def test_sizes_are_powers_of_two_and_all(count: int, expected: tuple[int, ...]) -> None:
    assert sizes(count) == expected


def test_an_eight_gpu_machine_has_all_sets() -> None:
    _, sets = all_sets(machine("dgx-h100"))
    assert len(sets) == 8 + (8 + 28 + 70 + 1)
    assert len({each.name for each in sets}) == len(sets)
    assert (sets[0].name, sets[8].name) == ("gpu-1b", "gpus-1b")
    assert sets[-1].name == "gpus-1b-43-52-61-9d-c3-d1-df"


@pytest.mark.parametrize("name", MACHINES)
def test_the_first_free_set_of_each_size_is_what_allocate_chooses(name: str) -> None:
    snapshot = machine(name)
    allocator, sets = all_sets(snapshot)
    ids = [gpu.id for gpu in snapshot.gpus]
    for count in range(1, len(ids) + 1):
        for free in combinations(ids, count):
            order = ranked(sets, allocator, free)
            assert sorted(it.name for it in order) == sorted(it.name for it in sets)
            for size in sizes(len(ids)):
                if size <= count:
                    first = next(it for it in order if it.size == size and not it.is_single)
                    best = allocator.allocate(available=free, size=size)
                    assert first.gpus == best.chosen, (free, size)


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
    order = [it for it in ranked(sets, allocator, ids, degraded=ids[:1]) if it.size == 4]
    assert [ids[0] in it.gpus for it in order] == [False] * 35 + [True] * 35
    best = allocator.allocate(available=ids, size=4, degraded=ids[:1])
    assert order[0].gpus == best.chosen


def test_a_larger_machine_has_its_best_sets() -> None:
    snapshot = machine("dgx-2")
    _, sets = all_sets(snapshot)
    by_size = {size: [it for it in sets if it.size == size] for size in (1, 2, 4, 8, 16)}
    assert [len(by_size[size]) for size in (1, 2, 16)] == [32, 120, 1]
    for size in (4, 8):
        assert 0 < len(by_size[size]) <= MOST_OF_A_SIZE
    whole_nodes = {tuple(gpu.id for gpu in snapshot.gpus[at : at + 8]) for at in (0, 8)}
    assert whole_nodes <= {it.gpus for it in by_size[8]}


def test_gpus_of_one_bus_or_of_long_addresses_have_a_digest() -> None:
    snapshot = machine("dgx-h100")
    gpus = tuple(
        replace(gpu, pci=PciAddress(0x10000 + at, at, 0, 1)) for at, gpu in enumerate(snapshot.gpus)
    )
    _, sets = all_sets(replace(snapshot, gpus=gpus))
    assert len({each.name for each in sets}) == len(sets)
    assert all(len(each.name) <= 63 for each in sets)
