"""What an answer costs on irregular machines: ``python -m tests.bench.irregular``.

Two tables in Markdown, CPU time. The first is for every machine and policy: an answer over random
free sets and sizes, a fifth of them with required GPUs, once some were answered, and the first
answer of an allocator, the slowest over all sizes with all GPUs free, its construction included.
The second is for each size, with all GPUs free, and with 12 beside NVIDIA's best-effort policy as
this project imitates it (:mod:`nodetopo.allocation.best_effort`), which takes no more.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from random import Random
from statistics import median, quantiles
from types import MappingProxyType

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.allocation.best_effort import LARGEST, BestEffort
from nodetopo.allocation.rules import Policy, Rules
from nodetopo.machines.bundled import machine
from nodetopo.model.nvlink import Closeness, NvLink
from nodetopo.model.snapshot import Snapshot
from tests.allocation import large_machines
from tests.bench.latency_rows import Asked, requests
from tests.bench.machines import half_down
from tests.bench.placement import duration
from tests.strategies import node

WARM_UP = 50
"""Requests before the timed ones."""


def dead(snapshot: Snapshot, gpu: int) -> Snapshot:
    """Return the machine with all NVLinks of *gpu* down, at both ends."""

    def after(link: NvLink) -> NvLink:
        return replace(link, is_active=False) if link.gpu == gpu else link

    return replace(snapshot, nvlinks=tuple(map(after, snapshot.nvlinks or ())))


def odd_box(*, is_even: bool = False) -> Snapshot:
    """Return a PCIe box of 16: ten GPUs on one socket, six on the other, switches of 1 to 4.

    Two bridges join GPUs of different switches, one of them over the sockets. Unless *is_even*,
    some cards have half the lanes and one is of the generation before.
    """
    numa = [0] * 10 + [1] * 6
    switches = ((0, 1, 2, 3), (4, 5, 6), (7, 8), (9,), (10, 11, 12), (13, 14), (15,))
    shared = [pair for switch in switches for pair in combinations(switch, 2)]
    near = {
        (a, b): Closeness.NODE if numa[a] == numa[b] else Closeness.SYS
        for a, b in combinations(range(16), 2)
    }
    snapshot = node(
        numa=numa,
        links={(0, 4): 4, (1, 5): 4, (8, 13): 4},
        distances=near | dict.fromkeys(shared, Closeness.PIX),
        sockets={0: 0, 1: 1},
        hcas=[
            {gpu: Closeness.PIX if gpu in switch else Closeness.SYS for gpu in range(16)}
            for switch in switches[::2]
        ],
        hca_numa=(0, 0, 1, 1),
    )
    if is_even:
        return snapshot
    lanes = {2: 8, 6: 8, 11: 8, 14: 4}
    gpus = tuple(
        replace(
            gpu,
            pcie=replace(
                gpu.pcie,
                max_generation=3 if gpu.index == 9 else 4,
                width=lanes.get(gpu.index, 16),
                max_width=16,
            ),
        )
        if gpu.pcie
        else gpu
        for gpu in snapshot.gpus
    )
    return replace(snapshot, gpus=gpus)


def _drawn(kind: large_machines.Kind, seed: int) -> Snapshot:
    return kind(Random(f"{kind.__name__} 16 {seed}"), 16)


MACHINES: Mapping[str, Callable[[], Snapshot]] = MappingProxyType(
    {
        "DGX-1V": partial(machine, "dgx-1v"),
        "mesh of 10": lambda: large_machines.mesh(Random("mesh 10 0"), 10),
        "DGX-2, a link down": lambda: half_down(machine("dgx-2"), 5, 1),
        "DGX-2, two links down, a GPU dead": lambda: dead(half_down(machine("dgx-2"), 5, 2), 11),
        "PCIe, odd switches, bridges": partial(odd_box, is_even=True),
        "PCIe, and odd lanes": odd_box,
        **{
            f"random {kind.__name__} {seed}": partial(_drawn, kind, seed)
            for kind in (large_machines.crossed, large_machines.joined, large_machines.gaps)
            for seed in (1, 2)
        },
    }
)
"""By name; those drawn at random are the same in every run."""


def warm_and_cold(snapshot: Snapshot, policy: Policy, number: int) -> tuple[float, float, float]:
    """Return p50 and p99 of later answers and the slowest first answer, nanoseconds."""
    rules, ids = Rules(policy=policy), [gpu.id for gpu in snapshot.gpus]
    cold = max(_first(snapshot, rules, size) for size in range(1, len(ids) + 1))
    allocator = Allocator(snapshot, rules)
    asked = requests(ids, WARM_UP + number, Random(6))
    found = [_cost(allocator, one) for one in asked][WARM_UP:]
    return median(found), quantiles(found, n=100)[-1], cold


def _first(snapshot: Snapshot, rules: Rules, size: int) -> int:
    ids = [gpu.id for gpu in snapshot.gpus]
    before = time.thread_time_ns()
    preferred(Allocator(snapshot, rules), ids, (), size)
    return time.thread_time_ns() - before


def _cost(allocator: Allocator, one: Asked) -> int:
    before = time.thread_time_ns()
    preferred(allocator, one.available, one.required, one.size)
    return time.thread_time_ns() - before


def policy_lines(number: int) -> Iterator[str]:
    """Yield the table of machines and policies."""
    yield "| machine | policy | p50 | p99 | first answer |"
    yield "|---|---|--:|--:|--:|"
    for name, build in MACHINES.items():
        for policy in Policy:
            cells = map(duration, warm_and_cold(build(), policy, number))
            yield f"| {name} | `{policy.value}` | {' | '.join(cells)} |"


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
    sized = ("DGX-1V", "DGX-2, two links down, a GPU dead", "PCIe, and odd lanes")
    for line in size_lines(sized, options.requests // 5):
        print(line, flush=True)


if __name__ == "__main__":
    main()
