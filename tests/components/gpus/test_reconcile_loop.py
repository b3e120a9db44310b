"""The loop that keeps what is offered in step."""

from pathlib import Path

import pytest

from nodetopo.components.gpus.driver_pause import DriverPause
from nodetopo.components.gpus.health import monitor as gpu_health
from nodetopo.components.gpus.health.monitor import GpuHealthMonitor
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.components.gpus.reconcile_loop import ReconcileLoop
from nodetopo.components.gpus.state_files import HealthFile
from nodetopo.kernel.settings.declare import Settings
from nodetopo.model.nvml_event import NvmlTrouble
from tests.components.gpus.health.gpu_history import FINE, SOUND, trouble, xid
from tests.kernel.running import kernel_of


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_container_is_not_restarted_while_the_driver_is_claimed(
    tmp_path: Path, is_paused: bool
) -> None:
    now = [0.0]
    file = HealthFile(tmp_path / "health.json")
    health = GpuHealthMonitor(
        HealthRules(), file, boot_id=None, clock=lambda: now[0], on_change=lambda: None
    )
    health.look(SOUND, FINE)
    health.look(SOUND, trouble(NvmlTrouble.REFUSED, code=999))
    loop = ReconcileLoop(
        kernel_of(tmp_path),
        PluginSet(Settings(node_name="n"), tmp_path, None),
        health=health,
        is_paused=lambda: is_paused,
    )
    ends = []
    for _ in range(10):
        now[0] += 60
        ends.append(loop.step() is None)
    assert any(ends) is not is_paused
    assert bool(health.view) is not is_paused


@pytest.mark.parametrize(("state", "asked"), [("success", [True]), ("pending", [])])
def test_a_verdict_that_wants_a_look_waits_while_the_driver_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, asked: list[bool]
) -> None:
    monkeypatch.setattr(gpu_health, "LOOK_PAUSE_S", 0.0)
    health = GpuHealthMonitor(HealthRules(), None, boot_id=None, on_change=lambda: None)
    health.take_events([xid(154)])
    assert health.wants_look
    pause, scans = DriverPause(), list[bool]()
    pause.note({"labels": {"nvidia.com/mig.config.state": state}})
    loop = ReconcileLoop(
        kernel_of(tmp_path),
        PluginSet(Settings(node_name="n"), tmp_path, None),
        health=health,
        is_paused=lambda: pause.claim is not None,
        scan=lambda: scans.append(True),
    )
    loop.step()
    assert scans == asked
