"""Which sets of GPUs are published, and that single GPUs stand in for the others."""

from itertools import combinations

import pytest

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.rules import Policy, Rules
from nodetopo.components.dra.choice import chain_sizes, chosen_sets, sizes
from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.sets import best_of
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot

MACHINES = (
    "dgx-h100",
    "dgx-a100",
    "dgx-1v",
    "rtxpro6000-pcie-8",
    "l40s-pcie-4",
    "h200-nvl-4",
    "ac922",
)


def chosen(
    snapshot: Snapshot, *wanted: int, room: int = 64, rules: Rules | None = None
) -> list[tuple[int, ...]]:
    allocator = Allocator(snapshot, rules or Rules())
    members = {gpu.id: gpu.numa_node for gpu in snapshot.gpus}
    order = {gpu.id: at for at, gpu in enumerate(snapshot.gpus)}
    found = chosen_sets(allocator, members, wanted, room)
    return [tuple(order[name] for name in ids) for ids in found]


@pytest.mark.parametrize(
    ("count", "wanted", "expected"),
    [
        (0, (), ()),
        (1, (), ()),
        (4, (), (2, 4)),
        (6, (), (2, 4, 6)),
        (8, (4, 2, 1, 16), (2, 4)),
    ],
)
def test_sizes_are_powers_of_two_and_all_unless_others_are_asked_for(
    count: int, wanted: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert sizes(count, wanted) == expected


def test_single_gpus_serve_the_usual_sizes_and_those_that_are_asked_for() -> None:
    assert chain_sizes(8, (3,)) == (1, 2, 3, 4, 8)
    assert chain_sizes(0) == ()


def test_sets_over_two_sockets_are_left_out_behind_nvswitch() -> None:
    found = chosen(machine("dgx-h100"))
    assert [len([it for it in found if len(it) == size]) for size in (1, 2, 4, 8)] == [0, 12, 2, 1]
    assert all(len({at // 4 for at in it}) == 1 for it in found if len(it) < 8)


@pytest.mark.parametrize("has_sets", [True, False], ids=["sets", "singles"])
@pytest.mark.parametrize("wanted", [(), (3,), (2, 6)])
@pytest.mark.parametrize("name", MACHINES)
def test_every_claim_gets_what_allocate_chooses(
    name: str, wanted: tuple[int, ...], has_sets: bool
) -> None:
    """For every state of use: a set, else the single GPUs with the mark, else the first of them."""
    snapshot = machine(name)
    pool = Pool.of(snapshot, snapshot.gpus, form=Form(has_sets=has_sets, sizes=wanted))
    ids = [gpu.id for gpu in snapshot.gpus]
    served = {1, *sizes(len(ids), wanted)} if has_sets else chain_sizes(len(ids), wanted)
    for count in range(1, len(ids) + 1):
        for free in combinations(ids, count):
            groups = {it.name: it for it in pool.groups({*ids} - {*free}, Conditions())}
            singles = groups["001-gpus"]
            for size in served:
                if size <= count:
                    sets = groups[f"{size:03d}-gpus"].able if has_sets and size > 1 else ()
                    marked = [
                        it["name"]
                        for it in singles.devices
                        if it["attributes"].get(f"best{size}") == {"bool": True}
                    ]
                    assert has_sets or len(marked) == size or size == len(ids)
                    devices = sets[:1] or marked or singles.able[:size]
                    got = {gpu for it in devices for gpu in pool.backings[it].gpus}
                    best = pool.allocator.allocate(available=free, size=size)
                    assert got == {*best.chosen}, (free, size)


def test_marks_keep_to_the_most_attributes_of_a_device() -> None:
    snapshot = machine("dgx-2")
    pool = Pool.of(snapshot, snapshot.gpus, form=Form(has_sets=False, sizes=tuple(range(1, 17))))
    (group,) = pool.groups((), Conditions())
    used = [len(it["attributes"]) + len(it["capacity"]) for it in group.devices]
    assert max(used) <= 32
    assert "best12" in group.devices[0]["attributes"]


def test_a_degraded_gpu_is_marked_last() -> None:
    snapshot = machine("dgx-h100")
    ids = [gpu.id for gpu in snapshot.gpus]
    marks = best_of(Allocator(snapshot), ids, (1, 4, 7), degraded=ids[:1])
    assert (ids[0],) not in marks
    assert marks[ids[4],] == (1, 4, 7) or marks[ids[1],] == (1, 7)


def test_a_machine_of_sixteen_gpus_has_each_gpu_in_one_set_of_each_size_at_least() -> None:
    found = chosen(machine("dgx-2"), room=32)
    assert len(found) == 32
    for size in (2, 4, 8, 16):
        covered = {at for it in found if len(it) == size for at in it}
        assert covered == set(range(16)), size
    assert {tuple(range(8)), tuple(range(8, 16))} <= set(found)


def test_where_hardly_anything_fits_the_largest_sets_do() -> None:
    assert chosen(machine("dgx-h100"), room=3) == [
        (0, 1, 2, 3),
        (4, 5, 6, 7),
        tuple(range(8)),
    ]
    assert chosen(machine("dgx-h100"), room=0) == []


@pytest.mark.parametrize("policy", Policy)
def test_every_policy_has_sets_of_each_size(policy: Policy) -> None:
    found = chosen(machine("dgx-h100"), rules=Rules(policy=policy))
    assert {len(it) for it in found} == {2, 4, 8}
