"""What sets are worth, on machines of which one knows."""

import pytest
from msgspec.structs import replace

from nodetopo.allocation.rules import Model
from nodetopo.machines.bundled import machine
from tests.bench.traces.yardstick import Yardstick
from tests.strategies import node


def _mask(*gpus: int) -> int:
    return sum(1 << gpu for gpu in gpus)


DGX_1V = Yardstick(machine("dgx-1v"))
BRIDGED = Yardstick(node(numa=(0, 0, 1, 1), links={(0, 2): 4, (1, 3): 4}))
PCIE = Yardstick(node(numa=(0, 0, 0, 0, 1, 1)))


def test_sets_of_a_dgx_1v_have_their_known_bandwidth() -> None:
    sets = ((0, 3), (0, 1), (0, 1, 2, 3), (0, 3, 4, 7))
    assert [DGX_1V.bandwidth(_mask(*one)) for one in sets] == [500, 250, 1000, 500]


def test_the_relay_model_lets_a_member_pass_data_on() -> None:
    chosen = _mask(0, 1, 2, 4)
    relay = Yardstick(machine("dgx-1v"), Model.RELAY)
    assert (DGX_1V.bandwidth(chosen), relay.bandwidth(chosen)) == (70, 500)


def test_the_best_set_is_sought_among_the_free_ones() -> None:
    assert DGX_1V.best(DGX_1V.everyone, 2) == 500
    assert DGX_1V.best(_mask(0, 1, 6), 2) == 250


@pytest.mark.parametrize(
    ("chosen", "numa", "nvlink"),
    [
        ((0, 1, 2, 3), False, False),
        ((0, 3, 4, 7), True, False),
        ((0, 5), True, True),
        ((0, 1, 2, 3, 4), False, False),  # five never fit one node of four
    ],
)
def test_a_set_is_split_where_it_spans_more_than_it_must(
    chosen: tuple[int, ...], *, numa: bool, nvlink: bool
) -> None:
    assert DGX_1V.splits(_mask(*chosen)) == (numa, nvlink)


def test_three_gpus_of_two_bridges_must_be_in_two_pieces() -> None:
    assert BRIDGED.splits(_mask(0, 1, 2)) == (False, False)
    assert BRIDGED.splits(_mask(0, 2)) == (True, False)
    assert BRIDGED.splits(_mask(0, 1)) == (False, True)


def test_a_chain_of_links_is_one_piece_whatever_its_order() -> None:
    chain = Yardstick(node(numa=(0, 0, 0, 0), links={(0, 3): 1, (0, 1): 1, (1, 2): 1}))
    sets = ((0, 1, 2, 3), (0, 1, 2), (1, 2, 3))
    assert [chain.splits(_mask(*one))[1] for one in sets] == [False, False, True]


def test_without_nvlink_nothing_is_split_over_it() -> None:
    assert PCIE.splits(_mask(0, 4)) == (True, False)


def test_a_gpu_of_unknown_place_is_a_node_of_its_own() -> None:
    unknown = Yardstick(node(numa=(0, 0, None, 1)))
    assert unknown.splits(_mask(0, 2))[0]
    assert not unknown.has_aligned(_mask(0, 2, 3), 2)


def test_alignment_asks_for_one_node_with_room() -> None:
    assert PCIE.has_aligned(_mask(0, 1, 4), 2)
    assert not PCIE.has_aligned(_mask(0, 4), 2)
    assert [PCIE.fits_node(size) for size in (4, 5)] == [True, False]


def test_an_empty_machine_is_not_fragmented() -> None:
    assert DGX_1V.fragmentation(DGX_1V.everyone) == 0


def test_fragmentation_is_the_mean_loss_over_the_sizes_that_are_free() -> None:
    # Four GPUs on two quads with one double link between: pairs are whole, a quad is half.
    assert DGX_1V.fragmentation(_mask(0, 3, 4, 7)) == pytest.approx((0 + 1 / 2) / 2)
    assert DGX_1V.fragmentation(_mask(0, 1)) == pytest.approx(1 / 2)


def test_a_full_machine_is_not_fragmented_but_full() -> None:
    assert DGX_1V.fragmentation(0) is None
    assert DGX_1V.fragmentation(_mask(3)) is None


def test_lost_gpus_are_not_handed_out() -> None:
    whole = machine("dgx-1v")
    gpus = tuple(replace(gpu, is_lost=gpu.index == 5) for gpu in whole.gpus)
    yardstick = Yardstick(replace(whole, gpus=gpus))
    assert (yardstick.gpus, yardstick.everyone) == (7, _mask(0, 1, 2, 3, 4, 6, 7))
