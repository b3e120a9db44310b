"""What claims of GPUs cost a cluster: ``python -m tests.bench.dra_cluster``.

For NVIDIA's slices with plain and with exported claims, and for ours in each form, it prints

- *filter*: CPU to filter one node for one pod, by kube-scheduler's allocator alone, with as many
  nodes in the cluster as the column says;
- *scheduler*: CPU of the real kube-scheduler for a pod, its memory, and what the API server spends
  to store the slices of one node;
- *writes*: slices that our driver writes, and their bytes, when a claim is prepared or given up;
- *quality*: the table of :mod:`tests.bench.dra_churn`.

Machines differ and are busy with other work, so compare the rows of one run. With ``--check`` it
exits with 1 where a form costs more than it may: see :data:`MOST_FILTER`, :data:`MOST_BYTES` and
:data:`MOST_WRITES`.
"""

import argparse
import statistics
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.slices import changes
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from tests.bench import dra_churn
from tests.bench.dra_scheduler import SchedulerBench
from tests.bench.dra_ways import NODE, SETS, SINGLES, WAYS, Way, claimed, classes, json_bytes, ways
from tests.lab.dra_allocator import DraAllocator

RELEASES: Mapping[str, str] = {"1.36": SINGLES, "1.37": SETS}
"""A release → the form that is the default for it."""

NODES = (1, 100, 300, 1000)
SIZES = (1, 4, 8)

FILTERED = 100
"""Nodes that are filtered for each pod of *filter*."""

MOST_FILTER: Mapping[int, float] = {1: 3.0, 4: 2.0, 8: 2.0}
"""Times the CPU of NVIDIA's plain claim that filtering a node may take, in the default form, by the
GPUs of the claim, in clusters of :data:`MANY` nodes and more.

From 1.37 on the allocator converts and checks all devices and counters of the node for each claim;
a claim for one GPU has little other work. An exported claim of NVIDIA's driver for one GPU costs
two to three times as much as a plain one, too.
"""

MANY = 100

MOST_BYTES = 25_000
"""Of the slices of 8 GPUs, as the API server returns them."""

MOST_WRITES = 1
"""Slices written for a claim that is prepared or given up."""

Problems = list[str]


def filter_table(
    snapshot: Snapshot, release: str, nodes: Sequence[int], repeats: int, problems: Problems
) -> Iterator[str]:
    """Yield the lines of *filter*: milliseconds, the median of *repeats*, and times NVIDIA's."""
    yield f"| {release}, GPUs | way | {' | '.join(f'{count} nodes' for count in nodes)} |"
    yield f"|---|---|{'---:|' * len(nodes)}"
    with DraAllocator(release) as allocator:
        allocator.set_classes(classes())
        for size in SIZES:
            plain: dict[int, float] = {}
            for way in ways(snapshot):
                cells = []
                for count in nodes:
                    cost = statistics.median(
                        _filter_s(allocator, way, count, size) for _ in range(repeats)
                    )
                    plain.setdefault(count, cost)  # NVIDIA's plain claim is the first way
                    ratio = cost / plain[count]
                    cells.append(f"{cost * 1000:.2f} ({ratio:.1f}x)")
                    is_dear = count >= MANY and ratio > MOST_FILTER[size]
                    if way.name == RELEASES[release] and is_dear:
                        problems.append(
                            f"{release}: {way.name}, {size} GPUs, {count} nodes: {ratio:.1f}x"
                        )
                yield f"| {size} | {way.name} | {' | '.join(cells)} |"


def _filter_s(allocator: DraAllocator, way: Way, nodes: int, size: int) -> float:
    found = allocator.bench(way.slices, nodes, way.claim(size), per_pod=FILTERED)
    assert found.fitting == found.filtered, f"{way.name}: a free node does not fit"
    return found.filter_cpu_s


