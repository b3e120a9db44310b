"""GPUs by claim, under churn: ``python -m tests.bench.dra_churn``.

Jobs of 1, 2, 4 and 8 GPUs come and go on one node; kube-scheduler's own allocator
(:mod:`tests.lab.dra_allocator`) gives each its devices, by several ways to publish and to ask. Our
driver publishes single GPUs, as by default before Kubernetes 1.37, or also sets, as by default from
1.37 on. The table counts, in percent of the jobs of a size:

- *split*: 4-GPU jobs on two NUMA nodes;
- *worse*: jobs for which a better set of the same size was free, by the terms of a score that are
  about the set itself: modelled bandwidth, bandwidth of its pairs, NUMA nodes, in this order.

The second table counts jobs that get other GPUs than placement chooses, by any term, on all bundled
machines of 4 to 10 GPUs, for our driver.

The stream of jobs is the same for every way: at each step a job of a random size comes, and before
it random jobs end, by chance and until enough GPUs are free. A way cannot refuse a job for which
GPUs are free, so all have equal loads at every step. Everything is drawn
from the seed. An allocation takes milliseconds, and the default some five minutes.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from msgspec import Struct

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.score import Score
from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.sets import publishable
from nodetopo.components.dra.slices import changes
from nodetopo.machines.bundled import machine, names
from nodetopo.model.dra import DRIVER, NUMA_NODE
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.export.dra import claim_spec
from tests.bench.dra_ways import classes
from tests.lab.dra_allocator import DraAllocator
from tests.tools.cluster.export.dra_machines import slices as nvidia_slices

MACHINES: Mapping[str, str] = {
    "HGX H100": "dgx-h100",
    "DGX-1V": "dgx-1v",
    "PCIe pairs": "rtxpro6000-pcie-8",
}
"""Eight GPUs each: all equal, a mesh of NVLinks, and two GPUs behind each PCIe switch."""

SIZES = {1: 0.3, 2: 0.3, 4: 0.3, 8: 0.1}
"""Size of a job → its share."""

MIXES: tuple[Mapping[int, float], ...] = ({1: 2, 2: 1}, SIZES)
"""The jobs of the second table."""

LEAVES = 0.45
"""The chance that a job ends before the next comes; the others end because GPUs are needed."""

NODE = "n"

Json = Mapping[str, Any]
Spec = Callable[[int], Json]


class Way(Struct, frozen=True, kw_only=True):
    """How a driver publishes GPUs, and how claims ask for them.

    Attributes:
        publish: returns the slices, from the GPUs of each device in use and the slices before.
        spec: returns a claim's specification for a number of GPUs.
        gpus: device → ids of its GPUs.
        follows: whether slices change with every job.
    """

    name: str
    publish: Callable[[Mapping[str, Sequence[str]], Mapping[str, Json]], Sequence[Json]]
    spec: Spec
    gpus: Mapping[str, Sequence[str]]
    follows: bool = False


@dataclasses.dataclass
class Count:
    """Jobs of one way."""

    jobs: dict[int, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(SIZES, 0))
    worse: dict[int, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(SIZES, 0))
    other: dict[int, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(SIZES, 0))
    split: int = 0
    unavoidable: int = 0

    def share(self, amount: int, size: int) -> float:
        """Return *amount* in percent of the jobs of *size*."""
        return 100 * amount / max(1, self.jobs[size])


def ways(snapshot: Snapshot, seed: int) -> Iterator[Way]:
    """Yield the ways in the order of the table; *seed* shuffles what NVIDIA's driver publishes."""
    shuffled = nvidia_slices(snapshot, NODE, seed=seed)
    (first,) = shuffled
    by_index = sorted(first["spec"]["devices"], key=lambda it: int(it["name"].partition("-")[2]))
    in_order = [{**first, "spec": {**first["spec"], "devices": by_index}}]
    gpus = {f"gpu-{gpu.index}": (gpu.id,) for gpu in snapshot.gpus}
    yield _nvidia("NVIDIA's order", shuffled, _count, gpus)
    yield _nvidia("sorted", in_order, _count, gpus)
    yield _nvidia("same numaNode, else any", shuffled, _same_node, gpus)
    yield _nvidia("exported claims", shuffled, lambda size: claim_spec(snapshot, size), gpus)

    yield from our_ways(snapshot)


