"""Non-critical loops start after the device registration, or when that takes too long."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent.config.settings import Settings
from agent.daemon.app import MOST_S, QUIET_S, STEP_S, Daemon, wait_registered
from agent.daemon.check_terms import OverridesFile
from agent.daemon.components import Components
from agent.daemon.target import Machine, Target
from agent.model.nvml_event import NvmlStatus, NvmlTrouble
from agent.store import SnapshotStore
from tests.daemon.plugin_sets import ServedNode, serving_node
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node

WHOLE = node("h100x8-nvswitch-2numa-8cx7")
GPU = "nvidia.com/gpu"


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
def served() -> Iterator[ServedNode]:
    with serving_node() as found:
        yield found


def test_a_node_is_registered_once_the_kubelet_has_its_devices(served: ServedNode) -> None:
    assert not served.plugins.is_registered
    served.plugins.take(WHOLE)
    assert eventually(lambda: served.plugins.is_registered)
    assert served.listed(GPU) == {GPU: 8}


def test_a_node_with_nothing_to_register_is_registered(served: ServedNode) -> None:
    served.plugins.take(replace(WHOLE, gpus=()))
    assert served.plugins.is_registered


def components_of(served: ServedNode) -> Components:
    """Return the components of a daemon with the plugins of *served* and no metrics."""
    machine = Machine(read=lambda: WHOLE, reread=lambda: None, nvml=NvmlStatus)
    return Components(
        settings=Settings(node_name="n", metrics_address=None),
        target=Target(machine=machine, simulated=None, socket_dir=served.directory),
        store=SnapshotStore(),
        plugins=served.plugins,
        overrides=OverridesFile(None),
    )


def daemon_of(components: Components, nvml: NvmlStatus) -> Daemon:
    """Return a daemon with *components*, whose machine was read once, with *nvml*."""
    machine = Machine(read=lambda: WHOLE, reread=lambda: None, nvml=lambda: nvml)
    components.target = replace(components.target, machine=machine)
    daemon = Daemon(components, threading.Event())
    daemon._scan_loop.step()
    return daemon


def test_publishers_wait_for_the_registration_however_long_it_takes(served: ServedNode) -> None:
    daemon, early = daemon_of(components_of(served), NvmlStatus()), Stopping(at=20)
    daemon._run_publishers(early)
    assert early.waits[:20] == [STEP_S] * 20
    assert daemon._metrics is None
    served.plugins.take(WHOLE)
    assert eventually(lambda: served.plugins.is_registered)
    late = Stopping(at=1)
    daemon._run_publishers(late)
    assert late.waits[0] == 0


def test_publishers_start_where_nvml_gives_no_reading(served: ServedNode) -> None:
    trouble = NvmlStatus(trouble=NvmlTrouble.REFUSED)
    daemon, stopping = daemon_of(components_of(served), trouble), Stopping(at=1)
    daemon._run_publishers(stopping)
    assert stopping.waits[0] == 0


def test_publishers_start_where_no_kubelet_runs() -> None:
    with serving_node() as found:
        found.kubelet.stop()
        found.plugins.take(WHOLE)
        assert eventually(lambda: found.plugins.is_decided)
        assert not found.plugins.is_registered


def test_the_daemon_waits_for_its_own_kubelet(served: ServedNode) -> None:
    components = components_of(served)
    daemon, early, late = Daemon(components, threading.Event()), Stopping(at=2), Stopping(at=1)
    daemon._run_pod_loops(early)
    assert (early.waits[:2], components.pod_loops) == ([STEP_S] * 2, None)
    served.plugins.take(WHOLE)
    assert eventually(lambda: served.plugins.is_registered)
    daemon._run_pod_loops(late)
    assert (late.waits, components.pod_loops) == ([QUIET_S], None)
