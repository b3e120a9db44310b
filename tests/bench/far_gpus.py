"""GPUs far from the only HCA, by the policy of jobs of one GPU: ``python -m tests.bench.far_gpus``.

A board of eight GPUs behind NVSwitches with one HCA, on the second socket. A job of one GPU that
takes a GPU near the HCA leaves the far ones to the next job of several, which has data to send.
*Near first* is the policy ``best`` with the terms of several GPUs for one GPU as well.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from nodetopo.allocation.engines import engine_for
from nodetopo.allocation.facts import Facts, facts
from nodetopo.allocation.masks import positions
from nodetopo.allocation.terms import Terms
from nodetopo.model.nvlink import Closeness
from tests.bench.machines import TWO_SOCKETS
from tests.bench.trace_gates import JOBS, SEEDS, steps
from tests.bench.traces.contest import Rival
from tests.bench.traces.jobs import Step
from tests.bench.traces.replay import Placer
from tests.bench.traces.rivals import RIVALS
from tests.strategies import node

TRACES = ("philly", "helios-venus", "mixed")
PEERS = ("nvidia", "nvidia-sorted", "hami", "kubelet")
GPUS = len(TWO_SOCKETS)

MACHINE = node(
    numa=TWO_SOCKETS,
    sockets={0: 0, 1: 1},
    switch_links=18,
    hcas=[
        {gpu: Closeness.NODE if place else Closeness.SYS for gpu, place in enumerate(TWO_SOCKETS)}
    ],
    hca_numa=[1],
)


class NearFirst(Terms):
    """The terms of several GPUs for requests of one as well."""

    def order(self, size: int) -> tuple[str, ...]:
        """Return the names of the terms."""
        return super().order(max(size, 2))


class Ours:
    """Our answers by *terms*."""

    crashes = 0

    def __init__(self, terms: Terms) -> None:
        self._engine = engine_for(terms)

    def place(self, free: int, size: int) -> int:
        """Return the best set."""
        return self._engine.best(free=free, required=0, size=size)


def shares(schedule: Sequence[Step], placer: Placer, known: Facts) -> tuple[float, float]:
    """Return the share of far GPUs and of jobs on two NUMA nodes.

    Both are of the jobs of two GPUs or more, but fewer than the machine has.
    """
    free, held = (1 << GPUS) - 1, dict[int, int]()
    far = taken = split = jobs = 0
    for _, job, size, is_start in schedule:
        if not is_start:
            free |= held.pop(job)
            continue
        held[job] = chosen = placer.place(free, size)
        free ^= chosen
        if 1 < size < GPUS:
            members = positions(chosen)
            far += sum(known.is_far[member] for member in members)
            split += len({known.numa[member] for member in members}) > 1
            taken, jobs = taken + size, jobs + 1
    return far / taken, split / jobs


def rows(trace: str, seeds: Sequence[int], jobs: int) -> list[tuple[str, float, float]]:
    """Return each policy with the means of :func:`shares` over the seeds."""
    known = facts(MACHINE)
    placers: dict[str, Callable[[int], Placer]] = {
        "near first": lambda _: Ours(NearFirst(known)),
        "**ours**": lambda _: Ours(Terms(known)),
        **{peer: partial(_peer, peer) for peer in PEERS},
    }
    found = []
    for name, placer in placers.items():
        runs = [shares(steps(trace, GPUS, seed, jobs), placer(seed), known) for seed in seeds]
        far, split = (sum(column) / len(runs) for column in zip(*runs, strict=True))
        found.append((name, far, split))
    return found


def _peer(name: str, seed: int) -> Placer:
    return Rival(RIVALS[name](MACHINE, Random(f"{seed} {name}")))


def main(say: Callable[[str], None] = print) -> None:
    """Print the table: far GPUs, and in brackets the jobs on two NUMA nodes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.far_gpus", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"a seed (default: {JOBS})")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="default: 10")
    args = parser.parse_args()
    say(f"| trace | near first | **ours** | {' | '.join(PEERS)} |")
    say("|---|" + "--:|" * (2 + len(PEERS)))
    for trace in TRACES:
        found = rows(trace, range(1, args.seeds + 1), args.jobs)
        cells = (f"{far:.3f} ({split:.3f})".replace("0.", ".") for _, far, split in found)
        say(f"| {trace} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
