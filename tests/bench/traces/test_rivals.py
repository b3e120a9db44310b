from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from random import Random

import pytest
from msgspec.structs import replace

from nodetopo.allocation.best_effort import BestEffort
from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from tests.bench.machines import bench_machine, half_down
from tests.bench.traces.rivals import RIVALS, Chooser
from tests.strategies import node

PADDED = (0, 2, 4, 5, 6)
"""Free GPUs of a DGX A100 of which NVIDIA's policy cannot give three."""


def rival(name: str, snapshot: Snapshot, seed: int = 0) -> Chooser:
    return RIVALS[name](snapshot, Random(seed))


@pytest.mark.parametrize("name", RIVALS)
def test_every_rule_gives_as_many_free_gpus_as_asked_for(name: str) -> None:
    random, choose = Random(1), rival(name, machine("dgx-1v"))
    for _ in range(200):
        free = random.sample(range(8), random.randint(1, 8))
        size = random.randint(1, len(free))
        chosen = choose(free, size)
        assert len(set(chosen)) == len(chosen) == size
        assert set(chosen) <= set(free)


@pytest.mark.parametrize("name", RIVALS)
def test_a_rule_answers_the_same_to_a_list_in_another_order_with_the_same_seed(name: str) -> None:
    snapshot = machine("dgx-1v")
    answers = {
        tuple(sorted(rival(name, snapshot, seed=3)(order, 2)))
        for order in permutations((0, 3, 5, 6))
    }
    assert len(answers) == 1


def drawn(choose: Chooser, free: Sequence[int], size: int, times: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(sorted(choose(free, size))) for _ in range(times))


def test_first_fit_takes_the_lowest_numbers() -> None:
    assert rival("first-fit", machine("dgx-1v"))((7, 2, 5), 2) == (2, 5)


def test_random_takes_every_set_about_as_often() -> None:
    counts = drawn(rival("random", machine("dgx-1v")), (1, 3, 4, 6), 2, 6000)
    assert len(counts) == 6
    assert all(900 < count < 1100 for count in counts.values())


def test_the_kubelet_alone_takes_neighbours_by_number_where_there_are_up_to_eight() -> None:
    counts = drawn(rival("kubelet", machine("dgx-1v")), (1, 3, 4, 6), 2, 4000)
    assert set(counts) == {(1, 3), (3, 4), (4, 6), (1, 6)}


def test_the_kubelet_alone_takes_any_pair_of_ten() -> None:
    pairs = set()
    for seed in range(20):
        pairs |= set(drawn(rival("kubelet", bench_machine("pcie-10"), seed), (1, 3, 4, 6), 2, 20))
    assert len(pairs) == 6


def test_the_kubelet_offers_no_lost_gpu() -> None:
    snapshot = machine("dgx-1v")
    lost = replace(snapshot, gpus=(replace(snapshot.gpus[0], is_lost=True), *snapshot.gpus[1:]))
    assert set(rival("kubelet", lost)(range(1, 8), 7)) == set(range(1, 8))


def test_nvidia_in_the_kubelets_order_gives_the_first_gpu_of_a_rotation() -> None:
    counts = drawn(rival("nvidia", machine("dgx-1v")), (1, 3, 4, 6), 1, 4000)
    assert len(counts) == 4
    assert all(750 < count < 1250 for count in counts.values())


def test_nvidia_in_sorted_order_gives_the_first_gpu() -> None:
    assert rival("nvidia-sorted", machine("dgx-1v"))((6, 3, 1), 1) == (1,)


def test_nvidia_in_sorted_order_gives_what_its_policy_gives() -> None:
    snapshot = machine("dgx-1v")
    expected = BestEffort(snapshot).choose((0, 2, 4, 5), (), 2)
    assert rival("nvidia-sorted", snapshot)((5, 4, 2, 0), 2) == expected == (4, 5)


def test_a_device_that_does_not_exist_is_a_crash_and_becomes_the_kubelets_choice() -> None:
    choose = rival("nvidia-sorted", machine("dgx-a100"))
    counts = drawn(choose, PADDED, 3, 300)
    assert choose.crashes == 300
    assert set(counts) == {(0, 2, 4), (2, 4, 5), (4, 5, 6), (0, 5, 6), (0, 2, 6)}


def test_a_panic_is_a_crash_and_becomes_the_kubelets_choice() -> None:
    choose = rival("nvidia-sorted", half_down(bench_machine("issue-546"), gpu=0, links=12))
    assert len(drawn(choose, (0, 2, 3), 2, 100)) == 3
    assert choose.crashes == 100


def test_an_answer_without_padding_is_no_crash() -> None:
    choose = rival("nvidia", machine("dgx-a100"))
    drawn(choose, range(8), 4, 10)
    assert choose.crashes == 0


def test_hami_takes_the_set_with_the_most_points_of_all() -> None:
    assert rival("hami", machine("dgx-1v"))((0, 2, 4, 5), 2) == (0, 4)


def test_hami_takes_the_first_of_equal_sets() -> None:
    assert rival("hami", machine("dgx-h100"))((7, 6, 5, 1, 0), 2) == (0, 1)


def test_hami_counts_only_free_cards_for_a_single_one() -> None:
    snapshot = node(numa=[0, 0, 0, 0], links={(0, 1): 4})
    hami = rival("hami", snapshot)
    assert (hami((0, 2, 3), 1), hami((0, 1, 2), 1)) == ((0,), (2,))


def test_hami_gives_the_first_of_equal_single_cards() -> None:
    assert rival("hami", machine("dgx-h100"))((7, 6, 5, 1, 0), 1) == (0,)


def test_hami_gives_the_single_card_with_the_fewest_points_to_the_free_ones() -> None:
    snapshot = node(numa=[0, 0, 0], links={(0, 1): 1, (0, 2): 2, (1, 2): 1})
    hami = rival("hami", snapshot)
    assert (hami((0, 1, 2), 1), hami((0, 1, 2), 2), hami((0, 2), 1)) == ((1,), (0, 2), (0,))


@pytest.mark.parametrize("name", ["nvidia", "nvidia-sorted"])
def test_nvidia_is_refused_on_a_machine_that_its_policy_takes_seconds_for(name: str) -> None:
    with pytest.raises(InputError, match="16 GPUs"):
        rival(name, machine("dgx-2"))


def test_hami_is_refused_where_there_are_too_many_sets() -> None:
    with pytest.raises(InputError, match="20 GPUs"):
        rival("hami", node(numa=[0] * 20))
