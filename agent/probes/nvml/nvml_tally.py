"""Events joined by what they are, so that a storm of them stays as small as its variety."""

from dataclasses import replace

from agent.model.nvml_event import EventKind, NvmlEvent

FLUSH_S = 0.1
"""Shortest time between two deliveries: ten a second are prompt, and cheap in a storm."""

MAX_KEYS = 1024
"""Most different events that are told apart between two deliveries. 64 GPUs with a dozen codes
each are fewer; a storm of 800,000 XID lines had 29 (NVIDIA/NVSentinel #1120)."""

UNKNOWN_XID = 999
"""The code that NVML gives for an XID it does not know (nvml.h, ``nvmlEventData_t``)."""


class EventTally:
    """Counts events until they are taken; for one thread.

    Beyond :data:`MAX_KEYS` the XIDs of a GPU are told apart no more, and counted as
    :data:`UNKNOWN_XID`: none is lost, and memory is bounded by the number of GPUs.
    """

    def __init__(self) -> None:
        self._counts: dict[NvmlEvent, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, event: NvmlEvent) -> None:
        """Count *event* as often as it says."""
        key = replace(event, count=1)
        if len(self._counts) >= MAX_KEYS and key not in self._counts:
            key = replace(key, xid=UNKNOWN_XID if key.kind is EventKind.XID else None)
        self._counts[key] = self._counts.get(key, 0) + event.count

    def take(self) -> tuple[NvmlEvent, ...]:
        """Return what was counted, first come first, and start over."""
        taken = tuple(replace(key, count=count) for key, count in self._counts.items())
        self._counts.clear()
        return taken
