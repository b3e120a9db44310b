"""What a test hears of GPUs."""

import threading
from collections import Counter
from collections.abc import Sequence
from time import monotonic

from nodetopo.model.nvml_event import EventKind, NvmlEvent
from tests.deviceplugin.eventually import eventually

Key = tuple[EventKind, str | None, int | None]


class EventLog:
    """Takes events as the daemon would, and counts them by what they are.

    Attributes:
        missed: how often some may have been missed; not among the counts.
    """

    def __init__(self) -> None:
        self.counts: Counter[Key] = Counter()
        self.missed = 0
        self.times: list[float] = []
        self._lock = threading.Lock()

    def __call__(self, events: Sequence[NvmlEvent]) -> None:
        """Take a batch."""
        with self._lock:
            self.times.append(monotonic())
            for event in events:
                if event.kind is EventKind.MISSED:
                    self.missed += event.count
                    continue
                self.counts[event.kind, event.gpu, event.xid] += event.count

    def heard(self, counts: dict[Key, int]) -> bool:
        """Wait until *counts* is all that was heard."""
        return eventually(lambda: self.counts == counts)


def xid(gpu: str | None, code: int) -> Key:
    """Return the key of an XID."""
    return EventKind.XID, gpu, code
