"""That the comparison runs, and the counts that `docs/internals/figures.md` states; never times."""

from random import Random

import pytest

from tests.bench.machines import MACHINES, bench_machine
from tests.bench.peer import Peer
from tests.bench.placement import duration, main, ratio
from tests.bench.placement_quality import SORTED, Quality, qualities
from tests.bench.placement_states import MOST_FREE, states
from tests.budget import cases

STATES = cases(200, 1000)
"""The page counts a thousand; NVIDIA's own program takes seconds for them."""


def of_nvidia(name: str) -> Quality:
    snapshot = bench_machine(name)
    with Peer(snapshot) as peer:
        asked = states(len(snapshot.gpus), STATES, Random(0))
        found = {one.rule: one for one in qualities(snapshot, peer, asked, Random(0))}
    return found[SORTED]


def test_nvidia_misses_the_best_bandwidth_in_some_cube_mesh_states() -> None:
    found = of_nvidia("dgx-1v")
    counts = (found.several, found.below, round(found.of_best, 3), found.crashes)
    assert counts == {200: (127, 27, 0.837, 0), 1000: (522, 68, 0.900, 0)}[STATES]


def test_on_a_switched_machine_the_peer_spreads_sets_and_crashes() -> None:
    found = of_nvidia("dgx-a100")
    counts = (found.several, found.below, found.crashes, found.spread)
    assert counts == {200: (127 - 1, 0, 1, 17), 1000: (522 - 16, 0, 16, 80)}[STATES]


def test_the_bench_prints_a_row_for_every_size_and_every_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--machine", "pcie-10", "--states", "20", "--requests", "2"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    sizes = [row.split("|")[1].strip() for row in rows if "µs" in row]
    assert sizes == [str(size) for size in range(1, 11)]
    assert [row for row in rows if row.startswith("| pcie-10 |")] == rows[-6:]


def test_states_are_all_there_are_or_drawn() -> None:
    every, drawn = states(8, 769, Random(0)), states(8, 768, Random(0)) + states(16, 5, Random(0))
    assert (len(set(every)), len(drawn)) == (769, 773)
    assert set(drawn[:768]) < set(every)
    assert all(state.size < len(state.free) <= MOST_FREE for state in drawn)


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_of_the_bench_is_built_once(name: str) -> None:
    assert bench_machine(name) is bench_machine(name)


def test_figures_are_printed_with_units() -> None:
    assert [duration(ns) for ns in (None, 1_234.0, 2_500_000.0, 2.3e9)] == [
        "-",
        "1.23 µs",
        "2.5 ms",
        "2.3 s",
    ]
    assert (ratio(None, 1.0), ratio(3.0, 2.0), ratio(24_000.0, 2.0)) == ("-", "1.5 x", "12,000 x")
