"""Integers for every set at once are those computed set by set."""

from random import Random

import pytest

from nodetopo.allocation import families as of
from nodetopo.allocation.masks import positions
from tests.allocation.brute_rings import closing

SEEDS = range(8)
COUNT = 7
FAMILIES = of.Families(COUNT)
SETS = range(1 << COUNT)


def drawn(random: Random) -> list[int]:
    """An integer for each set."""
    return [random.randrange(40) for _ in SETS]


def sliced(values: list[int]) -> of.Slices:
    return FAMILIES.valued(dict(enumerate(values)))


def plain(slices: of.Slices) -> list[int]:
    return [of.value(slices, mask) for mask in SETS]


def test_the_slices_of_integers_are_those_integers() -> None:
    values = [mask * 37 for mask in SETS]
    assert plain(sliced(values)) == values


@pytest.mark.parametrize("seed", SEEDS)
def test_arithmetic_is_that_of_every_set(seed: int) -> None:
    random = Random(seed)
    a, b = drawn(random), drawn(random)
    larger = [max(x, y) for x, y in zip(a, b, strict=True)]
    assert plain(of.added(sliced(a), sliced(b))) == [x + y for x, y in zip(a, b, strict=True)]
    assert plain(of.greatest(sliced(a), sliced(b))) == larger
    assert plain(of.subtracted(sliced(larger), sliced(b))) == [
        x - y for x, y in zip(larger, b, strict=True)
    ]
    assert plain(of.multiplied(sliced(a), 13)) == [13 * x for x in a]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_sets_of_a_family_are_all_that_are_best(seed: int) -> None:
    random = Random(seed)
    values, some = drawn(random), random.sample(SETS, 30)
    family = sum(1 << mask for mask in some)
    for narrow, best in ((of.least, min), (of.most, max)):
        found = of.sets_of(narrow(family, sliced(values)))
        right = best(values[mask] for mask in some)
        assert sorted(found) == sorted(mask for mask in some if values[mask] == right)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_most_within_a_set_is_that_of_its_subsets(seed: int) -> None:
    values = drawn(Random(seed))
    right = [max(values[part] for part in SETS if part & mask == part) for mask in SETS]
    assert plain(FAMILIES.most_within(sliced(values))) == right


@pytest.mark.parametrize("bound", [0, 1, 17, 32, 39, 40, 64])
def test_sets_with_a_bound_or_more_are_those_whose_integer_is(bound: int) -> None:
    random = Random(bound)
    values, some = drawn(random), random.sample(SETS, 60)
    found = of.sets_of(of.at_least(sum(1 << mask for mask in some), sliced(values), bound))
    assert sorted(found) == sorted(mask for mask in some if values[mask] >= bound)


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_are_over_the_gpus_and_the_pairs_of_a_set(seed: int) -> None:
    random = Random(seed)
    weights = [random.randrange(9) for _ in range(COUNT)]
    square = [[random.randrange(9) for _ in range(COUNT)] for _ in range(COUNT)]
    assert plain(FAMILIES.sums(weights)) == [sum(weights[g] for g in positions(m)) for m in SETS]
    assert plain(FAMILIES.pair_sums(square)) == [
        sum(square[a][b] for a in positions(mask) for b in positions(mask) if a > b)
        for mask in SETS
    ]
    assert plain(FAMILIES.lacking(0b1010110)) == [(0b1010110 & ~m).bit_count() for m in SETS]


def test_families_are_those_of_their_names() -> None:
    some = 0b0110101
    right = {
        FAMILIES.within(some): [mask for mask in SETS if not mask & ~some],
        FAMILIES.around(some): [mask for mask in SETS if mask & some == some],
        FAMILIES.touching(some): [mask for mask in SETS if mask & some],
    }
    for family, sets in right.items():
        assert sorted(of.sets_of(family)) == sets
        assert of.sets_of(FAMILIES.complement(family)) == [mask ^ SETS[-1] for mask in sets]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ring_closes_through_the_sets_that_the_definition_names(seed: int) -> None:
    random = Random(seed)
    pairs = [(a, b) for a in range(COUNT) for b in range(a) if random.random() < 0.5]
    joined = [
        sum(1 << b for b in range(COUNT) if {(a, b), (b, a)} & {*pairs}) for a in range(COUNT)
    ]
    truth = closing(COUNT, {frozenset(pair) for pair in pairs})
    assert [FAMILIES.rings(joined) >> mask & 1 for mask in SETS] == list(truth)
