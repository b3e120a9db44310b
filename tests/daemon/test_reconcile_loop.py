"""What the loop reports to people."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.config.settings import Settings
from agent.daemon import gpu_health
from agent.daemon.driver_pause import DriverPause
from agent.daemon.gpu_health import GpuHealthMonitor
from agent.daemon.plugins import PluginSet
from agent.daemon.reconcile_loop import NoticeReporter, ReconcileLoop
from agent.health.rules import HealthRules
from agent.publish.events import NodeEvent
from agent.store import SnapshotStore
from tests.daemon.test_registration_loop import REGISTERED
from tests.health.gpu_history import xid

PROBLEM = "no libcuda.so.580.95.05 was found — set driver-root"


def test_a_problem_of_the_specification_is_reported_once_and_its_end_too() -> None:
    posted: list[NodeEvent] = []
    reporter = NoticeReporter(posted.append)
    with capture_logs() as lines:
        for problem in (None, PROBLEM, PROBLEM, None, None):
            reporter.report_cdi(problem)
    assert [(event.reason, event.is_warning) for event in posted] == [
        ("CdiNotWritten", True),
        ("CdiWritten", False),
    ]
    assert posted[0].message == PROBLEM
    assert [(line["log_level"], line["reason"]) for line in lines] == [
        ("warning", "CdiNotWritten"),
        ("info", "CdiWritten"),
    ]


def test_another_problem_of_the_specification_is_reported_as_well() -> None:
    posted: list[NodeEvent] = []
    reporter = NoticeReporter(posted.append)
    for problem in (PROBLEM, "another"):
        reporter.report_cdi(problem)
    assert [event.message for event in posted] == [PROBLEM, "another"]


def test_what_others_take_is_reported_by_resource_and_so_is_its_end() -> None:
    posted: list[NodeEvent] = []
    reporter = NoticeReporter(posted.append)
    taken = replace(REGISTERED, unlisted="the kubelet lists none", siblings=("a.sock", "b.sock"))
    for state in (REGISTERED, taken, taken, REGISTERED):
        reporter.report_plugins({"nvidia.com/gpu": state})
    assert [(event.reason, event.is_warning, event.key) for event in posted] == [
        ("NotListed", True, "nvidia.com/gpu"),
        ("AnotherInstance", True, "nvidia.com/gpu"),
        ("ListedAgain", False, "nvidia.com/gpu"),
        ("OnlyInstance", False, "nvidia.com/gpu"),
    ]
    assert "by the sockets a.sock, b.sock: run one" in posted[1].message


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
        SnapshotStore(),
        PluginSet(Settings(node_name="n"), tmp_path, None),
        health=health,
        notices=NoticeReporter(),
        reload=lambda: (),
        beat=lambda: None,
        wake=threading.Event(),
        pause=pause,
        scan=lambda: scans.append(True),
    )
    loop.step()
    assert scans == asked
