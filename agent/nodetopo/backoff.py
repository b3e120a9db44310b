"""Delays between attempts that keep failing."""

import random
from collections.abc import Callable

API_RETRY_S = (1.0, 300.0)
"""First and longest delay of writers to the API server."""

_answers = 0
"""Requests and events that a server has answered or sent, in this process."""


def note_answer() -> None:
    """Note that the API server works, which ends the pauses that it asked for; any thread."""
    global _answers  # noqa: PLW0603 - a server that is well is so for all who wait for it
    _answers += 1


class Backoff:
    """Doubles the delay after every failure, up to a cap.

    Args:
        first_s: upper bound of the first delay.
        last_s: upper bound of all delays.
        least_s: lower bound of all delays, each of which is random within its bounds, so that the
            nodes of a cluster don't retry together; ``None``: every delay is its upper bound.
        spread: returns a random number between two others.

    Attributes:
        last_s: as given.
        longest_s: upper bound of the next delay.
    """

    def __init__(
        self,
        first_s: float,
        last_s: float,
        *,
        least_s: float | None = None,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.last_s = last_s
        self.longest_s = first_s
        self._first_s = first_s
        self._least_s = least_s
        self._spread = spread
        self._asked_s = 0.0
        self._answers = 0

    def next_s(self, asked_s: float | None = None) -> float:
        """Return the seconds until the next attempt.

        *asked_s* is the delay that a server asked for; ours is added to it.
        """
        longest_s, self.longest_s = self.longest_s, min(self.longest_s * 2, self.last_s)
        own_s = longest_s if self._least_s is None else self._spread(self._least_s, longest_s)
        self._asked_s, self._answers = asked_s or 0.0, _answers
        return self._asked_s + own_s

    def relief_s(self) -> float:
        """Return, once, the seconds that the server asked for if it works again since."""
        if self._asked_s and self._answers != _answers:
            asked_s, self._asked_s = self._asked_s, 0.0
            return asked_s
        return 0.0

    def reset(self) -> None:
        """Start again with the first delay; what a server asked for no longer counts."""
        self.longest_s, self._asked_s = self._first_s, 0.0
