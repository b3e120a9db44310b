"""When something is written again that changes with every pod: soon, but not all the time."""

import random
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from agent.errors import AgentError
from agent.kubeapi.backoff import RETRY_S, RetryPause
from agent.publish.labels.pacing import RECHECK_S, Clock, Spread

Wanted = TypeVar("Wanted")

START_S = 30.0
"""A first look waits up to so long, by chance: 15,000 agents that start together and have an
object to create each are 500 writes a second then."""

GAP_S = 5.0
"""After a look the next waits so long, whatever changes: at most twelve writes a minute for a node
whose pods come and go all the time."""

NEW_NODE_S = (5.0, 30.0)
"""The same after the Node was created anew: by then the garbage collector took away what the old
Node owned."""


class ZoningLane(Generic[Wanted]):
    """One thing to keep written; for one thread.

    Attributes:
        errors: attempts that failed.
    """

    def __init__(
        self,
        name: str,
        publish: Callable[[Wanted], bool | None],
        republish: Callable[[Wanted], bool | None],
        *,
        clock: Clock = time.monotonic,
        spread: Spread = random.uniform,
    ) -> None:
        """Begin with nothing written.

        Args:
            name: what it is, for the log.
            publish: writes what is new; ``False`` where the place is another's, which is then
                looked at no sooner than it would be without news.
            republish: the same, after it looked at everything anew.
            clock: for pauses.
            spread: by chance.
        """
        self._name = name
        self._publish = publish
        self._republish = republish
        self._clock = clock
        self._spread = spread
        self._pause = RetryPause(*RETRY_S, least_s=RETRY_S[0], spread=spread)
        self._not_before = clock() + spread(0.0, START_S)
        self._recheck_at = self._not_before
        self._asked_until = 0.0
        self._published: Wanted | None = None
        self.errors = 0

    def step(self, wanted: Wanted) -> None:
        """Write *wanted* if it differs from what was written, or is to be looked at, and may be."""
        now = self._clock()
        is_recheck = now >= self._recheck_at
        if now < self._not_before or (wanted == self._published and not is_recheck):
            return
        try:
            is_kept = (self._republish if is_recheck else self._publish)(wanted)
        except AgentError as error:
            self._failed(error)
            return
        self._pause.reset()
        if is_recheck:
            self._recheck_at = now + self._spread(*RECHECK_S)
        self._published = wanted
        self._not_before = self._recheck_at if is_kept is False else now + GAP_S

    def expect_loss(self) -> None:
        """Look soon at what was written: it may be gone with the Node that owned it.

        No sooner than the API server asked for.
        """
        soon = self._clock() + self._spread(*NEW_NODE_S)
        self._recheck_at = self._not_before = max(soon, self._asked_until)

    def _failed(self, error: AgentError) -> None:
        self.errors += 1
        structlog.get_logger().warning("not published", what=self._name, error=str(error))
        now, asked_s = self._clock(), getattr(error, "retry_after_s", None)
        self._asked_until = now + (asked_s or 0.0)
        self._not_before = now + self._pause.next_s(asked_s)
