"""The loop that reads the node: periodically, and on request."""

import threading
import time
from collections.abc import Callable

import structlog

from nodetopo.components.gpus.expected import ExpectedGpuCount
from nodetopo.components.gpus.health.monitor import GpuHealthMonitor
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kernel.target import Target
from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble

RETRY_S = 5.0
"""Until the second attempt to read an NVML that refuses or crashes; it doubles each time."""

MOST_DOUBLINGS = 10
"""Far beyond any interval, and still a number of seconds."""

BEAT_S = 5.0
"""How often a loop that waits for its next scan shows that it lives."""


class ScanLoop(PeriodicLoop):
    """Scans into the store. A scan that fails keeps what the last good one read.

    Args:
        interval_s: returns the seconds between two scans; called each time.
        health: gets every scan, and can request an early one; ``None`` for none.
        on_scan: called after each scan.
        beat: called every :data:`BEAT_S`, except during a scan, to show that the loop lives.
        clock: monotonic seconds, the same clock as for *health*.
        claim: returns why the driver must be free now; meanwhile NVML is closed and nothing is
            scanned. ``None`` without a reason.
        expected: knows the machine's GPU count; ``None`` if none is known.
    """

    def __init__(
        self,
        target: Target,
        store: SnapshotStore,
        *,
        health: GpuHealthMonitor | None,
        interval_s: Callable[[], float],
        on_scan: Callable[[], None],
        beat: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        expected: ExpectedGpuCount | None = None,
        claim: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._target = target
        self._expected = expected
        self._claim = claim
        self._rests = False
        self._store = store
        self._health = health
        self._interval_s = interval_s
        self._on_scan = on_scan
        self._beat = beat
        self._clock = clock
        self._wants_whole = threading.Event()
        self._is_asked = threading.Event()
        self.is_blind = False  # whether NVML gave no reading in the last scan
        self._had_reading = False
        self._failed_since: float | None = None

    def scan_whole(self) -> None:
        """Scan soon, and reread the facts that are cached between scans; any thread can ask."""
        self._wants_whole.set()
        self._is_asked.set()

    def scan_soon(self) -> None:
        """Scan before the interval ends, or stop with the daemon; any thread can ask."""
        self._is_asked.set()

    def step(self) -> float:
        """Scan once, and publish the snapshot to every reader if it has changed."""
        self._beat()
        if self._rested():
            return self._interval_s()
        began = self._clock()
        snapshot = self._target.machine.read()
        if self._expected is not None:
            snapshot = self._expected.put_into(snapshot)
        nvml = self._target.machine.nvml()
        self.is_blind = nvml.trouble is not None
        self._report(nvml, began)
        if self._health is not None:
            self._health.look(snapshot, nvml, began=began)
        before = self._store.current
        generation = self._store.publish(snapshot)
        if before is None or generation != before.generation:
            structlog.get_logger().info(
                "snapshot published",
                generation=generation,
                gpus=len(snapshot.gpus),
                hcas=len(snapshot.hcas or ()),
                issues=[f"{i.probe}: {i.subject} {i.reason}" for i in snapshot.issues],
            )
        self._on_scan()
        return self._pause_s(nvml)

    def _rested(self) -> bool:
        """Close NVML while the driver must be free; return whether it must.

        The last snapshot stays valid: a driver unloaded on purpose proves nothing about GPUs. A
        process that has none reads the rest of the node, to offer the GPUs that it remembers.
        """
        claim = self._claim()
        log = structlog.get_logger()
        if claim is None:
            if self._rests:
                self._rests = False
                self._target.machine.reread()
                log.info("NVML read again")
            return False
        is_free = self._target.machine.release()
        if not self._rests:
            self._rests = True
            log.info("NVML closed", claim=claim)
        if not is_free:
            log.warning("a call is stuck in the NVIDIA driver", claim=claim)
        read = self._target.machine.read_closed
        if self._store.current is None and read is not None:
            self._store.publish(read(f"closed, because {claim} requests a free driver"))
            self._on_scan()
        return True

    def _pause_s(self, nvml: NvmlStatus) -> float:
        """Return the seconds until the next scan, fewer if NVML could soon answer again.

        Events arrive only after a successful reading. Without an answer or a library, NVML is read
        once an interval: the first blocks a process, and the second takes time to be installed.
        """
        if nvml.trouble not in (NvmlTrouble.REFUSED, NvmlTrouble.DIED):
            return self._interval_s()
        doublings = min(max(0, nvml.failures - 1), MOST_DOUBLINGS)
        return min(self._interval_s(), RETRY_S * (1 << doublings))

    def _report(self, nvml: NvmlStatus, now: float) -> None:
        """Log once when NVML stops giving readings, and once when it resumes.

        The error can differ between attempts. A node on which no library was ever found has no
        GPUs, or waits for its driver.
        """
        log = structlog.get_logger()
        if nvml.trouble is None:
            if self._failed_since is not None:
                log.info("NVML gives readings again", after_s=round(now - self._failed_since, 1))
            self._had_reading, self._failed_since = True, None
        elif self._failed_since is None and (
            self._had_reading or nvml.trouble is not NvmlTrouble.NO_LIBRARY
        ):
            self._failed_since = now
            log.warning(
                "NVML gives no reading", trouble=nvml.trouble, cause=nvml.cause, cure=nvml.cure
            )

    def wait(self, stopping: threading.Event, seconds: float) -> None:
        """Wait for *seconds*, or until a scan is requested."""
        left_s = seconds
        while left_s > 0 and not stopping.is_set():
            self._beat()
            if self._is_asked.wait(min(left_s, BEAT_S)):
                break
            left_s -= BEAT_S
        self._is_asked.clear()
        if self._wants_whole.is_set():
            self._wants_whole.clear()  # only where it was set: a later request is another one
            self._target.machine.reread()
