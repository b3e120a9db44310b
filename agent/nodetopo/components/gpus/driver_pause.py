"""Requests for a free driver, made by labels of the Node."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from nodetopo.formats.responses import texts
from nodetopo.model.notice import Notice
from nodetopo.model.operator_labels import driver_claim

LONG_S = 3600.0
"""Duration after which a pause is reported as a warning, and again after each further one."""

PAUSED, RESUMED, LONG = "DriverPaused", "DriverResumed", "DriverPausedLong"
"""Reasons of Events."""

_MOST_NOTICES = 16


class DriverPause:
    """Follows the Node labels that request a free driver; any thread can read it.

    A deleted Node or an unreachable API server changes nothing.

    Args:
        clock: monotonic seconds.
        now: returns the wall-clock time.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        # Called by the thread of the watch when a pause begins or ends.
        self.on_change: Callable[[], None] = lambda: None
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        # The label, ``key=value``, that requests the driver; ``None`` while none does.
        self.claim: str | None = None
        self._began: datetime | None = None
        self._reported_at = 0.0
        self._notices: deque[Notice] = deque(maxlen=_MOST_NOTICES)

    @property
    def text(self) -> str | None:
        """Why NVML is closed and since when, a sentence; ``None`` while it is not."""
        with self._lock:
            return self._text()

    def note(self, node: Mapping[str, Any] | None) -> None:
        """Take the metadata of the Node; called by the thread of the watch."""
        if node is None:
            return
        claim = driver_claim(texts(node, "labels"))
        with self._lock:
            before, self.claim = self.claim, claim
            if (before is None) == (claim is None):
                return
            if claim is None:
                self._notify(RESUMED, f"no label requests the driver any longer ({before})")
                self._began = None
            else:
                self._began, self._reported_at = self._now(), self._clock()
                self._notify(PAUSED, self._text() or claim)
        self.on_change()

    def notices(self) -> tuple[Notice, ...]:
        """Return the notices since the last call, and forget them."""
        with self._lock:
            if self.claim is not None and self._clock() - self._reported_at >= LONG_S:
                self._reported_at = self._clock()
                self._notify(LONG, self._text() or self.claim, is_warning=True)
            taken = tuple(self._notices)
            self._notices.clear()
        return taken

    def _text(self) -> str | None:
        if self.claim is None or self._began is None:
            return None
        return f"{self.claim} has requested a free driver since {self._began:%Y-%m-%d %H:%M} UTC"

    def _notify(self, reason: str, message: str, *, is_warning: bool = False) -> None:
        self._notices.append(
            Notice(reason=reason, message=message, is_warning=is_warning, gpu=None, key="driver")
        )
