import pytest
from msgspec.structs import replace

from nodetopo.allocation.best_effort import BestEffort, PeerPanics, divisions, pair_scores, plan
from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine
from nodetopo.model.nvlink import ReportedPair
from nodetopo.model.snapshot import Snapshot
from tests.bench.machines import bench_machine, half_down
from tests.strategies import node


def choose(snapshot: Snapshot, free: tuple[int, ...], size: int) -> tuple[int | None, ...]:
    return BestEffort(snapshot).choose(free, (), size)


def test_it_hands_out_the_best_set_of_the_best_division_and_not_the_best_set() -> None:
    assert choose(machine("dgx-1v"), (0, 2, 4, 5), 2) == (4, 5)


def test_one_gpu_is_the_first_of_the_list() -> None:
    assert choose(machine("dgx-1v"), (5, 0, 3), 1) == (5,)


def test_its_answer_depends_on_the_order_of_the_list() -> None:
    snapshot = machine("dgx-h100")
    assert choose(snapshot, (0, 1, 2, 3), 2) == (0, 1)
    assert choose(snapshot, (2, 0, 3, 1), 2) == (2, 0)


def test_it_hands_out_padding_where_the_odd_set_out_has_the_most_points() -> None:
    assert choose(machine("dgx-a100"), (0, 2, 4, 5, 6), 3) == (4, 5, None)


def test_a_required_gpu_is_kept_and_padding_is_not_handed_out_with_it() -> None:
    snapshot = machine("dgx-a100")
    ids = [gpu.id for gpu in snapshot.gpus]
    answer = BestEffort(snapshot).allocate([ids[i] for i in (0, 2, 4, 5, 6)], [ids[5]], 3)
    assert answer == (ids[4], ids[5], ids[6])


@pytest.mark.parametrize(
    ("free", "required", "size"),
    [
        ((0, 1), (), 0),
        ((0, 1), (), 3),
        ((0, 1, 2), (0, 1), 1),
        ((0, 1, 2), (3,), 2),
        ((), (), 1),
    ],
)
def test_what_it_cannot_meet_it_answers_with_nothing(
    free: tuple[int, ...], required: tuple[int, ...], size: int
) -> None:
    assert BestEffort(machine("dgx-1v")).choose(free, required, size) == ()


def test_it_sees_no_nvlinks_through_nvswitches() -> None:
    assert pair_scores(machine("dgx-h100"))[0][1:5] == (20, 20, 20, 10)


def test_it_counts_nvlinks_between_gpus_on_top_of_the_pcie_distance() -> None:
    assert pair_scores(machine("dgx-1v"))[0][1:5] == (150, 130, 230, 210)


def test_links_that_a_text_counts_are_seen_from_both_ends() -> None:
    pair = ReportedPair(a="GPU0", b="GPU1", nvlinks=4)
    snapshot = replace(node(numa=[0, 0]), nvlinks=None, pairs=(pair,))
    assert pair_scores(snapshot)[0][1] == pair_scores(snapshot)[1][0] == 410


def test_more_links_than_it_can_count_are_eighteen() -> None:
    assert pair_scores(node(numa=[0, 0], links={(0, 1): 20}))[0][1] == 1820


def test_it_panics_where_a_link_is_up_at_one_end_only() -> None:
    snapshot = half_down(bench_machine("issue-546"), gpu=0, links=12)
    with pytest.raises(PeerPanics, match="counts none back"):
        choose(snapshot, (0, 1, 2), 2)
    with pytest.raises(PeerPanics):
        choose(snapshot, (0, 2), 2)
    assert choose(snapshot, (0, 1, 3), 2) == (1, 3)


def test_with_unequal_counts_the_order_of_the_list_decides() -> None:
    snapshot = half_down(bench_machine("issue-546"), gpu=2, links=6)
    scores = pair_scores(snapshot)
    assert (scores[0][2], scores[2][0]) == (1210, 610)


def test_more_gpus_than_it_can_divide_in_time_are_refused_with_the_reason() -> None:
    snapshot = machine("dgx-2")
    ids = [gpu.id for gpu in snapshot.gpus]
    policy = BestEffort(snapshot)
    with pytest.raises(InputError, match=r"2 of 16 free GPUs.* 2,027,025 divisions"):
        policy.allocate(ids, [], 2)
    assert len(policy.allocate(ids[:12], [], 6)) == 6
    assert policy.allocate(ids, [], 16) == tuple(ids)


def test_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(InputError, match="unknown GPU"):
        BestEffort(machine("dgx-1v")).allocate(["GPU-none"], [], 1)


@pytest.mark.parametrize(("count", "size"), [(8, 2), (8, 3), (8, 4), (7, 3), (9, 4), (10, 6)])
def test_the_plan_holds_every_division_once(count: int, size: int) -> None:
    options = dict(plan(count, size, 0).steps)

    def ways(rest: int) -> int:
        return 1 if rest == 0 else sum(ways(left) for _, left in options[rest])

    assert ways(plan(count, size, 0).whole) == divisions(count, size)
