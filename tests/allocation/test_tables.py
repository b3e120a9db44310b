"""What tables say of all sets at once is what is said of each; and how few are looked at alone."""

from random import Random

import pytest

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.bandwidth import near_share
from nodetopo.allocation.facts import facts
from nodetopo.allocation.masks import positions
from nodetopo.allocation.measured import Measured
from nodetopo.allocation.rules import DEFAULT, Policy, Rules
from nodetopo.allocation.score import numa_nodes, set_value, sockets
from nodetopo.allocation.terms import Figure, Terms
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_packing import Packing
from tests.allocation.large_machines import TEN, Kind, crossed, gaps, half_down
from tests.bench.irregular import MACHINES
from tests.bench.latency_rows import requests
from tests.budget import cases

COUNTS = (8, 9)
REQUESTS = 40
LARGEST_PROVEN = cases(2, 6)
"""Machines drawn of each kind."""


def wrong(snapshot: Snapshot, rules: Rules = DEFAULT) -> list[str]:
    """Compare every term of all sets of some free GPUs, and what each remainder is worth."""
    terms, random = Terms(facts(snapshot), rules), Random(1)
    count = len(snapshot.gpus)
    tables, everyone = terms.tables, (1 << count) - 1

    def worth(mask: int) -> int:
        members = positions(mask)
        spans = numa_nodes(terms.facts, members), sockets(terms.facts, members)
        return set_value(terms.bandwidth(mask), *spans)

    packing = Packing(worth, count)
    found = [
        f"{left:b} left"
        for left in range(everyone + 1)
        if tables.value_left(left) != packing.total(left)
    ]
    for size in range(1, count + 1):
        for name in sorted({*terms.order(1), *terms.order(3), "crowding"} - {"order"}):
            free = everyone & ~random.getrandbits(count)
            if free.bit_count() < size:
                free = everyone
            figure = terms.figure(name)
            family = tables.sets(free, 0, size)
            values = {m: figure(m, free) for m in range(1 << count) if family >> m & 1}
            bound = min(values.values())
            if name == "bandwidth_gb_s":
                bound = -near_share(-bound)
            right = sum(1 << m for m, v in values.items() if v <= bound)
            if tables.best(name, family, free, size) != right:
                found.append(f"{name} of {size} of {free:b}")
    return found


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("seed", range(LARGEST_PROVEN))
@pytest.mark.parametrize("kind", TEN, ids=lambda kind: kind.__name__)
def test_tables_agree_with_every_set(kind: Kind, seed: int, count: int) -> None:
    assert wrong(kind(Random(f"{kind.__name__} {count} {seed}"), count)) == []


@pytest.mark.parametrize("jobs_a_step", [0, 1 << 20], ids=["by kind", "one by one"])
@pytest.mark.parametrize("kind", [crossed, gaps, half_down], ids=lambda kind: kind.__name__)
def test_both_ways_to_add_jobs_are_right(
    kind: Kind, jobs_a_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodetopo.allocation.remainder.JOBS_A_STEP", jobs_a_step)
    for seed in range(cases(2, 10)):
        assert wrong(kind(Random(f"{kind.__name__} ways {seed}"), 9)) == []


def test_tables_have_the_sets_that_were_measured() -> None:
    random = Random(3)
    sets = {frozenset(random.sample(range(8), size)): 10 * size for size in (2, 3, 4, 4, 5, 8)}
    for name in ("dgx-1v", "dgx-h100"):
        assert wrong(machine(name), Rules(measured=Measured(sets=sets))) == []


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize(
    "name", [name for name in MACHINES if name not in ("DGX-1V", "mesh of 10")]
)
def test_no_set_of_sixteen_is_looked_at_alone(
    name: str, policy: Policy, computed: list[str]
) -> None:
    snapshot = MACHINES[name]()
    allocator = Allocator(snapshot, Rules(policy=policy))
    for one in requests([gpu.id for gpu in snapshot.gpus], REQUESTS, Random(1)):
        allocator.best(one.available, one.required, one.size)
    assert looked_at(allocator, computed) == (0, 0)


def test_a_request_to_a_mesh_counts_the_rings_of_its_size_and_of_later_jobs(
    computed: list[str],
) -> None:
    snapshot = machine("dgx-1v")
    allocator = Allocator(snapshot)
    allocator.best([gpu.id for gpu in snapshot.gpus], [], 3)
    assert looked_at(allocator, computed) == (0, 56 + 28 + 70 + 1)  # 3 of 8, and 2, 4 and 8 of 8


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The terms that are asked for set by set."""
    names: list[str] = []
    figure = Terms.figure

    def spied(terms: Terms, name: str) -> Figure:
        names.append(name)
        return figure(terms, name)

    monkeypatch.setattr(Terms, "figure", spied)
    return names


def looked_at(allocator: Allocator, computed: list[str]) -> tuple[int, int]:
    """How many terms were computed set by set, and of how many sets a bandwidth was modelled."""
    return len(computed), len(allocator._terms._modelled)
