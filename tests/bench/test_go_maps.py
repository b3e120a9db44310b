"""That the kubelet's order is imitated as Go's own maps make it."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from tests.bench.go_maps import go_lists
from tests.bench.traces.kubelet_order import KubeletOrder

COUNT = 10_000
"""Lists of each kind."""

NOISE = 0.03
"""Six standard deviations of a share of so many lists, and of the difference of two of them."""


def imitated(devices: int, free: Sequence[int], count: int) -> list[tuple[int, ...]]:
    source = Random(6)
    return [KubeletOrder(range(devices), source)(free) for _ in range(count)]


def firsts(orders: Sequence[tuple[int, ...]]) -> dict[int, float]:
    """Return how often each device comes first."""
    return {gpu: count / len(orders) for gpu, count in Counter(o[0] for o in orders).items()}


def neighbours(orders: Sequence[tuple[int, ...]], free: Sequence[int]) -> float:
    """Return how often a device is followed by the next free one, the first after the last."""
    following = dict(zip(free, (*free[1:], free[0]), strict=True))
    found = [following[a] == b for order in orders for a, b in pairwise(order)]
    return sum(found) / len(found)


@pytest.mark.parametrize(
    ("devices", "free"),
    [
        (2, (0, 1)),
        (4, (0, 1, 2, 3)),
        (8, (0, 5)),
        (8, (1, 3, 4, 6)),
        (8, tuple(range(8))),
        (9, tuple(range(9))),
        (10, tuple(range(10))),
        (10, (0, 2, 4, 6, 8)),
        (16, tuple(range(16))),
        (16, tuple(range(0, 16, 2))),
    ],
)
def test_go_and_the_imitation_list_devices_alike(devices: int, free: tuple[int, ...]) -> None:
    theirs, ours = go_lists(devices, free, COUNT), imitated(devices, free, COUNT)
    assert neighbours(ours, free) == pytest.approx(neighbours(theirs, free), abs=NOISE)
    assert firsts(ours) == pytest.approx(firsts(theirs), abs=NOISE)
    if devices <= 8:
        assert neighbours(theirs, free) == neighbours(ours, free) == 1
        assert set(theirs) == set(ours)
    else:
        assert neighbours(theirs, free) < 1 / 2
