"""The promise of `docs/internals/placement.md` on expected run times, at a size fit for CI."""

from nodetopo.tools.simulate.contest import EXPECTING
from tests.bench.run_times import NAMES, gain, table
from tests.bench.trace_gates import Cell, run
from tests.budget import cases

MESH = Cell("mesh", "dgx-1v", "mixed")
SEEDS = range(1, cases(5, 10) + 1)


def test_known_ends_gain_on_a_mesh_and_the_table_says_so() -> None:
    result = run(MESH, policies=NAMES, seeds=SEEDS, jobs=2_000)
    known, guessed = (gain(result, name)[0] for name in EXPECTING)
    assert known > 0.5
    (line,) = list(table([result]))[2:]
    assert f"{known:+.2f}" in line
    assert f"{guessed:+.2f}" in line
