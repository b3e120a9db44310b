"""What an answer costs on irregular machines: ``python -m tests.bench.irregular``.

Three tables in Markdown, CPU time. The first is for every machine and policy: an answer over random
free sets and sizes, a fifth of them with required GPUs, once some were answered, and the first
answer of an allocator, the slowest over all sizes with all GPUs free, its construction included;
the quickest of three counts for each size. The second is the same for MIG devices and replicas. The
third is for each size, with all GPUs free, and with 12 beside NVIDIA's best-effort policy as this
project imitates it (:mod:`nodetopo.allocation.best_effort`), which takes no more.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from statistics import median, quantiles
from types import MappingProxyType

from nodetopo.allocation.allocator import Allocator, Chooser, preferred
from nodetopo.allocation.best_effort import LARGEST, BestEffort
from nodetopo.allocation.rules import Policy, Rules
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from tests.allocation import large_machines
from tests.bench.latency_rows import Asked, Row, requests, shared_on_irregular, switched, whole
from tests.bench.machines import dead, half_down, odd_box, random_box
from tests.bench.placement import duration

WARM_UP = 50
"""Requests before the timed ones."""

FIRST_ANSWERS = 3
"""Times that each size is asked first; the quickest counts."""


def _drawn(kind: large_machines.Kind, seed: int) -> Snapshot:
    return kind(Random(f"{kind.__name__} 16 {seed}"), 16)


MACHINES: Mapping[str, Callable[[], Snapshot]] = MappingProxyType(
    {
        "DGX-1V": partial(machine, "dgx-1v"),
        "mesh of 10": lambda: large_machines.mesh(Random("mesh 10 0"), 10),
        "DGX-2, a link down": lambda: half_down(machine("dgx-2"), 5, 1),
        "DGX-2, two links down, a GPU dead": lambda: dead(half_down(machine("dgx-2"), 5, 2), 11),
        "NVSwitch, 17 of 18 links": lambda: half_down(switched(16, 2), 5, 1),
        "PCIe, odd switches, bridges": partial(odd_box, is_even=True),
        "PCIe, and odd lanes": odd_box,
        "PCIe, random distances": random_box,
        **{
            f"random {kind.__name__} {seed}": partial(_drawn, kind, seed)
            for kind in (large_machines.crossed, large_machines.joined, large_machines.gaps)
            for seed in (1, 2)
        },
    }
)
"""By name; those drawn at random are the same in every run."""


def warm_and_cold(row: Row, number: int) -> tuple[float, float, float]:
    """Return p50 and p99 of later answers and the slowest first answer, nanoseconds."""
    sizes = range(1, len(row.ids) + 1)
    cold = max(min(_first(row, size) for _ in range(FIRST_ANSWERS)) for size in sizes)
    chooser = row.build()
    asked = requests(row.ids, WARM_UP + number, Random(6))
    found = [_cost(chooser, one) for one in asked][WARM_UP:]
    return median(found), quantiles(found, n=100)[-1], cold


def _first(row: Row, size: int) -> int:
    gc.collect()
    before = time.thread_time_ns()
    preferred(row.build(), row.ids, (), size)
    return time.thread_time_ns() - before


def _cost(chooser: Chooser, one: Asked) -> int:
    before = time.thread_time_ns()
    preferred(chooser, one.available, one.required, one.size)
    return time.thread_time_ns() - before


def policy_lines(number: int) -> Iterator[str]:
    """Yield the table of machines and policies."""
    yield "| machine | policy | p50 | p99 | first answer |"
    yield "|---|---|--:|--:|--:|"
    for name, build in MACHINES.items():
        for policy in Policy:
            row = whole(name, build(), Rules(policy=policy))
            cells = map(duration, warm_and_cold(row, number))
            yield f"| {name} | `{policy.value}` | {' | '.join(cells)} |"


def shared_lines(number: int) -> Iterator[str]:
    """Yield the table of MIG devices and replicas."""
    yield "| machine and devices | of them | p50 | p99 | first answer |"
    yield "|---|--:|--:|--:|--:|"
    for row in shared_on_irregular():
        cells = map(duration, warm_and_cold(row, number))
        yield f"| {row.name} | {len(row.ids)} | {' | '.join(cells)} |"


def size_lines(names: Sequence[str], number: int) -> Iterator[str]:
    """Yield the table of sizes, with all GPUs free and with as many as the peer can divide."""
    yield "| machine | GPUs | all free, p50 | p99 | 12 free, p50 | p99 | peer, p50 |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name in names:
        snapshot, random = MACHINES[name](), Random(6)
        allocator, peer = Allocator(snapshot), BestEffort(snapshot)
        ids = [gpu.id for gpu in snapshot.gpus]
        for one in requests(ids, WARM_UP, random):
            _cost(allocator, one)
        for size in range(1, len(ids) + 1):
            cells = _p50_p99(_cost(allocator, Asked(ids, (), size)) for _ in range(number))
            if size <= min(LARGEST, len(ids)):
                drawn = [random.sample(ids, min(LARGEST, len(ids))) for _ in range(number)]
                cells += _p50_p99(_cost(allocator, Asked(free, (), size)) for free in drawn)
                cells += _p50_p99(_cost_of_peer(peer, free, size) for free in drawn[:10])[:1]
            else:
                cells += ["-"] * 3
            yield f"| {name} | {size} | {' | '.join(cells)} |"


def _cost_of_peer(peer: BestEffort, free: Sequence[str], size: int) -> int:
    before = time.thread_time_ns()
    peer.allocate(free, (), size)
    return time.thread_time_ns() - before


def _p50_p99(costs: Iterable[int]) -> list[str]:
    found = list(costs)
    return [duration(median(found)), duration(quantiles(found, n=100)[-1])]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.irregular", description=__doc__)
    parser.add_argument("--requests", type=int, default=1000, help="timed, of each (default 1000)")
    options = parser.parse_args(arguments)
    for line in policy_lines(options.requests):
        print(line, flush=True)
    print()
    for line in shared_lines(options.requests):
        print(line, flush=True)
    print()
    sized = ("DGX-1V", "DGX-2, two links down, a GPU dead", "PCIe, and odd lanes")
    for line in size_lines(sized, options.requests // 5):
        print(line, flush=True)


if __name__ == "__main__":
    main()
