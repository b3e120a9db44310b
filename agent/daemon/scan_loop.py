"""The loop that reads the node: now and then, and when somebody asks for it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from agent.daemon.gpu_health import HealthWatch
from agent.daemon.target import Scene
from agent.model.snapshot import Snapshot
from agent.store import SnapshotStore

STEP_S = 0.2
"""Within this time a stop is noticed, and a wish for a scan."""


@dataclass(slots=True)
class Scanning:
    """Reads into the store. A scan that fails keeps what the last good one found.

    Attributes:
        interval_s: between two scans, asked for each time.
        health: learns of every scan, and may ask for one before its time; ``None`` for none.
        on_scan: called after each.
        beat: called every :data:`STEP_S` but while a scan goes on, to show that the loop lives.
    """

    scene: Scene
    store: SnapshotStore
    health: HealthWatch | None
    interval_s: Callable[[], float]
    on_scan: Callable[[], None]
    beat: Callable[[], None]
    _whole: threading.Event = field(default_factory=threading.Event, init=False)

    def scan_whole(self) -> None:
        """Scan soon, and read also what is kept from scan to scan; any thread may ask."""
        self._whole.set()

    def step(self, stopping: threading.Event) -> None:
        """Scan once, and wait until the next is due."""
        began = time.monotonic()
        snapshot = self.scene.machine.read()
        if self.health is not None:
            self.health.look(snapshot, self.scene.machine.nvml(), began=began)
        self._publish(snapshot)
        self.on_scan()
        self._pause(stopping)

    def _publish(self, snapshot: Snapshot) -> None:
        """Make *snapshot* the truth for every reader, if it says anything new."""
        before = self.store.current
        generation = self.store.publish(snapshot)
        if before is not None and generation == before.generation:
            return
        structlog.get_logger().info(
            "snapshot published",
            generation=generation,
            gpus=len(snapshot.gpus),
            hcas=len(snapshot.hcas or ()),
            issues=[f"{i.probe}: {i.subject} {i.reason}" for i in snapshot.issues],
        )

    def _pause(self, stopping: threading.Event) -> None:
        for _ in range(max(1, round(self.interval_s() / STEP_S))):
            self.beat()
            if self._whole.is_set() or stopping.wait(STEP_S):
                break
            if self.health is not None and self.health.wants_look:
                break
        if self._whole.is_set():
            self.scene.machine.reread()
        self._whole.clear()