def our_ways(snapshot: Snapshot) -> Iterator[Way]:
    """Yield the ways of our driver."""

    def exported(size: int) -> Json:
        return claim_spec(snapshot, size, driver=DRIVER)

    singles = Form(has_sets=False)
    yield _ours("our driver, single GPUs, plain claims", snapshot, singles, _singles)
    yield _ours("our driver, single GPUs, exported claims", snapshot, singles, exported)
    yield _ours("our driver, sets, exported claims", snapshot, Form(), exported)


def _ours(name: str, snapshot: Snapshot, form: Form, spec: Spec) -> Way:
    pool = Pool.of(snapshot, snapshot.gpus, form=form)

    def publish(claimed: Mapping[str, Sequence[str]], before: Mapping[str, Json]) -> Sequence[Json]:
        used = {gpu for gpus in claimed.values() for gpu in gpus}
        groups = pool.groups(used, Conditions(), claimed)
        written = changes(NODE, None, pool.counter_sets, groups, before).applied
        now = {**before, **{each["metadata"]["name"]: each for each in written}}
        return tuple(now.values())

    gpus = {each.name: each.gpus for each in pool.sets}
    return Way(name=name, publish=publish, spec=spec, gpus=gpus, follows=True)


def run(
    way: Way,
    snapshot: Snapshot,
    seed: int,
    steps: int,
    allocator: DraAllocator,
    *,
    sizes: Mapping[int, float] = SIZES,
) -> Count:
    """Run one stream of jobs of *sizes*, with the share of each, one way.

    Raises:
        AssertionError: a GPU was given twice, or a job found none though enough were free.
    """
    draw, judge = Random(seed), Allocator(snapshot)
    ids = [gpu.id for gpu in snapshot.gpus]
    slices = {each["metadata"]["name"]: each for each in way.publish({}, {})}
    allocator.set_classes(classes())
    allocator.publish(tuple(slices.values()))
    running: dict[str, dict[str, Sequence[str]]] = {}
    count = Count()
    for step in range(steps):
        size = min(draw.choices(tuple(sizes), tuple(sizes.values()))[0], len(ids))
        while running and (draw.random() < LEAVES or _used(running) + size > len(ids)):
            name = draw.choice(list(running))
            del running[name]
            allocator.free(name)
            if draw.random() < 0.5 and _used(running) + size <= len(ids):
                break
        claimed = {name: gpus for job in running.values() for name, gpus in job.items()}
        used = {gpu for gpus in claimed.values() for gpu in gpus}
        if way.follows:
            slices = {each["metadata"]["name"]: each for each in way.publish(claimed, slices)}
            allocator.publish(tuple(slices.values()))
        name = f"job-{step}"
        found = allocator.allocate(name, way.spec(size), NODE)
        assert found is not None, f"{way.name}: {size} GPUs of {len(ids) - len(used)} free"
        gpus = tuple(gpu for one in found for gpu in way.gpus[one.device])
        assert len(set(gpus)) == size, f"{way.name}: {len(gpus)} GPUs for {size}"
        assert not used.intersection(gpus), f"{way.name}: a GPU given twice"
        free = [gpu for gpu in ids if gpu not in used]
        choice = judge.best(free, (), size)
        best, got = judge.describe(choice).score, judge.describe(gpus).score
        count.jobs[size] += 1
        count.other[size] += {*gpus} != {*choice}
        count.worse[size] += _worth(got) < _worth(best)
        if size == 4:
            count.split += got.numa_nodes > 1
            count.unavoidable += best.numa_nodes > 1
        running[name] = {one.device: way.gpus[one.device] for one in found}
    for name in running:
        allocator.free(name)
    return count


