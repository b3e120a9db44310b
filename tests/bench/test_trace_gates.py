"""The promises of `docs/internals/traces.md` on placement in traces, at a size fit for CI.

The built-in workloads with a tenth of the jobs of the full table, and by night as many seeds.
The seeds are fixed. Cells are small, so a single one varies more than in the full table.
"""

import pytest

from nodetopo.allocation.rules import Model
from tests.bench.trace_gates import (
    CELLS,
    OURS,
    POLICIES,
    RIVALS,
    SEEDS,
    Cell,
    Result,
    geomean,
    of,
    run,
    split,
)
from tests.budget import cases

JOBS = 600
"""Jobs of each seed."""

SEEDS_USED = SEEDS[: cases(3, 10)]

NOISE = 0.01
"""By how much a single small cell moves with its seeds; in the full table no cell is worse."""


def _compared(cell: Cell) -> tuple[str, ...]:
    """Return the policies of a cell: all on meshes, else those that are not far behind."""
    if cell.model is Model.RELAY:
        return OURS, "nvidia"
    return POLICIES if cell.family == "mesh" else (OURS, "nvidia", "nvidia-sorted", "hami")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Return all fifty cells."""
    return [run(cell, policies=_compared(cell), seeds=SEEDS_USED, jobs=JOBS) for cell in CELLS]


def _overall(results: list[Result], rival: str, figure: str = "mean_gb_s") -> float:
    return geomean(result.ratio(rival, figure) for result in results)


def test_the_cells_are_fifty() -> None:
    assert len(set(CELLS)) == 50


def test_cube_mesh_jobs_get_a_fifth_more_bandwidth_than_nvidia_gives(
    results: list[Result],
) -> None:
    assert _overall(of(results, "mesh"), "nvidia") >= 1.20


def test_cube_mesh_jobs_move_their_data_a_third_faster_than_with_nvidia(
    results: list[Result],
) -> None:
    assert _overall(of(results, "mesh"), "nvidia", "harmonic_gb_s") >= 1.30


def test_the_gain_on_cube_meshes_holds_in_the_optimistic_model(results: list[Result]) -> None:
    assert _overall(of(results, "mesh", Model.RELAY), "nvidia") >= 1.08


def test_no_cell_is_worse_than_with_nvidia(results: list[Result]) -> None:
    worse = {result.cell: gain for result in results if (gain := result.gain("nvidia")[0]) < 0}
    assert {cell: gain for cell, gain in worse.items() if gain < -NOISE} == {}
    assert geomean(1 + result.gain("nvidia")[0] for result in results) > 1.05


@pytest.mark.parametrize(("family", "most"), [("bridged", 0.8), ("PCIe", 0.7), ("NVSwitch", 0.75)])
def test_fewer_jobs_are_split_over_numa_nodes(
    results: list[Result], family: str, most: float
) -> None:
    group = of(results, family)
    assert split(group, OURS) <= most * split(group, "nvidia")


def test_cube_mesh_jobs_come_nearer_to_the_best_set(results: list[Result]) -> None:
    assert _overall(of(results, "mesh"), "nvidia", "mean_of_best") >= 1.15


@pytest.mark.parametrize("rival", RIVALS)
def test_no_rule_gives_as_much_on_cube_meshes(results: list[Result], rival: str) -> None:
    assert _overall(of(results, "mesh"), rival) > 1.03


@pytest.mark.parametrize("rival", ["nvidia", "nvidia-sorted", "hami"])
def test_no_rule_gives_more_overall_or_splits_fewer(results: list[Result], rival: str) -> None:
    group = [result for result in results if result.cell.model is Model.RING]
    assert _overall(group, rival) >= 1
    assert _overall(group, rival, "harmonic_gb_s") >= 1
    assert split(group, OURS) < split(group, rival)


def test_our_choice_is_the_best_free_set_in_every_decision(results: list[Result]) -> None:
    assert {result.figure(OURS, "reached") for result in results} == {1.0}


def test_crashes_of_nvidia_are_counted_and_ours_has_none(results: list[Result]) -> None:
    crashes = {
        policy: sum(
            run.crashes for result in of(results, "PCIe") for run in result.outcomes[policy]
        )
        for policy in (OURS, "nvidia")
    }
    assert crashes[OURS] == 0
    assert crashes["nvidia"] > 0
