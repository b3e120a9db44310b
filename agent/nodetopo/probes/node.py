"""The live node, read periodically: whole at first, then only where it changes."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.errors import NvmlUnavailable
from nodetopo.model.nvml_event import NvmlEvent, NvmlStatus
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import addresses, join, read_or_issue
from nodetopo.probes.nvml.record import NvmlReading
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from nodetopo.probes.sysfs.changes import REREAD_S
from nodetopo.probes.sysfs.host import Host, Roots


class ScanCost(Struct, frozen=True, kw_only=True):
    """The cost of one scan."""

    nvml_calls: int  # made by this scan; 0 while NVML does not answer
    file_reads: int  # files opened, directories listed, links followed
    is_whole: bool  # no result of an earlier scan was used


class NodeReader:
    """Reads one node through NVML and the given roots, for as long as the daemon lives.

    Args:
        clock: monotonic seconds; a whole scan is due every :data:`REREAD_S`.
        on_events: see :class:`nodetopo.probes.nvml.supervisor.NvmlSupervisor`.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        node: str,
        nvml_library: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_events: Callable[[Sequence[NvmlEvent]], None] | None = None,
    ) -> None:
        self._node = node
        self._supervisor = NvmlSupervisor(nvml_library, on_events=on_events)
        self._host = Host(roots)
        self._clock = clock
        self._last: NvmlReading | None = None
        self._whole_due = float("-inf")
        self._calls = 0
        self._cost: ScanCost | None = None

    @property
    def last_cost(self) -> ScanCost | None:
        """The cost of the last :meth:`read`; ``None`` before the first."""
        return self._cost

    @property
    def nvml_status(self) -> NvmlStatus:
        """How the last attempt to read NVML ended."""
        return self._supervisor.status

    def read(self) -> Snapshot:
        """Return the node's current state; unchanging facts come from an earlier scan.

        Everything is read again after hot-plug, after the driver, the GPUs or their MIG devices
        changed, every hour, and after :meth:`reread`; :mod:`nodetopo.probes.sysfs.changes` lists
        the paths read each time.

        While NVML does not answer, its part comes from the last good scan, with an issue of the
        probe ``nvml`` for the cause: devices must not vanish because a driver call hangs.
        """
        is_whole = self._host.renew() or self._clock() >= self._whole_due
        before = self._last
        reading = read_or_issue(lambda: self._scan(is_whole=is_whole))
        if is_whole or _identity(before) != _identity(self._last):
            is_whole = True
            self._host.forget()
            self._whole_due = self._clock() + REREAD_S
        snapshot = join(reading, *self._host.read(addresses(reading)))
        self._cost = ScanCost(
            nvml_calls=self._calls, file_reads=self._host.reads, is_whole=is_whole
        )
        return self._taken(snapshot)

    def read_closed(self, cause: str) -> Snapshot:
        """Return the node's current state without NVML, which stays closed for *cause*."""
        issue = ProbeIssue(probe="nvml", subject="", reason=cause)
        closed = NvmlReading(issues=(issue,))
        return self._taken(join(closed, *self._host.read(()), is_asked=False))

    def _taken(self, snapshot: Snapshot) -> Snapshot:
        now = datetime.now(UTC).replace(microsecond=0)
        return replace(snapshot, node=self._node, captured_at=now)

    def reread(self) -> None:
        """Make the next scan a whole one. May be called by any thread."""
        self._whole_due = float("-inf")

    def release(self) -> bool:
        """End the NVML child until the next scan; return whether it ended."""
        return self._supervisor.release()

    def close(self) -> None:
        """End the NVML child."""
        self._supervisor.close()

    def _scan(self, *, is_whole: bool) -> NvmlReading:
        self._calls = 0
        try:
            self._last = self._supervisor.scan() if is_whole else self._supervisor.refresh()
        except NvmlUnavailable as error:
            if self._last is None:
                raise
            issue = ProbeIssue(probe="nvml", subject="", reason=error.cause)
            return replace(self._last, issues=(*self._last.issues, issue))
        self._calls = self._last.calls
        return self._last


def _identity(reading: NvmlReading | None) -> object:
    """Return a key that differs between sets of GPUs, drivers and MIG devices."""
    if reading is None:
        return None
    gpus = ((gpu.uuid, gpu.pci, gpu.mig) for gpu in reading.gpus)
    return reading.driver_version, reading.nvml_version, tuple(gpus)
