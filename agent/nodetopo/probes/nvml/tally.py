"""Events merged by kind, so that a storm of them stays small."""

from collections.abc import Iterator

from msgspec.structs import replace

from nodetopo.model.nvml_event import EventKind, NvmlEvent

FLUSH_S = 0.1
"""Shortest time between two deliveries: ten a second are prompt, and cheap in a storm."""

MAX_KEYS = 1024
"""Most different events that are counted apart between two deliveries. 64 GPUs with a dozen codes
each are fewer; a storm of 800,000 XID lines had 29 (NVIDIA/NVSentinel #1120)."""

UNKNOWN_XID = 999
"""The code that NVML gives for an XID it does not know (nvml.h, ``nvmlEventData_t``)."""


class EventTally:
    """Counts events by kind, so that a storm stays as small as its variety; for one thread at once.

    Beyond :data:`MAX_KEYS` the XIDs of a GPU are counted together, as :data:`UNKNOWN_XID`: none
    is lost, and memory is bounded by the number of GPUs.
    """

    def __init__(self) -> None:
        self._counts: dict[NvmlEvent, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, event: NvmlEvent) -> None:
        """Add the count of *event*."""
        key = replace(event, count=1)
        if len(self._counts) >= MAX_KEYS and key not in self._counts:
            key = replace(key, xid=UNKNOWN_XID if key.kind is EventKind.XID else None)
        self._counts[key] = self._counts.get(key, 0) + event.count

    def take(self) -> tuple[NvmlEvent, ...]:
        """Return the counted events, first come first, and start over."""
        taken = tuple(replace(key, count=count) for key, count in self._counts.items())
        self._counts.clear()
        return taken


class HeldEvents:
    """Events with the time at which they were heard, joined over :data:`FLUSH_S`."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, EventTally]] = []  # when its last event was heard
        self._began = float("-inf")

    def add(self, event: NvmlEvent, heard_at: float) -> None:
        """Add *event*, which was heard at that time and not before the last one."""
        if not self._spans or heard_at - self._began >= FLUSH_S:
            self._began = heard_at
            self._spans.append((heard_at, EventTally()))
        tally = self._spans[-1][1]
        tally.add(event)
        self._spans[-1] = heard_at, tally

    def after(self, time_s: float | None) -> Iterator[NvmlEvent]:
        """Yield the events heard after *time_s*; all of them for ``None``."""
        for heard_at, tally in self._spans:
            if time_s is None or heard_at > time_s:
                yield from tally.take()
