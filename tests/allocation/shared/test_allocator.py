"""Requests for MIG instances and replicas: what every answer keeps, and what decides."""

from collections import Counter
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.allocation.allocator import preferred
from nodetopo.allocation.rules import Policy, Rules
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.allocation.shared.terms import SharedScore
from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Mig, MigInstance, MigPlacement
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from tests.allocation.shared_requests import BEST, H100, PACKED, free, replicas
from tests.budget import cases
from tests.strategies import machines, node

# --- what every answer keeps -------------------------------------------------------------------

NAMES = st.sampled_from([*(f"GPU-{g:08x}::{n}" for g in range(5) for n in (0, 1, 2, 10)), "", "x"])


@settings(max_examples=cases(80, 300), deadline=None)
@given(
    snapshot=machines(max_gpus=5),
    lost=st.integers(0, 9),
    available=st.lists(NAMES),
    required=st.lists(NAMES),
    size=st.integers(-1, 12),
    policy=st.sampled_from(Policy),
    spread=st.booleans(),
)
def test_every_answer_has_the_right_size_and_the_required_devices(
    *,
    snapshot: Snapshot,
    lost: int,
    available: list[str],
    required: list[str],
    size: int,
    policy: Policy,
    spread: bool,
) -> None:
    gpus = tuple(replace(gpu, is_lost=gpu.index == lost) for gpu in snapshot.gpus)
    devices = {f"GPU-{g:08x}::{n}": f"GPU-{g:08x}" for g in range(5) for n in (0, 1, 2, 10)}
    allocator = SharedAllocator(
        replace(snapshot, gpus=gpus), devices, Rules(policy=policy), spread=spread
    )
    answer = preferred(allocator, available, required, size)
    kept = set(required) & set(available)
    assert len(answer) == len(set(answer)) == max(0, min(size, len(set(available))))
    assert set(answer) <= set(available)
    assert kept <= set(answer) if len(kept) <= len(answer) else set(answer) <= kept
    assert preferred(allocator, available[::-1], required[::-1], size) == answer


@pytest.mark.parametrize("policy", Policy)
def test_answers_do_not_depend_on_the_order_of_lists_or_on_names(policy: Policy) -> None:
    random, snapshot = Random(policy), machine("dgx-1v")
    gpus = tuple(replace(gpu, uuid=f"Z{90 - gpu.index}") for gpu in snapshot.gpus)
    renamed = replace(snapshot, gpus=gpus)
    new = {gpu.id: other.id for gpu, other in zip(snapshot.gpus, gpus, strict=True)}
    plain = list(replicas(snapshot, 3).items())
    random.shuffle(plain)
    ours = SharedAllocator(snapshot, dict(plain), Rules(policy=policy), spread=True)
    theirs = SharedAllocator(renamed, replicas(renamed, 3), Rules(policy=policy), spread=True)
    for _ in range(60):
        available = random.sample(sorted(replicas(snapshot, 3)), random.randint(1, 24))
        size = random.randint(1, len(available))
        answer = ours.best(available, available[:1], size)
        assert ours.best(sorted(available), available[:1], size) == answer
        parts = [name.split("::") for name in (*available, available[0])]
        names = [f"{new[gpu]}::{n}" for gpu, n in parts]
        other = theirs.best(names[:-1], names[-1:], size)
        assert [(new[g], n) for g, n in (name.split("::") for name in answer)] == [
            (g, n) for g, n in (name.split("::") for name in other)
        ]


def test_distributed_loads_gpus_as_little_as_nvidias_pick_by_pick() -> None:
    random, names = Random(1), replicas(H100, 5)
    allocator = SharedAllocator(H100, names, BEST, spread=True)
    for _ in range(200):
        available = random.sample(sorted(names), random.randint(1, 40))
        size = random.randint(1, len(available))
        score = allocator.allocate(available=available, size=size).score
        assert isinstance(score, SharedScore)
        left = Counter(names[name] for name in available)
        joined = 0
        for _ in range(size):
            gpu = max(left, key=lambda gpu: left[gpu])  # all have five: the least allocated
            joined += 5 - left[gpu]
            left[gpu] -= 1
        assert score.load == joined


