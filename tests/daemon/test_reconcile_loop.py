"""What the loop reports to people."""

from dataclasses import replace

from structlog.testing import capture_logs

from agent.daemon.reconcile_loop import NoticeReporter
from agent.publish.events import NodeEvent
from tests.daemon.test_registration_loop import REGISTERED

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