def scheduler_table(
    snapshot: Snapshot,
    release: str,
    nodes: Sequence[int],
    pods: int,
    patience_s: float,
    *,
    named: Collection[str] = WAYS,
) -> Iterator[str]:
    """Yield the lines of *scheduler*, for claims of 4 GPUs, of the ways that are *named*."""
    yield (
        f"| {release}, way | nodes | bound | scheduler, CPU s a pod | MiB "
        "| stored, CPU ms a node | KB a node |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for way in (each for each in ways(snapshot) if each.name in named):
        with SchedulerBench.running(release) as bench:
            for count in nodes:
                few = min(pods, count * 2)
                found = bench.measure(way, count, size=4, pods=few, patience_s=patience_s)
                yield (
                    f"| {way.name} | {count} | {found.bound} of {few} | {found.scheduler_s:.3f} "
                    f"| {found.resident_mib:.0f} | {found.store_s * 1000:.0f} "
                    f"| {found.node_bytes / 1000:.1f} |"
                )
                if found.bound < few:
                    break  # a larger cluster takes longer still


def writes_table(snapshot: Snapshot, steps: int, problems: Problems) -> Iterator[str]:
    """Yield the lines of *writes*: most and mean for a claim, over *steps* of random jobs."""
    yield "| way | devices | KB a node | writes a claim, most | mean | KB written a claim |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name, form in ((SINGLES, Form(has_sets=False)), (SETS, Form(has_sets=True))):
        pool = Pool.of(snapshot, snapshot.gpus, form=form)
        slices = _renewed(pool, (), {})
        kilobytes = json_bytes(slices.values()) / 1000
        devices = sum(len(each["spec"].get("devices", ())) for each in slices.values())
        counts, sizes = [], []
        for jobs in _loads(snapshot, steps):
            now = _renewed(pool, jobs, slices)
            written = [each for key, each in now.items() if each is not slices.get(key)]
            counts.append(len(written))
            sizes.append(json_bytes(written) / 1000)
            slices = now
        yield (
            f"| {name} | {devices} | {kilobytes:.1f} | {max(counts)} "
            f"| {statistics.mean(counts):.2f} | {statistics.mean(sizes):.1f} |"
        )
        if max(counts) > MOST_WRITES:
            problems.append(f"{name}: {max(counts)} writes for one claim")
        if len(snapshot.gpus) == 8 and kilobytes * 1000 > MOST_BYTES:
            problems.append(f"{name}: {kilobytes:.1f} KB a node")


def _renewed(
    pool: Pool, jobs: Sequence[Collection[str]], before: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """Return the slices by name after the driver has written what *jobs* make different."""
    used = {gpu for job in jobs for gpu in job}
    names = [name for job in jobs for name in claimed(pool, job)]
    groups = pool.groups(used, Conditions(), names)
    todo = changes(NODE, None, pool.counter_sets, groups, before)
    written = {each["metadata"]["name"]: each for each in todo.applied}
    return {key: it for key, it in {**before, **written}.items() if key not in todo.deleted}


def _loads(snapshot: Snapshot, steps: int) -> Iterator[Sequence[tuple[str, ...]]]:
    """Yield the GPUs of each job after each start and each end of one."""
    draw, ids = Random(0), [gpu.id for gpu in snapshot.gpus]
    jobs: list[tuple[str, ...]] = []
    for _ in range(steps):
        free = [gpu for gpu in ids if not any(gpu in job for job in jobs)]
        sizes = [size for size in (1, 2, 4, 8) if size <= len(free)]
        if sizes and (not jobs or draw.random() < 0.5):
            jobs.append(tuple(draw.sample(free, draw.choice(sizes))))
        else:
            jobs.remove(draw.choice(jobs))
        yield tuple(jobs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables that are asked for, and return 1 where a figure is too large."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--machine", default="dgx-h100", help="a bundled machine")
    parser.add_argument("--releases", nargs="+", choices=RELEASES, default=list(RELEASES))
    parser.add_argument("--nodes", nargs="+", type=int, default=NODES)
    parser.add_argument(
        "--pods", type=int, default=6, help="for each cell of the scheduler's table"
    )
    parser.add_argument("--patience", type=float, default=180.0, help="seconds for such a cell")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="of the scheduler's")
    parser.add_argument("--repeats", type=int, default=3, help="of each cell of filter")
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=("filter", "scheduler", "writes", "quality"),
        default=("filter", "scheduler", "writes", "quality"),
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 for a figure too large")
    args = parser.parse_args(arguments)
    problems: Problems = []
    for line in _lines(args, problems):
        print(line, flush=True)
    for problem in problems:
        print(f"too much: {problem}", file=sys.stderr)
    return 1 if args.check and problems else 0


def _lines(args: argparse.Namespace, problems: Problems) -> Iterator[str]:
    snapshot = machine(args.machine)
    for release in args.releases:
        if "filter" in args.parts:
            yield f"\nCPU ms to filter one node for one pod, Kubernetes {release}\n"
            yield from filter_table(snapshot, release, args.nodes, args.repeats, problems)
        if "scheduler" in args.parts:
            yield f"\nkube-scheduler {release}, claims of 4 GPUs\n"
            yield from scheduler_table(
                snapshot, release, args.nodes, args.pods, args.patience, named=args.ways
            )
    if "writes" in args.parts:
        yield f"\nSlices of {args.machine}\n"
        yield from writes_table(snapshot, 400, problems)
    if "quality" in args.parts:
        yield "\nSplit of 4-GPU jobs / worse than the best free set, 4 GPUs / 2 GPUs, in %\n"
        yield from dra_churn.table(5, 150, dra_churn.MACHINES)


if __name__ == "__main__":
    sys.exit(main())
