"""Intervals for rereading published objects, and clocks that tests control."""

from collections.abc import Callable

RECHECK_S = (300.0, 360.0)
"""Range of the random time after which an output is read again, for changes that no watch shows:
the budget is one read per node in five minutes."""

Clock = Callable[[], float]
"""Returns seconds, from any start."""

Spread = Callable[[float, float], float]
"""Returns a random number between two others."""


def at_once(least: float, _most: float) -> float:
    """Return *least*: for a program that does everything once and ends."""
    return least
