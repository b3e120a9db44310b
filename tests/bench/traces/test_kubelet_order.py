from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from tests.bench.traces.kubelet_order import KubeletOrder


def is_rotation(order: tuple[int, ...]) -> bool:
    """Whether numbers go up, but for at most one place, the end and the start included."""
    return sum(a > b for a, b in pairwise((*order, *order[:1]))) <= 1


def lists(devices: int, free: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    order = KubeletOrder(range(devices), Random(4))
    return [order(free) for _ in range(count)]


@pytest.mark.parametrize("devices", range(2, 9))
def test_up_to_eight_devices_are_listed_as_a_rotation(devices: int) -> None:
    random = Random(devices)
    for _ in range(100):
        free = tuple(sorted(random.sample(range(devices), random.randint(1, devices))))
        for order in lists(devices, free, 5):
            assert sorted(order) == list(free)
            assert is_rotation(order)


def test_all_eight_rotations_are_as_likely() -> None:
    counts = Counter(lists(8, tuple(range(8)), 8000))
    assert len(counts) == 8
    assert all(900 < count < 1100 for count in counts.values())


@pytest.mark.parametrize("devices", [9, 10, 16, 72])
def test_more_devices_are_mixed(devices: int) -> None:
    free = tuple(range(devices))
    orders = lists(devices, free, 50)
    assert all(sorted(order) == list(free) for order in orders)
    assert not any(map(is_rotation, orders))
    assert len(set(orders)) == 50


def test_eight_free_of_sixteen_keep_the_mixed_order_of_the_sixteen() -> None:
    free = tuple(range(0, 16, 2))
    orders = lists(16, free, 400)
    assert not any(map(is_rotation, orders))
    rotated = {(*order[at:], *order[:at]) for order in orders[:1] for at in range(8)}
    assert set(orders) <= rotated


def test_the_order_of_the_free_devices_plays_no_part() -> None:
    assert lists(8, (5, 1, 3), 20) == lists(8, (1, 3, 5), 20)
