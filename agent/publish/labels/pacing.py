"""One output of labels, kept up to date at a pace that the API server can bear from every node."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from agent.errors import AgentError
from agent.kubeapi.backoff import RETRY_S, RetryPause
from agent.publish.labels.output import LabelChanges, LabelOutput, LabelWish

RECHECK_S = (300.0, 360.0)
"""An output is looked at again after so long, by chance, for what no watch tells of: the budget is
one read per node in five minutes."""

START_S = 5.0
"""A first look waits up to so long, by chance: nodes that start together do not ask together."""

FOLLOWED_S = (2880.0, 4320.0)
"""The same for an output whose every change a watch tells: an hour, a fifth more or less."""

CORRECTION_S = 60.0
"""A place that has labels of ours already waits up to so long for others, by chance: 15,000 new
agents with a new label write 250 times in a second then, at 9 ms of the API server's CPU each."""

GAP_S = 10.0
"""After a write the next look waits so long. It doubles each time that somebody changes what we
wrote, up to :data:`RECHECK_S`: two writers that insist do not keep the API server busy."""

Clock = Callable[[], float]
"""Seconds, from any beginning."""

Spread = Callable[[float, float], float]
"""Returns a number between two others, by chance."""


def at_once(least: float, _most: float) -> float:
    """Spread nothing: for a program that does everything once and ends."""
    return least


class LabelLane:
    """When to look at one output, and what came of it. One thread steps; any may note."""

    def __init__(
        self,
        output: LabelOutput,
        *,
        clock: Clock = time.monotonic,
        spread: Spread = random.uniform,
        is_followed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin with nothing known; *is_followed*: whether a watch tells of the output now."""
        self._output = output
        self._clock = clock
        self._spread = spread
        self._is_followed = is_followed
        self._not_before = clock() + spread(0.0, START_S)
        self._recheck_at = self._not_before
        self._pause = RetryPause(*RETRY_S, least_s=RETRY_S[0], spread=spread)
        self._gap_s = GAP_S
        self._seen: Mapping[str, Any] | None = None
        self._examined: Mapping[str, Any] | None = None
        self._is_disturbed = False
        self._is_hurried = threading.Event()
        self._published: LabelWish | None = None
        self._is_patient = True
        self._has_kept = False
        self.writes = 0
        self.errors = 0

    @property
    def output(self) -> LabelOutput:
        """The output."""
        return self._output

    @property
    def has_looked(self) -> bool:
        """Whether the output was read at least once."""
        return not self._is_patient

    @property
    def has_published(self) -> bool:
        """Whether the output was once as it should be."""
        return self._published is not None

    def note(self, node: Mapping[str, Any], *, is_new: bool) -> None:
        """Take the Node's metadata as a watch saw it; *is_new*: no back-off counts any more."""
        self._seen = node
        if is_new:
            self._is_hurried.set()

    def step(self, wish: LabelWish, *, is_proven: bool) -> float:
        """Publish *wish* if it is time to; return the seconds until it will be.

        *is_proven*: a label that it neither has nor calls unread has no reason to be anywhere.
        """
        if self._is_hurried.is_set():
            self._is_hurried.clear()
            soon = self._clock() + self._spread(0.0, START_S)
            self._not_before = self._recheck_at = min(self._not_before, soon)
            self._pause.reset()
        self._examine()
        if (wait_s := self._wait_s(wish, is_proven=is_proven)) > 0:
            return wait_s
        self._is_disturbed = False
        try:
            self._look(wish, is_proven=is_proven)
        except AgentError as error:
            self._failed(error)
        return max(0.0, self._wait_s(wish, is_proven=is_proven))

    def _examine(self) -> None:
        """Compare what a watch saw with what was left there.

        Not as it is seen: that may be in the middle of a write, before it is known what that
        leaves.
        """
        seen = self._seen
        if seen is not None and seen is not self._examined:
            self._examined, self._is_disturbed = seen, self._output.is_disturbed(seen)

    def _wait_s(self, wish: LabelWish, *, is_proven: bool) -> float:
        is_wanted = wish != self._published or self._is_disturbed or (self._has_kept and is_proven)
        due = self._not_before if is_wanted else max(self._not_before, self._recheck_at)
        return due - self._clock()

    def _look(self, wish: LabelWish, *, is_proven: bool) -> None:
        if self._is_patient:
            found = self._output.changes(wish, complete=is_proven)
            self._is_patient = False
            if found and found.is_there:
                self._not_before = self._clock() + self._spread(0.0, CORRECTION_S)
                return
            if not found:
                self._succeeded(found, wish)
                return
        self._succeeded(self._output.publish(wish, complete=is_proven), wish)

    def _succeeded(self, found: LabelChanges, wish: LabelWish) -> None:
        now, is_new = self._clock(), wish != self._published
        if found:
            self._wrote(found, is_reassertion=not is_new and bool(found.added or found.changed))
        elif is_new or now >= self._recheck_at:
            self._gap_s = GAP_S
        self._published, self._has_kept = wish, bool(found.kept.keys() - wish.unread)
        self._not_before = now + self._gap_s
        self._recheck_at = now + self._spread(*(FOLLOWED_S if self._is_followed() else RECHECK_S))
        self._pause.reset()

    def _wrote(self, found: LabelChanges, *, is_reassertion: bool) -> None:
        self.writes += 1
        self._gap_s = min(self._gap_s * 2, RECHECK_S[0]) if is_reassertion else GAP_S
        structlog.get_logger().info(
            "labels published",
            output=self._output.name,
            place=self._output.place,
            added=len(found.added),
            changed=len(found.changed),
            removed=len(found.removed),
        )

    def _failed(self, error: AgentError) -> None:
        self.errors += 1
        structlog.get_logger().warning(
            "labels not published", output=self._output.name, error=str(error)
        )
        pause_s = self._pause.next_s(getattr(error, "retry_after_s", None))
        self._not_before = self._recheck_at = self._clock() + pause_s
