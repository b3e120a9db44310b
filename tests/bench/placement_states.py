"""Requests to a machine: which GPUs are free, and how many are wanted. Positions throughout."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb
from random import Random

from msgspec import Struct

MOST_FREE = 12
"""Free GPUs in a sampled state: beyond, one answer of the peer's takes seconds."""


class State(Struct, frozen=True):
    """Some GPUs are *free*, in ascending order, and *size* of them are wanted."""

    free: tuple[int, ...]
    size: int

    @property
    def mask(self) -> int:
        """The free GPUs as a bit mask."""
        return mask_of(self.free)


def mask_of(positions: Sequence[int]) -> int:
    """Return *positions* as a bit mask."""
    return sum(1 << position for position in positions)


def states(count: int, number: int, random: Random) -> list[State]:
    """Return the states of a machine of *count* GPUs in which there is something to choose.

    All of them where there are no more than *number*, else so many drawn at random.
    """
    if _how_many(count) <= number:
        return list(_every(count))
    return [_drawn(count, random) for _ in range(number)]


def _how_many(count: int) -> int:
    """Return the sum over all free sets of their sizes less one."""
    return sum(comb(count, free) * (free - 1) for free in range(2, count + 1))


def _every(count: int) -> Iterator[State]:
    for size in range(1, count):
        for free_count in range(size + 1, count + 1):
            yield from (State(free, size) for free in combinations(range(count), free_count))


def _drawn(count: int, random: Random) -> State:
    free = random.sample(range(count), random.randint(2, min(count, MOST_FREE)))
    return State(tuple(sorted(free)), random.randint(1, len(free) - 1))


def of_size(count: int, size: int, number: int, random: Random) -> list[State]:
    """Return *number* states drawn at random in which *size* GPUs are wanted."""
    most = max(min(count, MOST_FREE), size)
    drawn = (random.sample(range(count), random.randint(size, most)) for _ in range(number))
    return [State(tuple(sorted(free)), size) for free in drawn]
