"""The loop that reads the node, and what it makes of errors that come while it reads."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.daemon import gpu_health
from agent.daemon.gpu_health import GpuHealthMonitor
from agent.daemon.scan_loop import ScanLoop
from agent.daemon.target import Machine, Target
from agent.health.rules import HealthRules
from agent.model.nvml_event import NvmlStatus
from agent.model.snapshot import Snapshot
from agent.store import SnapshotStore
from tests.health.gpu_history import SOUND, xid


def scan(health: GpuHealthMonitor, read: Callable[[], Snapshot]) -> None:
    """Scan once, and do not wait for the next."""
    machine = Machine(read=read, reread=lambda: None, nvml=NvmlStatus)
    ScanLoop(
        target=Target(machine=machine, simulated=None, socket_dir=Path("/nowhere")),
        store=SnapshotStore(),
        health=health,
        interval_s=lambda: 60.0,
        on_scan=lambda: None,
        beat=lambda: None,
    ).step()


def test_an_error_during_a_scan_asks_for_another_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_health, "LOOK_PAUSE_S", 0.0)
    health = GpuHealthMonitor(HealthRules(), None, boot_id=None, on_change=lambda: None)

    def read() -> Snapshot:
        health.take_events([xid(154)])
        return SOUND

    scan(health, read)
    assert health.wants_look
    scan(health, lambda: SOUND)
    assert not health.wants_look
