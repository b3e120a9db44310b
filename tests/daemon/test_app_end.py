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
from agent.daemon.check_terms import TermsFile
from agent.daemon.components import Parts
from agent.daemon.plugins import Offering
from agent.daemon.target import Machine, Scene
from agent.model.nvml_event import NvmlStatus
from agent.model.snapshot import Snapshot
from agent.store import SnapshotStore
from tests.daemon.plugin_sets import playing
from tests.deviceplugin.machines import node

WHOLE = node("h100x8-nvswitch-2numa-8cx7")
SETTINGS = Settings(node_name="n", metrics_address=None, publish_labels=False, publish_events=False)


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the signals of the process that runs the tests alone."""
    monkeypatch.setattr(loops, "hand_over", lambda *_: None)


@contextmanager
def started(read: Callable[[], Snapshot] = lambda: WHOLE) -> Iterator[Daemon]:
    """Yield a daemon that is to run on what *read* returns."""
    with playing() as played:
        machine = Machine(read=read, reread=lambda: None, nvml=NvmlStatus)
        parts = Parts(
            settings=SETTINGS,
            scene=Scene(machine=machine, simulated="h100", socket_dir=played.directory),
            store=SnapshotStore(),
            offering=played.offering,
            terms=TermsFile(None),
        )
        daemon = Daemon(parts, threading.Event())
        try:
            yield daemon
        finally:
            daemon.close()


def test_a_stop_that_was_asked_for_is_no_failure() -> None:
    with started() as daemon:
        assert daemon.run(lambda _: daemon._stop()) == 0


def test_a_single_run_that_was_stopped_before_there_was_anything_to_show_could_not_tell() -> None:
    with started() as daemon:
        daemon._parts.settings = replace(SETTINGS, once=True)
        daemon._stop()
        assert daemon.run(lambda _: None) == 3


def test_a_loop_of_ours_that_fails_is_one() -> None:
    def read() -> Snapshot:
        raise KeyError("of ours")

    with started(read) as daemon, capture_logs() as logs:
        assert daemon.run(None) == 1
    assert [line["actor"] for line in logs if line["event"] == "actor failed"] == ["scan"]


def test_a_plugin_that_only_a_new_container_can_help_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = (SimpleNamespace(last_problem="the directory is another one"),)
    with started() as daemon, capture_logs() as logs:
        monkeypatch.setattr(Offering, "lost", property(lambda _: lost))
        assert daemon.run(None) == 1
    (line,) = [line for line in logs if line["event"] == "daemon ends"]
    assert line["problem"] == "the directory is another one"