def test_the_preferred_devices_are_the_allocated_ones() -> None:
    allocator = SharedAllocator(H100, replicas(H100, 4), BEST, spread=True)
    names = free(H100, 4, (2, 4, 4, 1, 0, 3, 3, 3))
    answer = allocator.allocate(available=names, required=names[3:4], size=5)
    assert preferred(allocator, names, names[3:4], 5) == answer.chosen


# --- which devices of a GPU --------------------------------------------------------------------


def test_replicas_are_taken_by_number_and_required_ones_kept() -> None:
    snapshot = node(numa=[0])
    allocator = SharedAllocator(snapshot, replicas(snapshot, 12), PACKED, spread=True)
    names = [f"{snapshot.gpus[0].id}::{n}" for n in (11, 10, 9, 2, 5)]
    assert allocator.best(names, names[:1], 3) == (names[3], names[4], names[0])


def test_mig_instances_are_taken_by_place() -> None:
    starts = {"MIG-c": 0, "MIG-a": 4, "MIG-b": 2}
    instances = tuple(
        MigInstance(uuid=uuid, placement=MigPlacement(start=start, size=2))
        for uuid, start in starts.items()
    )
    plain = node(numa=[0])
    gpu = replace(plain.gpus[0], mig=Mig(is_enabled=True, instances=instances))
    snapshot = replace(plain, gpus=(gpu,))
    allocator = SharedAllocator(snapshot, dict.fromkeys(starts, gpu.id), BEST, spread=False)
    assert allocator.best(list(starts), [], 2) == ("MIG-c", "MIG-b")
    assert sorted(starts, key=allocator.rank) == ["MIG-c", "MIG-b", "MIG-a"]


def test_devices_of_lost_or_absent_gpus_are_taken_last() -> None:
    plain = node(numa=[0, 0])
    snapshot = replace(plain, gpus=(replace(plain.gpus[0], is_lost=True), plain.gpus[1]))
    names = [*replicas(snapshot, 1), "GPU-gone::0"]
    devices = {name: name.split("::")[0] for name in names}
    allocator = SharedAllocator(snapshot, devices, BEST, spread=True)
    assert [allocator.knows(name) for name in names] == [False, True, False]
    assert preferred(allocator, names, [], 1) == (names[1],)
    assert preferred(allocator, names, [], 2) == (names[0], names[1])


# --- what decides ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "spread", "gpus"),
    [
        (Policy.BEST, True, (0, 1)),
        (Policy.BEST, False, (0,)),
        (Policy.NUMA_FIRST, True, (0, 1)),
        (Policy.NIC_REQUIRED, False, (0,)),
        (Policy.PACKED, True, (0,)),
        (Policy.DISTRIBUTED, False, (0, 1)),
    ],
)
def test_the_resource_or_the_policy_says_whether_to_spread(
    policy: Policy, gpus: tuple[int, ...], *, spread: bool
) -> None:
    names = replicas(H100, 4)
    allocator = SharedAllocator(H100, names, Rules(policy=policy), spread=spread)
    assert allocator.allocate(available=list(names), size=2).indices == gpus


def test_two_replicas_of_one_gpu_have_no_bandwidth() -> None:
    names = replicas(H100, 4)
    score = (
        SharedAllocator(H100, names, PACKED, spread=True).allocate(available=names, size=2).score
    )
    assert (score.bandwidth_gb_s, score.pair_bandwidth_gb_s) == (None, 0.0)


def test_replicas_on_two_gpus_go_to_the_best_linked_pair() -> None:
    cube = machine("dgx-1v")
    allocator = SharedAllocator(cube, replicas(cube, 2), BEST, spread=True)
    assert allocator.allocate(
        available=free(cube, 2, (2, 0, 2, 0, 2, 2, 0, 0)), size=2
    ).indices == (
        0,
        4,
    )


