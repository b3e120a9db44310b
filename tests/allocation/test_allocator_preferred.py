from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from tests.budget import cases
from tests.strategies import machines, node

IDS = st.sampled_from([*(f"GPU-{n:08x}" for n in range(6)), "", "MIG-1", "GPU0", "\N{SNOWMAN}"])


@settings(max_examples=cases(80, 300), deadline=None)
@given(
    snapshot=st.one_of(machines(max_gpus=6), st.none()),
    lost=st.integers(0, 9),
    available=st.lists(IDS),
    required=st.lists(IDS),
    size=st.integers(-1, 9),
)
def test_whatever_is_asked_the_answer_has_the_right_size_and_the_required_ids(
    snapshot: object,
    lost: int,
    available: list[str],
    required: list[str],
    size: int,
) -> None:
    allocator = _allocator(snapshot, lost)
    answer = preferred(allocator, available, required, size)
    kept = set(required) & set(available)
    assert len(answer) == len(set(answer)) == max(0, min(size, len(set(available))))
    assert set(answer) <= set(available)
    assert kept <= set(answer) if len(kept) <= len(answer) else set(answer) <= kept
    assert preferred(allocator, available[::-1], required[::-1], size) == answer


def _allocator(snapshot: object, lost: int) -> Allocator | None:
    if not isinstance(snapshot, Snapshot):
        return None
    gpus = tuple(replace(gpu, is_lost=gpu.index == lost) for gpu in snapshot.gpus)
    return Allocator(replace(snapshot, gpus=gpus))


def test_the_preferred_set_is_the_allocated_set() -> None:
    snapshot = machine("dgx-1v")
    allocator = Allocator(snapshot)
    ids = [snapshot.gpus[i].id for i in (7, 5, 4, 2, 0)]
    answer = allocator.allocate(available=ids, required=[ids[1]], size=3)
    assert preferred(allocator, ids, [ids[1]], 3) == answer.chosen


def test_without_an_allocator_the_order_is_that_of_ids() -> None:
    assert preferred(None, ["c", "a", "b"], ["c"], 2) == ("c", "a")


def test_too_many_required_ids_are_cut_in_device_order() -> None:
    snapshot = node(numa=[0, 0, 0])
    ids = [gpu.id for gpu in snapshot.gpus]
    assert preferred(Allocator(snapshot), ids, ids[::-1], 2) == (ids[0], ids[1])


def test_ids_that_the_snapshot_does_not_know_are_used_last() -> None:
    snapshot = node(numa=[0, 0])
    ids = [gpu.id for gpu in snapshot.gpus]
    assert preferred(Allocator(snapshot), ["A-new-one", *ids], [], 2) == tuple(ids)


def test_a_lost_gpu_is_used_last() -> None:
    whole = node(numa=[0, 0])
    ids = [gpu.id for gpu in whole.gpus]
    snapshot = replace(whole, gpus=(replace(whole.gpus[0], is_lost=True), whole.gpus[1]))
    assert preferred(Allocator(snapshot), ids, [], 1) == (ids[1],)


def test_a_required_id_that_the_snapshot_does_not_know_takes_a_place() -> None:
    snapshot = node(numa=[0, 0])
    ids = [gpu.id for gpu in snapshot.gpus]
    assert preferred(Allocator(snapshot), [*ids, "A"], ["A"], 2) == (ids[0], "A")
