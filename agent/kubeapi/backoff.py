"""How long to leave the API server alone after a failure."""

import random
from collections.abc import Callable

RETRY_S = (1.0, 300.0)
"""First and longest pause of writers, doubled in between, full jitter."""


class RetryPause:
    """Pauses that double, with jitter, so that the nodes of a cluster do not all retry at once.

    Args:
        first_s, last_s: upper bound of the first pause, and of all pauses.
        least_s: lower bound of every pause.
        spread: returns a random number between two others.
    """

    def __init__(
        self,
        first_s: float,
        last_s: float,
        *,
        least_s: float,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._least_s = least_s
        self._spread = spread
        self._longest_s = first_s

    @property
    def longest_s(self) -> float:
        """The longest that the next pause can be, without what the server asks for."""
        return self._longest_s

    def next_s(self, asked_s: float | None) -> float:
        """Return the next pause, on top of the *asked_s* that the server asked for, if it did."""
        spread_s = self._spread(self._least_s, self._longest_s)
        self._longest_s = min(self._longest_s * 2, self._last_s)
        return (asked_s or 0.0) + spread_s

    def reset(self) -> None:
        """Start again with the first pause."""
        self._longest_s = self._first_s
