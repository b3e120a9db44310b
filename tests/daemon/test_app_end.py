"""How a run of the daemon ends: by its code a supervisor learns whether it was asked to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from agent.config.settings import Settings
from agent.daemon import loops
from agent.daemon.app import Daemon
from agent.daemon.check_terms import OverridesFile
from agent.daemon.components import Components
from agent.daemon.driver_pause import DriverPause
from agent.daemon.plugins import PluginSet
from agent.daemon.target import Machine, Target
from agent.model.nvml_event import NvmlStatus
from agent.model.snapshot import Snapshot
from agent.store import SnapshotStore
from tests.daemon.plugin_sets import serving_node
from tests.deviceplugin.machines import node

WHOLE = node("h100x8-nvswitch-2numa-8cx7")
SETTINGS = Settings(node_name="n", metrics_address=None, publish_labels=False, publish_events=False)


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the signals of the process that runs the tests alone."""
    monkeypatch.setattr(loops, "install_signal_handlers", lambda *_: None)


@contextmanager
def started(
    read: Callable[[], Snapshot] = lambda: WHOLE, pause: DriverPause | None = None
) -> Iterator[Daemon]:
    """Yield a daemon that runs on what *read* returns."""
    with serving_node() as served:
        machine = Machine(read=read, reread=lambda: None, nvml=NvmlStatus)
        components = Components(
            settings=SETTINGS,
            target=Target(machine=machine, simulated="h100", socket_dir=served.directory),
            store=SnapshotStore(),
            plugins=served.plugins,
            overrides=OverridesFile(None),
            pause=pause,
        )
        daemon = Daemon(components, threading.Event())
        try:
            yield daemon
        finally:
            daemon.close()


def test_a_requested_stop_is_no_failure() -> None:
    with started() as daemon:
        assert daemon.run(lambda _: daemon._stop()) == 0


def test_a_single_run_that_is_stopped_too_early_ends_with_status_3() -> None:
    with started() as daemon:
        daemon._components.settings = replace(SETTINGS, once=True)
        daemon._stop()
        assert daemon.run(lambda _: None) == 3


def test_a_loop_that_raises_is_a_failure() -> None:
    def read() -> Snapshot:
        raise KeyError("of ours")

    with started(read) as daemon, capture_logs() as logs:
        assert daemon.run(None) == 1
    assert [line["actor"] for line in logs if line["event"] == "actor failed"] == ["scan"]


def test_a_plugin_that_only_a_new_container_can_help_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = (SimpleNamespace(last_problem="the directory is another one"),)
    with started() as daemon, capture_logs() as logs:
        monkeypatch.setattr(PluginSet, "lost", property(lambda _: lost))
        assert daemon.run(None) == 1
    (line,) = [line for line in logs if line["event"] == "daemon ends"]
    assert line["problem"] == "the directory is another one"


def test_a_pause_of_the_driver_wakes_the_scan_and_what_reports_it() -> None:
    pause = DriverPause()
    with started(pause=pause) as daemon:
        pause.note({"labels": {"nvidia.com/mig.config.state": "pending"}})
        assert daemon._scan_loop._is_asked.is_set()
        assert daemon._wake.is_set()
