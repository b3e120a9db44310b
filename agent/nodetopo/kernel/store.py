"""The store of the latest snapshot: its generation, and a way to wait for the next one."""

import threading

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.snapshot import Snapshot


class Versioned(Struct, frozen=True):
    """A snapshot and the number of changes up to it, from 1."""

    snapshot: Snapshot
    generation: int


class SnapshotStore:
    """Holds the latest snapshot; readers only ever see whole snapshots."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.current: Versioned | None = None  # the latest snapshot; ``None`` before the first
        self._is_closed = False

    def publish(self, snapshot: Snapshot) -> int:
        """Make *snapshot* the latest and return its generation.

        The generation grows, and readers wake, only when something other than the time of
        capture differs: a steady node has a steady generation.
        """
        with self._changed:
            before = self.current
            if before is not None and replace(before.snapshot, captured_at=None) == replace(
                snapshot, captured_at=None
            ):
                self.current = Versioned(snapshot, before.generation)
                return before.generation
            self.current = Versioned(snapshot, before.generation + 1 if before else 1)
            self._changed.notify_all()
            return self.current.generation

    def wait(self, after: int, timeout_s: float) -> Versioned | None:
        """Return the first snapshot of a generation beyond *after*.

        ``None`` when *timeout_s* passes or the store closes without one.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._is_beyond(after), timeout_s)
            return self.current if self._is_beyond(after) else None

    def close(self) -> None:
        """Wake every waiter for good; the last snapshot stays readable."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _is_beyond(self, generation: int) -> bool:
        return self.current is not None and self.current.generation > generation