def test_numa_first_moves_numa_before_bandwidth_but_not_before_load() -> None:
    snapshot = node(numa=[0, 1, 0], links={(0, 1): 4})
    for policy, gpus in ((Policy.BEST, (0, 1)), (Policy.NUMA_FIRST, (0, 2))):
        allocator = SharedAllocator(
            snapshot, replicas(snapshot, 2), Rules(policy=policy), spread=True
        )
        assert allocator.allocate(available=free(snapshot, 2, (2, 2, 2)), size=2).indices == gpus
        assert allocator.allocate(available=free(snapshot, 2, (2, 2, 1)), size=2).indices == (0, 1)


def test_a_pair_within_a_larger_numa_node_is_worth_as_much_as_one_that_is_the_node() -> None:
    near = {(0, 1): Closeness.PIX, (3, 4): Closeness.PIX}
    pairs = combinations(range(5), 2)
    distances = {pair: near.get(pair, Closeness.SYS) for pair in pairs}
    for numa, gpus in (([0, 0, 1, 1, 1], (0, 1)), ([0, 0, 0, 1, 1], (0, 1))):
        snapshot = node(numa=numa, distances=distances)
        allocator = SharedAllocator(snapshot, replicas(snapshot, 2), BEST, spread=True)
        answer = allocator.allocate(available=list(replicas(snapshot, 2)), size=2)
        assert (answer.indices, answer.alternatives[0].lost_at) == (gpus, "order")


def test_a_gpu_of_unknown_hcas_counts_as_one_that_shares() -> None:
    snapshot = node(numa=[0, 0], hcas=[{1: Closeness.SYS}])
    allocator = SharedAllocator(snapshot, replicas(snapshot, 2), BEST, spread=True)
    answer = allocator.allocate(available=list(replicas(snapshot, 2)), size=1)
    assert (answer.indices, answer.alternatives[0].lost_at) == ((1,), "rail_loss")


def test_packing_uses_gpus_in_use_and_leaves_the_least() -> None:
    allocator = SharedAllocator(H100, replicas(H100, 4), BEST, spread=False)
    names = free(H100, 4, (4, 3, 2, 4, 4, 4, 4, 4))
    assert allocator.allocate(available=names, size=2).indices == (2,)
    assert allocator.allocate(available=names, size=3).indices == (1,)
    assert allocator.allocate(available=names, size=4).indices == (0,)


@pytest.mark.parametrize(
    ("available", "required", "size", "message"),
    [
        ([0], [], 0, "cannot allocate 0 devices — ask for at least 1"),
        ([0, 1], [], 3, "cannot allocate 3 devices: only 2 are available — ask for at most 2"),
        ([], [], 1, "cannot allocate 1 device: none is available — free a device first"),
        ([0, 1], [0, 1], 1, "cannot allocate 1 device that contains 2 required"),
        ([0], [1], 1, "required but not available: GPU-00000000::1"),
        ([9], [], 1, "unknown device 'GPU-00000000::9' — the resource has 4 others"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_with_a_cure(
    available: list[int], required: list[int], size: int, message: str
) -> None:
    snapshot = node(numa=[0])
    allocator = SharedAllocator(snapshot, replicas(snapshot, 4), spread=True)
    with pytest.raises(InputError) as caught:
        allocator.allocate(
            available=[f"GPU-00000000::{n}" for n in available],
            required=[f"GPU-00000000::{n}" for n in required],
            size=size,
        )
    assert str(caught.value).startswith(message)


def test_required_replicas_of_one_gpu_are_in_every_alternative() -> None:
    snapshot = machine("dgx-1v")
    names = replicas(snapshot, 2)
    by_gpu = [[name for name, owner in names.items() if owner == gpu.id] for gpu in snapshot.gpus]
    kept = by_gpu[4]
    free_names = [by_gpu[0][0], by_gpu[5][0], by_gpu[6][0], *kept]
    answer = SharedAllocator(snapshot, names, PACKED, spread=True).allocate(
        available=free_names, required=kept, size=4
    )
    sets = [set(answer.chosen), *(set(other.chosen) for other in answer.alternatives)]
    assert [len(found) for found in sets] == [4, 4, 4]
    assert all(found >= set(kept) for found in sets)
    assert len({frozenset(found) for found in sets}) == 3
