"""Non-critical loops start after the device registration, or when that takes too long."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from nodetopo.components.gpus.component import Gpus
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.errors import InputError
from nodetopo.kernel.app import Daemon
from nodetopo.kernel.component import MOST_S, QUIET_S, STEP_S, wait_registered
from nodetopo.kernel.settings.declare import Settings
from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble
from tests.components.gpus.plugin_sets import serving_node
from tests.deviceplugin.eventually import eventually
from tests.kernel.running import WHOLE, component_of, running, with_settings


class Stopping(threading.Event):
    """Notes the waits, and takes none; it is set during the wait of the number *at*."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__()
        self.waits: list[float | None] = []
        self._at = at

    def wait(self, timeout: float | None = None) -> bool:
        """Return at once."""
        self.waits.append(timeout)
        if len(self.waits) == self._at:
            self.set()
        return self.is_set()


def test_it_begins_some_time_after_the_registration() -> None:
    stopping, answers = Stopping(), [False, False, True]
    assert not wait_registered(stopping, lambda: answers.pop(0))
    assert stopping.waits == [STEP_S, STEP_S, QUIET_S]


def test_it_does_not_wait_for_ever() -> None:
    stopping = Stopping()
    assert not wait_registered(stopping, lambda: False)
    *steps, last = stopping.waits
    assert (sum(filter(None, steps)), last) == (MOST_S, QUIET_S)


@pytest.mark.parametrize(("at", "is_registered"), [(1, False), (1, True), (5, False)])
def test_a_stop_ends_the_wait_and_nothing_begins(at: int, is_registered: bool) -> None:
    stopping = Stopping(at)
    assert wait_registered(stopping, lambda: is_registered)
    assert stopping.waits[:at] == [QUIET_S if is_registered else STEP_S] * at


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """Yield a daemon beside a kubelet, without metrics; nothing of it runs."""
    with running() as kernel:
        found = Daemon(kernel)
        component_of(kernel, Gpus).scans.step()
        yield found


def plugins(daemon: Daemon) -> PluginSet:
    return component_of(daemon.kernel, Gpus).plugins


def test_a_node_is_registered_once_the_kubelet_has_its_devices(daemon: Daemon) -> None:
    assert not plugins(daemon).is_registered
    plugins(daemon).take(WHOLE)
    assert eventually(lambda: plugins(daemon).is_registered)


def test_a_node_with_nothing_to_register_is_registered(daemon: Daemon) -> None:
    plugins(daemon).take(replace(WHOLE, gpus=()))
    assert plugins(daemon).is_registered


def names(daemon: Daemon) -> list[str]:
    return [component.name for component in daemon.kernel.running]


def test_publishers_wait_for_the_registration_however_long_it_takes(daemon: Daemon) -> None:
    with_settings(daemon.kernel, publish_labels=True)
    early = Stopping(at=20)
    daemon._run_publishers(early)
    assert early.waits[:20] == [STEP_S] * 20
    assert names(daemon) == ["gpus", "dra"]
    plugins(daemon).take(WHOLE)
    assert eventually(lambda: plugins(daemon).is_registered)
    late = Stopping(at=2)
    daemon._run_publishers(late)
    assert late.waits[:2] == [0, QUIET_S]
    assert names(daemon) == ["gpus", "dra", "labels"]


def test_publishers_start_where_nvml_gives_no_reading(daemon: Daemon) -> None:
    trouble = NvmlStatus(trouble=NvmlTrouble.REFUSED)
    scans = component_of(daemon.kernel, Gpus).scans
    machine = replace(daemon.kernel.target.machine, nvml=lambda: trouble)
    scans._target = replace(daemon.kernel.target, machine=machine)
    scans.step()
    stopping = Stopping(at=1)
    daemon._run_publishers(stopping)
    assert stopping.waits[0] == 0


def test_publishers_start_where_no_kubelet_runs() -> None:
    with serving_node() as found:
        found.kubelet.stop()
        found.plugins.take(WHOLE)
        assert eventually(lambda: found.plugins.is_decided)
        assert not found.plugins.is_registered


def test_the_daemon_waits_for_its_own_kubelet(daemon: Daemon) -> None:
    early, late = Stopping(at=2), Stopping(at=2)
    daemon._run_registered(early)
    assert (early.waits[:2], names(daemon)) == ([STEP_S] * 2, ["gpus", "dra"])
    plugins(daemon).take(WHOLE)
    assert eventually(lambda: plugins(daemon).is_registered)
    daemon._run_registered(late)
    assert late.waits[0] == QUIET_S
    assert names(daemon) == ["gpus", "dra", "audit"]


def test_settings_that_ask_for_a_component_while_the_daemon_runs_start_it(
    daemon: Daemon, tmp_path: Path
) -> None:
    pools = tmp_path / "pools.json"
    pool = {"resourceName": "hca", "rdmaHcaMax": 1, "selectors": {"vendors": ["15b3"]}}
    pools.write_text(json.dumps({"configList": [pool]}))
    wanted = daemon.kernel.settings.but(rdma_config=pools)

    def poll(apply: Callable[[Settings], None]) -> None:
        apply(wanted)

    daemon.kernel.reloader = SimpleNamespace(poll=poll)  # type: ignore[assignment]
    daemon.kernel.reload()
    daemon.kernel.reload()
    assert names(daemon) == ["gpus", "rdma", "dra"]
    assert daemon.kernel.settings is wanted
    daemon._group.stop()
    daemon.kernel.reloader = None


def test_settings_that_no_component_can_use_change_nothing(daemon: Daemon, tmp_path: Path) -> None:
    before = daemon.kernel.settings
    wanted = before.but(rdma_config=tmp_path / "none.json", resource_name="acme.com/gpu")

    def poll(apply: Callable[[Settings], None]) -> None:
        with pytest.raises(InputError, match=r"none\.json"):
            apply(wanted)

    daemon.kernel.reloader = SimpleNamespace(poll=poll)  # type: ignore[assignment]
    daemon.kernel.reload()
    assert daemon.kernel.settings is before
    assert names(daemon) == ["gpus", "dra"]
    daemon.kernel.reloader = None
