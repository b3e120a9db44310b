"""Placement beside its peers: ``python -m tests.bench.placement``.

Two tables in Markdown: what one answer costs, and how good the sets are. The peer is NVIDIA's
real library in a Go program of ours, without the scan of the NVLinks that its device plugin
makes before each answer. Times are CPU times of one run; sets are the same on every run.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from tests.bench.machines import MACHINES
from tests.bench.peer import Peer
from tests.bench.placement_cost import Cost, costs
from tests.bench.placement_quality import Quality, qualities
from tests.bench.placement_states import states

SLOW = frozenset({3, 5, 6, 7, 13, 14, 15})
"""Sizes for which the peer needs 1 to 40 s of CPU with 16 GPUs free; only with ``--full``. Two
and four, with 2 to 6 s, are always measured."""

SEED = 5
"""Of the states that are drawn and of the orders of the lists."""

COST_HEAD = (
    "| GPUs | peer, all free | ours | ratio | peer, some free | ours | ratio "
    "| ours, p99 | first-fit | random |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)
QUALITY_HEAD = (
    "| machine | rule | below best bandwidth | mean of best | more NUMA nodes or sockets "
    "| one GPU breaks a group | crashes |\n|---|---|--:|--:|--:|--:|--:|"
)


def cost_rows(found: Iterable[Cost]) -> Iterator[str]:
    """Yield the lines of one machine's costs."""
    yield COST_HEAD
    for cost in found:
        cells = (
            str(cost.size),
            duration(cost.peer_all),
            duration(cost.ours_all),
            ratio(cost.peer_all, cost.ours_all),
            duration(cost.peer_any),
            duration(cost.ours_any),
            ratio(cost.peer_any, cost.ours_any),
            duration(cost.ours_p99),
            duration(cost.first_fit),
            duration(cost.random),
        )
        yield f"| {' | '.join(cells)} |"


def quality_rows(machine: str, found: Iterable[Quality]) -> Iterator[str]:
    """Yield the lines of one machine's sets."""
    for one in found:
        cells = (
            machine,
            one.rule,
            share(one.below, one.several),
            f"{one.of_best:.3f}",
            share(one.spread, one.several),
            share(one.breaking, one.single),
            str(one.crashes),
        )
        yield f"| {' | '.join(cells)} |"


def duration(ns: float | None) -> str:
    """Return CPU time with a unit; a dash where it was not measured."""
    if ns is None:
        return "-"
    for unit, factor in (("s", 1e9), ("ms", 1e6)):
        if ns >= factor:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns / 1e3:.3g} µs"


def ratio(theirs: float | None, ours: float) -> str:
    """Return how many times longer the peer takes."""
    if theirs is None:
        return "-"
    times = theirs / ours
    return f"{times:,.0f} x" if times >= 10 else f"{times:.2g} x"


def share(part: int, whole: int) -> str:
    """Return a percentage."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables; what is being measured goes to standard error."""
    options = _options(arguments)
    quality_lines = [QUALITY_HEAD]
    for number, name in enumerate(options.machine, 1):
        _say(f"{number}/{len(options.machine)} {name}")
        snapshot, random = MACHINES[name](), Random(SEED)
        asked = states(len(snapshot.gpus), options.states, random)
        is_slow = len(snapshot.gpus) > 12 and not options.full
        with Peer(snapshot) as peer:
            quality_lines += quality_rows(name, qualities(snapshot, peer, asked, random))
            found = costs(snapshot, peer, SLOW if is_slow else (), options.requests, random)
            print(f"\n{name}:\n")
            for line in cost_rows(_said(found)):
                print(line, flush=True)
    print("\n" + "\n".join(quality_lines))


def _said(found: Iterable[Cost]) -> Iterator[Cost]:
    for cost in found:
        _say(f"  size {cost.size}: {duration(cost.peer_all)} against {duration(cost.ours_all)}")
        yield cost


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.placement", description=__doc__)
    parser.add_argument(
        "--machine",
        action="append",
        choices=tuple(MACHINES),
        help="only this one; may be given several times (default: all)",
    )
    parser.add_argument("--full", action="store_true", help="ask the peer for all sizes of 16 GPUs")
    parser.add_argument(
        "--states",
        type=int,
        default=5000,
        help="states of a machine whose sets are compared, drawn if it has more: 8 GPUs have 769, "
        "10 have 4,097 (default 5000)",
    )
    parser.add_argument(
        "--requests", type=int, default=200, help="timed requests of each size (default 200)"
    )
    options = parser.parse_args(arguments)
    options.machine = options.machine or list(MACHINES)
    return options


if __name__ == "__main__":
    main()
