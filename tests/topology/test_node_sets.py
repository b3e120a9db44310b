"""Families of sets, against lists of them."""

from collections.abc import Iterable
from random import Random

import pytest

from nodetopo.topology import node_sets
from nodetopo.topology.node_sets import (
    EMPTY_SET,
    NO_SET,
    Family,
    TooManyError,
    all_sets,
    near_any,
    one_set,
    these_sets,
    with_amount,
)

_NODES = 6


def _sets(*, of: int = (1 << _NODES) - 1) -> list[int]:
    return [mask for mask in range(1 << _NODES) if not mask & ~of]


def _drawn(random: Random) -> tuple[Family, set[int]]:
    sets = set(random.sample(_sets(), random.choice((0, 1, 5, 20))))
    return these_sets(sets), sets


def _ordered(sets: Iterable[int]) -> list[int]:
    return sorted(sets, key=lambda mask: (mask.bit_count(), mask))


@pytest.mark.parametrize("seed", range(200))
def test_operations_are_those_on_lists(seed: int) -> None:
    random = Random(seed)
    (one, first), (other, second) = _drawn(random), _drawn(random)
    mask, size = random.choice(_sets()), random.randrange(_NODES + 1)

    assert list(one & other) == _ordered(first & second)
    assert list(one | other) == _ordered(first | second)
    assert list(one - other) == _ordered(first - second)
    assert list(one.overlaps(other)) == _ordered({a & b for a in first for b in second})
    assert list(one.of_size(size)) == _ordered(it for it in first if it.bit_count() == size)
    assert list(one.including(mask)) == _ordered(it for it in first if it & mask == mask)
    assert list(one.nonempty) == _ordered(first - {0})
    assert [it for it in range(4 << _NODES) if it in one] == sorted(first)
    assert one.count == len(first)
    assert one.narrowest == min((it.bit_count() for it in first), default=None)


@pytest.mark.parametrize("seed", range(200))
def test_sets_with_an_amount_are_those_whose_nodes_have_it(seed: int) -> None:
    random = Random(seed)
    nodes = random.sample(range(_NODES), random.randint(0, _NODES))
    amounts = {node: random.choice((0, 1, 2, 3, 7)) for node in nodes}
    least = random.randint(-1, 12)

    def total(mask: int) -> int:
        return sum(amount for node, amount in amounts.items() if mask >> node & 1)

    every = _sets(of=sum(1 << node for node in nodes))
    expected = [mask for mask in every if total(mask) >= least]
    assert list(with_amount(amounts, least)) == _ordered(expected)


@pytest.mark.parametrize("seed", range(200))
def test_sets_near_groups_count_each_group_once(seed: int) -> None:
    random = Random(seed)
    groups = {random.choice(_sets()[1:]): random.randint(1, 3) for _ in range(4)}
    nodes, least = random.choice(_sets()), random.randint(0, 7)

    def total(mask: int) -> int:
        return sum(amount for group, amount in groups.items() if mask & group)

    expected = [mask for mask in _sets(of=nodes) if total(mask) >= least]
    assert list(near_any(groups, least, nodes)) == _ordered(expected)


def test_families_that_are_made_differently_are_one() -> None:
    assert these_sets((1, 2, 3, 0)) is all_sets(3)
    assert with_amount({0: 1, 1: 1}, 2) is one_set(3)
    assert (all_sets(3) - all_sets(3), all_sets(0)) == (NO_SET, EMPTY_SET)


def test_a_machine_of_64_nodes_takes_few_parts() -> None:
    half = with_amount(dict.fromkeys(range(64), 10), 320)
    shared = half.overlaps(with_amount(dict.fromkeys(range(64), 7), 321)).nonempty

    assert half.count == _at_least_half()
    assert half.narrowest == 32
    assert next(iter(half)) == (1 << 32) - 1
    assert shared is with_amount(dict.fromkeys(range(64), 1), 32 + 46 - 64)


def _at_least_half() -> int:
    """Return how many sets of 64 nodes have 32 or more, by symmetry."""
    middle = 1
    for number in range(32):
        middle = middle * (64 - number) // (number + 1)
    return (2**64 + middle) // 2


def test_what_would_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_sets, "MOST_PARTS", 20)
    uneven = {node: 100 + node**2 for node in range(12)}
    with pytest.raises(TooManyError):
        with_amount(uneven, sum(uneven.values()) // 2)
    groups = {0b11 << node: 1 for node in range(12)}
    with pytest.raises(TooManyError):
        near_any(groups, 6, (1 << 13) - 1)
    with pytest.raises(TooManyError):
        these_sets(range(0, 900, 7)) & these_sets(range(0, 900, 5))
