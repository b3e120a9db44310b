"""The brute force itself: what it computes in one pass agrees with trying everything."""

from collections.abc import Mapping
from itertools import combinations, combinations_with_replacement, product
from random import Random

import pytest

from nodetopo.allocation.rules import Model, Rules
from nodetopo.machines.bundled import machine
from nodetopo.model.nvlink import Closeness
from tests.allocation.brute_facts import Machine
from tests.allocation.brute_force import BruteForce
from tests.allocation.brute_packing import Packing
from tests.allocation.brute_rings import Pair, Trees, closing, members, most_rings, rings_through
from tests.allocation.large_machines import pcie
from tests.strategies import node

SEEDS = range(12)


def graph(random: Random, count: int) -> dict[Pair, int]:
    """Links at random, none, one or two of each pair."""
    pairs = combinations(range(count), 2)
    return {frozenset(pair): random.choice((0, 1, 1, 2)) for pair in pairs}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ring_closes_where_a_permutation_does(seed: int) -> None:
    links = graph(Random(seed), 6)
    found = closing(6, {pair for pair, number in links.items() if number})
    for mask in range(64):
        chosen = members(mask)
        rings = rings_through(chosen) if len(chosen) > 2 else ()
        assert bool(found[mask]) == any(all(links[hop] for hop in ring) for ring in rings)


@pytest.mark.parametrize("seed", SEEDS)
def test_as_many_rings_fit_as_the_largest_choice_of_permutations(seed: int) -> None:
    links = graph(Random(seed), 5)
    rings = sorted({frozenset(ring) for ring in rings_through(range(5))}, key=_sorted)
    assert most_rings(links, range(5)) == _most_that_fit(links, rings, largest=4)


@pytest.mark.parametrize("seed", SEEDS)
def test_as_many_trees_fit_as_the_largest_choice_of_trees(seed: int) -> None:
    links = graph(Random(seed), 4)
    trees = [frozenset(some) for some in combinations(links, 3) if _spans(some, 4)]
    assert len(trees) == 16
    assert Trees(links).most(0b1111) == _most_that_fit(links, trees, largest=4)


def _most_that_fit(
    links: Mapping[Pair, int], shapes: list[frozenset[Pair]], *, largest: int
) -> int:
    """The most of *shapes*, any of them more than once, that share no link."""
    return max(
        number
        for number in range(largest + 1)
        for some in combinations_with_replacement(shapes, number)
        if all(sum(pair in shape for shape in some) <= links[pair] for pair in links)
    )


def _spans(tree: tuple[Pair, ...], count: int) -> bool:
    reached = {0}
    for _ in range(count):
        reached |= {end for pair in tree if pair & reached for end in pair}
    return len(reached) == count


def _sorted(ring: frozenset[Pair]) -> list[list[int]]:
    return sorted(map(sorted, ring))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_packing_is_worth_the_best_choice_of_disjoint_jobs(seed: int) -> None:
    random = Random(seed)
    value = [random.randrange(20) for _ in range(256)]
    packing = Packing(value.__getitem__, 8)
    for left, job in product((0xFF, 0b1111_0111, 0b1010_1111, 0b111), (2, 4)):
        jobs = [m for m in range(256) if m & left == m and m.bit_count() == job]
        most = 0
        for number in range(8 // job + 1):
            for some in combinations(jobs, number):
                if sum(some).bit_count() == job * number and _are_disjoint(some):
                    most = max(most, sum(value[mask] for mask in some))
        assert packing.best(left, job) == most


def _are_disjoint(masks: tuple[int, ...]) -> bool:
    return all(not a & b for a, b in combinations(masks, 2))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_widest_ring_of_a_pcie_tree_crosses_its_worst_pair(seed: int) -> None:
    """Whatever the order, a ring enters and leaves each side of the widest gap."""
    random = Random(seed)
    hops = Machine(pcie(random, 16)).hops
    for _ in range(20):
        chosen = sorted(random.sample(range(16), random.randint(3, 6)))
        widest = max(min(hops[hop] for hop in ring) for ring in rings_through(chosen))
        assert widest == min(hops[frozenset(pair)] for pair in combinations(chosen, 2))


@pytest.mark.parametrize("seed", SEEDS)
def test_gpus_lack_an_hca_where_no_assignment_serves_more(seed: int) -> None:
    random = Random(seed)
    hcas = [
        {gpu: random.choice((Closeness.PIX, Closeness.PXB)) for gpu in range(5)} for _ in range(4)
    ]
    snapshot = node(numa=[0] * 5, hcas=hcas)
    near, truth = Machine(snapshot).near, BruteForce(snapshot)
    for mask in range(1, 32):
        served = max(len(set(way)) for way in product(*(near[gpu] for gpu in members(mask))))
        lost = truth.terms["rail_loss"](mask, 31)
        assert lost == mask.bit_count() - served


@pytest.mark.parametrize(
    ("gpus", "ring", "relay"),
    [
        ((0, 3), 50.0, 50.0),
        ((0, 5), 7.0, 7.0),
        ((0, 2, 3), 50.0, 50.0),
        ((0, 1, 2, 3), 100.0, 100.0),
        ((0, 3, 4, 7), 50.0, 50.0),
        ((0, 1, 2, 4), 7.0, 50.0),
        ((0, 1, 2, 3, 4, 5, 6), 100.0, 100.0),
        ((0, 1, 2, 3, 4, 5, 6, 7), 150.0, 150.0),
    ],
)
def test_the_cube_mesh_has_the_published_figures(
    gpus: tuple[int, ...], ring: float, relay: float
) -> None:
    for model, gb_s in ((Model.RING, ring), (Model.RELAY, relay)):
        truth = BruteForce(machine("dgx-1v"), Rules(model=model))
        assert truth.bandwidth(truth.mask(gpus)) == gb_s * 10
