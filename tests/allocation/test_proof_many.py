"""A request for one GPU of many leaves the GPUs that are worth most to later jobs."""

from random import Random

import pytest

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.facts import facts
from nodetopo.allocation.terms import Terms
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_alike import Alike
from tests.allocation.brute_force import BruteForce
from tests.allocation.large_machines import REGULAR, Kind
from tests.budget import cases

FEW = 1400
"""Different sets of a machine that can all be packed in a moment."""

REQUESTS = cases(3, 20)


def machine_of_few_kinds(kind: Kind, count: int, random: Random) -> tuple[Snapshot, Alike]:
    """The first of random machines that is regular enough."""
    for _ in range(100):
        snapshot = kind(random, count)
        alike = Alike(snapshot)
        if len(alike.kinds) > 1 and alike.sets <= FEW:
            return snapshot, alike
    raise AssertionError("no machine has so few different sets")


@pytest.mark.parametrize("count", [32, 72])
@pytest.mark.parametrize("seed", range(cases(1, 2)))
@pytest.mark.parametrize("kind", REGULAR, ids=lambda kind: kind.__name__)
def test_the_remainder_is_worth_the_most_that_any_gpu_leaves(
    kind: Kind, seed: int, count: int
) -> None:
    random = Random(f"{kind.__name__} {count} {seed}")
    snapshot, alike = machine_of_few_kinds(kind, count, random)
    allocator, terms = Allocator(snapshot), Terms(facts(snapshot))
    position = {gpu.id: place for place, gpu in enumerate(snapshot.gpus)}
    for _ in range(REQUESTS):
        free = random.sample(range(count), random.randint(2, count))
        (chosen,) = allocator.best([snapshot.gpus[gpu].id for gpu in free], [], 1)
        worth = {gpu: alike.total([other for other in free if other != gpu]) for gpu in free}
        assert worth[position[chosen]] == max(worth.values())
        score = terms.score(1 << position[chosen], sum(1 << gpu for gpu in free))
        assert score.remainder_value == max(worth.values()) / 100


@pytest.mark.parametrize("kind", REGULAR, ids=lambda kind: kind.__name__)
def test_packing_by_numbers_is_packing(kind: Kind) -> None:
    random = Random(kind.__name__)
    snapshot, alike = machine_of_few_kinds(kind, 12, random)
    truth = BruteForce(snapshot)
    for _ in range(100):
        free = random.sample(range(12), random.randint(2, 12))
        gpu = free.pop()
        left = truth.terms["remainder_value"](1 << gpu, sum(1 << g for g in (*free, gpu)))
        assert alike.total(free) == left
