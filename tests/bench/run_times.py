"""What expected run times gain on traces: ``python -m tests.bench.run_times``.

The policy ``best`` with the true ends of running jobs, with noisy ones, and with none, on the same
arrivals. Everything is drawn from fixed seeds: the table is the same on every run.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

from nodetopo.tools.simulate.contest import EXPECTING
from nodetopo.tools.simulate.outcome import half_width
from tests.bench.trace_gates import JOBS, OURS, SEEDS, Cell, Result, run

NAMES = (OURS, *EXPECTING)

CELLS = tuple(
    Cell(family, machine, trace)
    for family, machine in (
        ("mesh", "dgx-1v"),
        ("mesh", "dgx-1p"),
        ("bridged", "bridged-4numa"),
        ("bridged", "issue-546"),
        ("PCIe", "pcie-4numa"),
        ("NVSwitch", "hgx-h100"),
    )
    for trace in ("philly", "helios-venus", "mixed")
)


def table(results: Sequence[Result]) -> Iterator[str]:
    """Yield a Markdown table with a line for each cell."""
    yield "| machine, trace | none | true | gain | noisy | gain | NUMA split: none → true, noisy |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for result in results:
        exact, noisy = (
            f"{gain(result, name)[0]:+.2f} ± {gain(result, name)[1]:.2f} %" for name in EXPECTING
        )
        shares = [_share(result.figure(name, "mean_of_best"), 4) for name in NAMES]
        splits = [_share(result.figure(name, "numa_split"), 3) for name in NAMES]
        yield (
            f"| {result.cell.machine} {result.cell.trace} | {shares[0]} | {shares[1]} | {exact} "
            f"| {shares[2]} | {noisy} | {splits[0]} → {splits[1]}, {splits[2]} |"
        )


def gain(result: Result, name: str) -> tuple[float, float]:
    """Return by how much *name* exceeds none in bandwidth of the best, %: mean, 95 % half-width."""
    pairs = zip(
        result.figures(name, "mean_of_best"), result.figures(OURS, "mean_of_best"), strict=True
    )
    gains = [100 * (with_ends / without - 1) for with_ends, without in pairs]
    return sum(gains) / len(gains), half_width(gains) or 0.0


def _share(share: float, digits: int) -> str:
    return "1" if share > 0.99995 else f"{share:.{digits}f}"[1:]


def main(say: Callable[[str], None] = print) -> None:
    """Print the table; a word on standard error for each cell while it takes its time."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.run_times", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"a seed (default: {JOBS})")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="default: 10")
    args = parser.parse_args()
    results = []
    for number, cell in enumerate(CELLS, 1):
        print(f"{number}/{len(CELLS)} {cell.machine} {cell.trace}", file=sys.stderr, flush=True)
        seeds = range(1, args.seeds + 1)
        results.append(run(cell, policies=NAMES, seeds=seeds, jobs=args.jobs))
    say("\n".join(table(results)))


if __name__ == "__main__":
    main()
