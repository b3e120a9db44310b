"""Which HCAs and GPUs are matched, against a search of all possibilities."""

from itertools import combinations, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.model.codec import decode
from nodetopo.model.nvlink import Closeness
from nodetopo.rdma.pairing import Pairing, assign

NODES = Path(__file__).parents[1] / "nodes"
SHAPES = (
    "h100x8-nvswitch-2numa-8cx7",
    "a100x8-nvswitch-8numa-10cx6",
    "v100x8-cubemesh-2numa-4cx4",
    "h200x8-nvswitch-2numa-10roce",
    "gb200x4-nvl72-34numa-4cx7",
)


def pairing(shape: str) -> Pairing:
    snapshot = decode((NODES / shape / "snapshot.json").read_text("utf-8")).snapshot
    return Pairing(snapshot=snapshot)


@given(
    st.integers(1, 5).flatmap(
        lambda rows: st.lists(
            st.lists(st.integers(0, 2**70), min_size=6, max_size=6), min_size=rows, max_size=rows
        )
    )
)
def test_an_assignment_costs_the_least(costs: list[list[int]]) -> None:
    columns = assign(costs)
    assert len(set(columns)) == len(costs)
    least = min(
        sum(row[column] for row, column in zip(costs, chosen, strict=True))
        for chosen in permutations(range(6), len(costs))
    )
    assert sum(row[column] for row, column in zip(costs, columns, strict=True)) == least


def test_more_rows_than_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rows do not fit into 1"):
        assign([[1], [1]])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_no_other_hcas_are_nearer(shape: str, size: int) -> None:
    node = pairing(shape)
    hcas = range(len(node.snapshot.hcas or ()))
    for gpus in combinations(range(len(node.snapshot.gpus)), 2):
        chosen = node.hcas_for(gpus, hcas, size)
        assert len(set(chosen)) == min(size, len(hcas))
        best = min(node.distance(gpus, other) for other in combinations(hcas, len(chosen)))
        assert node.distance(gpus, chosen) == best, (gpus, chosen)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_no_other_gpus_are_nearer(shape: str, size: int) -> None:
    node = pairing(shape)
    gpus = range(len(node.snapshot.gpus))
    for hcas in combinations(range(len(node.snapshot.hcas or ())), 2):
        chosen = node.gpus_for(hcas, gpus, size)
        assert len(set(chosen)) == min(size, len(gpus))
        best = min(node.distance(other, hcas) for other in combinations(gpus, len(chosen)))
        assert node.distance(chosen, hcas) == best, (hcas, chosen)


def test_each_gpu_of_an_hgx_board_gets_its_own_hca() -> None:
    node = pairing("h100x8-nvswitch-2numa-8cx7")
    pairs = node.matched(range(8), range(8))
    assert [pair.gpu for pair in pairs] == list(range(8))
    assert len({pair.hca for pair in pairs}) == 8
    assert {pair.closeness for pair in pairs} <= {Closeness.PIX, Closeness.PXB}


def test_four_gpus_share_two_hcas_evenly() -> None:
    pairs = pairing("h100x8-nvswitch-2numa-8cx7").matched(range(4), [0, 1])
    assert sorted(pair.hca for pair in pairs) == [0, 0, 1, 1]


def test_of_equally_near_hcas_the_one_on_the_rail_is_taken_then_the_least_used() -> None:
    node = pairing("gb200x4-nvl72-34numa-4cx7")
    near = {
        hca
        for (gpu, hca), level in node.closeness.items()
        if gpu == 0
        and level <= min(level for (other, _), level in node.closeness.items() if other == 0)
    }
    assert len(near) > 1
    (rail,) = node.hcas_for([0], sorted(near), 1)
    assert node.hcas_for([0], sorted(near), 1, {rail: 7}) == (rail,)
    assert node.hcas_for([], sorted(near), 1, {min(near): 3}) != (min(near),)


def test_without_hcas_or_gpus_nothing_is_matched() -> None:
    node = pairing("h100x8-nvswitch-2numa-8cx7")
    assert node.matched([], [0]) == node.matched([0], []) == ()
    assert node.hcas_for([0], [], 2) == ()
    assert node.gpus_for([0], [], 2) == ()
    assert node.gpus_for([], [3, 1], 1) == (3,)
