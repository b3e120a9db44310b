"""The table of budgets: its form, and what of it is counted. Times are not tested."""

import pytest

from tests.bench.budgets import Line, api_server, table


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


def test_what_is_counted_keeps_its_budget() -> None:
    found = list(api_server())
    assert [line.what for line in found] == [
        "writes in a steady hour",
        "reads in a steady hour",
        "writes of 1,000 restarts, labels identical",
    ]
    assert all(line.is_kept for line in found), found
