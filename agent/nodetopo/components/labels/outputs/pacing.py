"""Keep one label output up to date, at a rate that the API server can bear from every node."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from nodetopo.backoff import API_RETRY_S, Backoff
from nodetopo.components.labels.outputs.output import DesiredLabels, LabelOutput
from nodetopo.errors import AgentError
from nodetopo.kernel.pacing import RECHECK_S, Clock, Spread
from nodetopo.outage import Outage

START_S = 5.0
"""The first read waits up to this long, by chance: nodes that start together do not read
together."""

FOLLOWED_S = (2880.0, 4320.0)
"""The same for an output whose every change a watch shows: an hour, a fifth more or less."""

CORRECTION_S = 60.0
"""Longest random delay before an output with existing labels is corrected: 15,000 new agents with a
new label then write 250 times a second, at 9 ms of the API server's CPU each.
"""

GAP_S = 10.0
"""Between a write and the next read. It doubles with each foreign change to our labels, up to
:data:`RECHECK_S`: two programs that insist do not keep the API server busy.
"""


class OutputSchedule:
    """The schedule of reads and writes of one output, and its result.

    One thread steps; any can note.
    """

    def __init__(
        self,
        output: LabelOutput,
        *,
        clock: Clock = time.monotonic,
        spread: Spread = random.uniform,
        is_followed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read nothing yet; *is_followed* returns whether a watch currently shows the output."""
        self.output = output  # the output
        self._clock = clock
        self._spread = spread
        self._is_followed = is_followed
        self._not_before = clock() + spread(0.0, START_S)
        self._recheck_at = self._not_before
        self._pause = Backoff(*API_RETRY_S, least_s=API_RETRY_S[0], spread=spread)
        self._gap_s = GAP_S
        self._seen: Mapping[str, Any] | None = None
        self._examined: Mapping[str, Any] | None = None
        self._is_disturbed = False
        self._is_hurried = threading.Event()
        self._published: DesiredLabels | None = None
        self._is_first = True
        self._has_kept = False
        self._outage = Outage()
        self.writes = 0
        self.errors = 0

    @property
    def has_looked(self) -> bool:
        """Whether the output has been read."""
        return not self._is_first

    def note(self, node: Mapping[str, Any], *, is_new: bool) -> None:
        """Note the Node's metadata from a watch; *is_new*: back-off so far no longer counts."""
        self._seen = node
        if is_new:
            self._is_hurried.set()

    def step(self, desired: DesiredLabels, *, is_proven: bool) -> float:
        """Publish *desired* if it is due; return the seconds until the next step is due.

        *is_proven*: a label that it neither has nor lists as unread should not exist anywhere.
        """
        if self._is_hurried.is_set():
            self._is_hurried.clear()
            soon = self._clock() + self._spread(0.0, START_S)
            self._not_before = self._recheck_at = min(self._not_before, soon)
            self._pause.reset()
        relief_s = self._pause.relief_s()
        self._not_before, self._recheck_at = (
            self._not_before - relief_s,
            self._recheck_at - relief_s,
        )
        # Not compared immediately: that could be in the middle of a write, before
        # the result of the write is known.
        seen = self._seen
        if seen is not None and seen is not self._examined:
            self._examined, self._is_disturbed = seen, self.output.is_disturbed(seen)
        if (wait_s := self._wait_s(desired, is_proven=is_proven)) > 0:
            return wait_s
        self._is_disturbed = False
        try:
            self._publish(desired, is_proven=is_proven)
        except AgentError as error:
            self.errors += 1
            if self._outage.failed(str(error)):
                log = structlog.get_logger()
                log.warning("labels not published", output=self.output.name, error=str(error))
            pause_s = self._pause.next_s(getattr(error, "retry_after_s", None))
            self._not_before = self._recheck_at = self._clock() + pause_s
        return max(0.0, self._wait_s(desired, is_proven=is_proven))

    def _wait_s(self, desired: DesiredLabels, *, is_proven: bool) -> float:
        is_wanted = (
            desired != self._published or self._is_disturbed or (self._has_kept and is_proven)
        )
        due = self._not_before if is_wanted else max(self._not_before, self._recheck_at)
        return due - self._clock()

    def _publish(self, desired: DesiredLabels, *, is_proven: bool) -> None:
        """Publish *desired*; the first time, only check whether the write can be delayed."""
        changes = None
        if self._is_first:
            changes = self.output.changes(desired, complete=is_proven)
            self._is_first = False
            if changes and changes.is_there:
                self._not_before = self._clock() + self._spread(0.0, CORRECTION_S)
                return
        if changes is None or changes:
            changes = self.output.publish(desired, complete=is_proven)
        log = structlog.get_logger()
        if failures := self._outage.ended():
            log.info("published again", output=self.output.name, failed=failures)

        now, is_new = self._clock(), desired != self._published
        if changes:
            is_reassertion = not is_new and bool(changes.added or changes.changed)
            self.writes += 1
            self._gap_s = min(self._gap_s * 2, RECHECK_S[0]) if is_reassertion else GAP_S
            log.info(
                "labels published",
                output=self.output.name,
                place=self.output.place,
                added=len(changes.added),
                changed=len(changes.changed),
                removed=len(changes.removed),
            )
        elif is_new or now >= self._recheck_at:
            self._gap_s = GAP_S
        self._published, self._has_kept = desired, bool(changes.kept.keys() - desired.unread)
        self._not_before = now + self._gap_s
        self._recheck_at = now + self._spread(*(FOLLOWED_S if self._is_followed() else RECHECK_S))
        self._pause.reset()
