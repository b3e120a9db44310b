"""Placement policies on simulated traces, as tables: ``python -m tests.bench.trace_gates``.

Every cell is a machine, a workload and a bandwidth model; all policies of a cell see the same
arrivals. The workloads are the built-in ones, so that the figures need no file from outside.
Everything is drawn from fixed seeds: the tables are the same on every run.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import exp, log
from random import Random

from msgspec import Struct

from nodetopo.allocation.rules import Model
from tests.bench.machines import bench_machine
from tests.bench.traces.contest import Contest
from tests.bench.traces.jobs import WORKLOADS, Step, poisson, schedule
from tests.bench.traces.outcome import Outcome, half_width

LOAD = 0.7
SEEDS = tuple(range(1, 11))
JOBS = 6_000

OURS = "best"
RIVALS = ("nvidia", "nvidia-sorted", "hami", "first-fit", "kubelet", "random")
POLICIES = (OURS, *RIVALS)
TRACES = ("philly", "helios-venus", "helios-saturn", "pai", "mixed")

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "mesh": ("dgx-1v", "dgx-1p"),
    "bridged": ("bridged-4numa", "issue-546"),
    "PCIe": ("pcie-10", "pcie-4numa"),
    "NVSwitch": ("dgx-a100", "hgx-h100"),
}


class Cell(Struct, frozen=True, order=True):
    """One comparison."""

    family: str
    machine: str
    trace: str
    model: Model = Model.RING


CELLS = tuple(
    Cell(family, machine, trace, model)
    for family, machines in FAMILIES.items()
    for model in ((Model.RING, Model.RELAY) if family == "mesh" else (Model.RING,))
    for machine in machines
    for trace in TRACES
)
"""The fifty. The relay model differs from the ring model on meshes alone."""


class Result(Struct, frozen=True):
    """What each policy did in one cell, seed by seed."""

    cell: Cell
    outcomes: Mapping[str, Sequence[Outcome]]

    def figure(self, policy: str, name: str) -> float:
        """Return the mean over the seeds of one figure of :class:`Outcome`."""
        return sum(self.figures(policy, name)) / len(self.outcomes[policy])

    def figures(self, policy: str, name: str) -> list[float]:
        """Return the figure seed by seed; every run has multi-GPU jobs, so it is known."""
        return [float(getattr(outcome, name)) for outcome in self.outcomes[policy]]

    def ratio(self, rival: str, name: str) -> float:
        """Return ours / the rival's."""
        return self.figure(OURS, name) / self.figure(rival, name)

    def gain(self, rival: str) -> tuple[float, float]:
        """Return how much more of the best bandwidth ours reaches: (mean, 95 % half-width)."""
        pairs = zip(
            self.figures(OURS, "mean_of_best"), self.figures(rival, "mean_of_best"), strict=True
        )
        gaps = [ours / theirs - 1 for ours, theirs in pairs]
        return self.ratio(rival, "mean_of_best") - 1, half_width(gaps) or 0.0


@cache
def steps(trace: str, gpus: int, seed: int, jobs: int) -> tuple[Step, ...]:
    """Return the schedule of one seed, the same for every machine of that many GPUs."""
    fitting = WORKLOADS[trace].fitting(gpus)
    assert fitting is not None
    source = Random(f"{seed} jobs")
    return schedule(poisson(fitting[0], count=jobs, gpus=gpus, load=LOAD, source=source), gpus)


def run(
    cell: Cell,
    *,
    policies: Sequence[str] = POLICIES,
    seeds: Sequence[int] = SEEDS,
    jobs: int = JOBS,
) -> Result:
    """Return what *policies* did in *cell*."""
    contest = Contest(bench_machine(cell.machine), policies, cell.model)
    gpus = contest.yardstick.gpus
    return Result(
        cell,
        {
            policy: [
                contest.run(policy, steps(cell.trace, gpus, seed, jobs), Random(f"{seed} {policy}"))
                for seed in seeds
            ]
            for policy in policies
        },
    )


def geomean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    logs = [log(value) for value in values]
    return exp(sum(logs) / len(logs))


def of(results: Iterable[Result], family: str, model: Model = Model.RING) -> list[Result]:
    """Return the results of one family of machines under one model."""
    return [one for one in results if (one.cell.family, one.cell.model) == (family, model)]


def split(results: Sequence[Result], policy: str) -> float:
    """Return the mean share of jobs that *policy* split over NUMA nodes."""
    return sum(result.figure(policy, "numa_split") for result in results) / len(results)


def cell_table(results: Sequence[Result]) -> Iterator[str]:
    """Yield a Markdown table with a line for each cell."""
    yield "| machine, trace, model | " + " | ".join(map(_short, reversed(POLICIES))) + " | gain |"
    yield "|---|" + "--:|" * (len(POLICIES) + 1)
    for result in results:
        cell = result.cell
        model = ", relay" if cell.model is Model.RELAY else ""
        cells = [
            f"{_points(result.figure(policy, 'mean_of_best'))} "
            f"({_points(result.figure(policy, 'numa_split'))})"
            for policy in reversed(POLICIES)
        ]
        gain, width = result.gain("nvidia")
        yield (
            f"| {cell.machine} {cell.trace}{model} | {' | '.join(cells)} "
            f"| {100 * gain:+.1f} ± {100 * width:.1f} % |"
        )


def ratio_table(results: Sequence[Result]) -> Iterator[str]:
    """Yield a Markdown table with a line for each rule that ours is compared with."""
    groups = {
        "mesh, ring": of(results, "mesh"),
        "mesh, relay": of(results, "mesh", Model.RELAY),
        **{family: of(results, family) for family in ("bridged", "PCIe", "NVSwitch")},
    }
    yield (
        f"| ours / | {' | '.join(groups)} | worst cell "
        f"| NUMA split: {', '.join(FAMILIES)} | crashes |"
    )
    yield "|---|" + "--:|" * (len(groups) + 3)
    for rival in RIVALS:
        ratios = [
            f"{geomean(one.ratio(rival, 'mean_gb_s') for one in group):.3f} "
            f"({geomean(one.ratio(rival, 'harmonic_gb_s') for one in group):.3f})"
            for group in groups.values()
        ]
        worst = min(result.gain(rival)[0] for result in results)
        splits = [
            "→".join(_points(split(of(results, family), one)) for one in (rival, OURS))
            for family in FAMILIES
        ]
        crashes = sum(run.crashes for result in results for run in result.outcomes[rival])
        yield (
            f"| {_short(rival)} | {' | '.join(ratios)} | {100 * worst:+.1f} % "
            f"| {', '.join(splits)} | {crashes} |"
        )


def _points(share: float) -> str:
    return "1" if share > 0.9995 else f"{share:.3f}"[1:]


def _short(policy: str) -> str:
    return "**ours**" if policy == OURS else policy


def main(say: Callable[[str], None] = print) -> None:
    """Print both tables; a word on standard error for each cell while it takes its time."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trace_gates", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"a seed (default: {JOBS})")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="default: 10")
    args = parser.parse_args()
    results = []
    for number, cell in enumerate(CELLS, 1):
        words = f"{cell.machine} {cell.trace} {cell.model.value}"
        print(f"{number}/{len(CELLS)} {words}", file=sys.stderr, flush=True)
        results.append(run(cell, seeds=range(1, args.seeds + 1), jobs=args.jobs))
    say("\n".join(cell_table(results)))
    say("")
    say("\n".join(ratio_table(results)))


if __name__ == "__main__":
    main()
