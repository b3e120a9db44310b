"""The table of budgets: its form, and what of it is counted. Times are not tested."""

import pytest

from nodetopo.allocation.facts import facts
from nodetopo.allocation.terms import Terms
from nodetopo.machines.bundled import machine
from tests.bench.budgets import Line, api_server, irregular_resources, table, tokens
from tests.bench.machines import half_down, odd_box, random_box


def row(ours: float, *, peer: float | None = None, is_least: bool = False) -> Line:
    return Line(
        what="w", unit="ms", budget=2.0, ours=ours, peer=peer, is_least=is_least, method="m"
    )


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        (row(2.0), True),
        (row(2.1), False),
        (row(2.0, is_least=True), True),
        (row(1.9, is_least=True), False),
    ],
)
def test_a_budget_is_the_most_or_the_least(line: Line, *, is_kept: bool) -> None:
    assert line.is_kept is is_kept
    assert ("**over**" in line.cells()[2]) is not is_kept


def test_a_row_has_both_figures_and_their_ratio() -> None:
    lines = list(table(iter([row(1.0, peer=4.0), row(3.0)])))
    assert lines[2:] == [
        "| w | ≤ 2 ms | 1 | 4 | 0.25 | m |",
        "| w | ≤ 2 ms | 3 **over** | - | - | m |",
    ]
    assert {line.count("|") for line in lines} == {7}


def test_whole_gpus_mig_devices_and_replicas_of_irregular_machines_have_a_budget() -> None:
    found = [(row.name.rpartition(", ")[2], most) for row, most in irregular_resources()]
    assert {*found} == {
        ("16 GPUs", 0.5),
        ("4 replicas", 1.0),
        ("10 replicas", 1.0),
        ("MIG 1g of 7", 1.0),
    }
    machines = (odd_box(), random_box(), half_down(machine("dgx-2"), 5, 1))
    assert [Terms(facts(snapshot)).tree for snapshot in machines] == [None, None, None]


def test_the_tokens_of_a_large_pool_have_a_budget() -> None:
    assert [(line.what, line.budget) for line in tokens(2)] == [
        ("1 of an RDMA pool of 8,000, p99", 1.0),
        ("8 of an RDMA pool of 8,000, p99", 1.0),
    ]


def test_what_is_counted_keeps_its_budget() -> None:
    found = list(api_server())
    assert [line.what for line in found] == [
        "writes in a steady hour",
        "reads in a steady hour",
        "writes of 1,000 restarts, labels identical",
    ]
    assert all(line.is_kept for line in found), found