def table(seeds: int, steps: int, machines: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| way | {' | '.join(machines)} |"
    yield f"|---|{'---|' * len(machines)}"
    cells: dict[str, list[str]] = {}
    with DraAllocator() as allocator:
        for name in machines.values():
            snapshot = machine(name)
            totals: dict[str, Count] = {}
            for seed in range(seeds):
                for way in ways(snapshot, seed):
                    one = run(way, snapshot, seed, steps, allocator)
                    totals[way.name] = _sum(totals.get(way.name, Count()), one)
            for way_name, total in totals.items():
                figures = (
                    total.share(total.split, 4),
                    total.share(total.worse[4], 4),
                    total.share(total.worse[2], 2),
                )
                cells.setdefault(way_name, []).append(" / ".join(map(_percent, figures)))
    for way_name, of_machines in cells.items():
        yield f"| {way_name} | {' | '.join(of_machines)} |"


def choice_table(seeds: int, steps: int) -> Iterator[str]:
    """Yield the lines of the table of claims that get other GPUs than placement chooses."""
    yield f"| way | {' | '.join(map(_mixed, MIXES))} |"
    yield f"|---|{'---|' * len(MIXES)}"
    totals: dict[str, list[Count]] = {}
    with DraAllocator() as allocator:
        for snapshot in filter(_is_comparable, map(machine, names())):
            for seed in range(seeds):
                for way in our_ways(snapshot):
                    cells = totals.setdefault(way.name, [Count() for _ in MIXES])
                    for at, sizes in enumerate(MIXES):
                        one = run(way, snapshot, seed, steps, allocator, sizes=sizes)
                        cells[at] = _sum(cells[at], one)
    for name, cells in totals.items():
        figures = (
            f"{sum(it.other.values())} of {sum(it.jobs.values())}: "
            + ", ".join(f"{it.other[size]} for {size}" for size in SIZES if it.other[size])
            for it in cells
        )
        yield f"| {name} | {' | '.join(text.removesuffix(': ') for text in figures)} |"


def _is_comparable(snapshot: Snapshot) -> bool:
    """Return whether sizes up to 4 have a choice, and each size has all its sets in the slice."""
    return 4 <= len(snapshot.gpus) <= 10 and all(map(publishable, snapshot.gpus))


def _mixed(sizes: Mapping[int, float]) -> str:
    return ", ".join(map(str, sizes))


def _nvidia(name: str, slices: Sequence[Json], spec: Spec, gpus: Mapping[str, Any]) -> Way:
    return Way(name=name, publish=lambda _used, _before: slices, spec=spec, gpus=gpus)


def _exactly(class_name: str, count: int, *expressions: str) -> dict[str, Any]:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"deviceClassName": class_name, "count": count, "selectors": selectors}


def _count(size: int) -> Json:
    request = {"name": "gpus", "exactly": _exactly("gpu.nvidia.com", size)}
    return {"devices": {"requests": [request]}}


def _same_node(size: int) -> Json:
    ask = _exactly("gpu.nvidia.com", size)
    request = {"name": "gpus", "firstAvailable": [{"name": "near", **ask}, {"name": "any", **ask}]}
    near = {"requests": ["gpus/near"], "matchAttribute": NUMA_NODE}
    return {"devices": {"requests": [request], "constraints": [near]}}


def _singles(size: int) -> Json:
    request = {"name": "gpus", "exactly": _exactly("gpu.nodetopo.io", size)}
    return {"devices": {"requests": [request]}}


def _used(running: Mapping[str, Mapping[str, Sequence[str]]]) -> int:
    return sum(len(gpus) for job in running.values() for gpus in job.values())


def _worth(score: Score) -> tuple[float, float, int]:
    return score.counts_as_gb_s or 0.0, score.pair_bandwidth_gb_s, -score.numa_nodes


def _sum(a: Count, b: Count) -> Count:
    return Count(
        jobs={size: a.jobs[size] + b.jobs[size] for size in SIZES},
        worse={size: a.worse[size] + b.worse[size] for size in SIZES},
        other={size: a.other[size] + b.other[size] for size in SIZES},
        split=a.split + b.split,
        unavoidable=a.unavoidable + b.unavoidable,
    )


def _percent(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150, help="jobs of each seed")
    args = parser.parse_args(arguments)
    print("split of 4-GPU jobs / worse than the best free set, 4 GPUs / 2 GPUs, in %\n")
    for line in table(args.seeds, args.steps, MACHINES):
        print(line, flush=True)
    print("\nclaims that get other GPUs than placement chooses, by the sizes of the jobs\n")
    for line in choice_table(args.seeds, args.steps // 5):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
