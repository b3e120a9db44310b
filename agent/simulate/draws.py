"""Draws from one source of uniform numbers, so that a seed gives the same run on every Python.

``random.Random`` promises only that ``random()`` repeats between versions, so nothing else of
it is used.
"""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from math import cos, log, pi, sqrt
from typing import Protocol


class Uniform(Protocol):
    """A source of numbers, e.g. ``random.Random``."""

    def random(self) -> float:
        """Return the next number, at least 0 and below 1."""
        ...


def exponential(source: Uniform, mean: float) -> float:
    """Return a waiting time of a Poisson process (inverse of its distribution function)."""
    return -mean * log(1 - source.random())


def normal(source: Uniform) -> float:
    """Return a draw of the standard normal distribution (Box and Muller 1958)."""
    radius = sqrt(-2 * log(1 - source.random()))
    return radius * cos(2 * pi * source.random())


class Weighted:
    """Values by weight; the weights need not add up to 1."""

    def __init__(self, values: Sequence[int], weights: Sequence[float]) -> None:
        self._values = tuple(values)
        self._ends = tuple(accumulate(weights))

    def draw(self, source: Uniform) -> int:
        """Return one of the values."""
        # Below 1 in steps of 2**-53, so the product stays below the last end.
        return self._values[bisect(self._ends, source.random() * self._ends[-1])]
