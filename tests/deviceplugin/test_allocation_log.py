"""The log of allocations: in the background, bounded, and never silent."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import structlog

from nodetopo.deviceplugin import allocation_log
from nodetopo.deviceplugin.allocation_log import (
    ANSWERS,
    REMEMBERED,
    WAITING,
    AllocationLog,
    Asked,
    Explain,
    no_reasons,
)
from tests.deviceplugin.eventually import eventually
from tests.generous_deadlines import PATIENCE_S

QUESTION = Asked(available=("a", "b", "c"), required=("a",), size=2, took_ms=0.25)


class Lines:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[Mapping[str, Any]] = []

    def _keep(self, _: Any, level: str, line: Any) -> Any:
        self.kept.append({"level": level, **line})
        raise structlog.DropEvent

    def logger(self) -> Any:
        """Return what writes here."""
        return structlog.wrap_logger(None, processors=[self._keep])


def asked_size(ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
    return {"first": ids[0], "size": asked.size if asked else None}


def logged(explain: Explain = asked_size) -> tuple[AllocationLog, list[Mapping[str, Any]]]:
    lines = Lines()
    return AllocationLog(explain, lines.logger(), PATIENCE_S), lines.kept


class Refused(threading.Thread):
    """A thread at the limit of processes."""

    def start(self) -> None:
        """Refuse, in Python's words for EAGAIN."""
        raise RuntimeError("can't start new thread")


def test_at_the_limit_of_threads_allocations_wait_for_their_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, lines = logged()
    with monkeypatch.context() as limit:
        limit.setattr(allocation_log, "Thread", Refused)
        log.allocated(["a"])
        log.allocated(["b"])
    assert log.count == 2
    log.allocated(["c"])
    assert eventually(lambda: [line["chosen"] for line in lines] == [["a"], ["b"], ["c"]])
    log.close()


def test_without_any_thread_closing_writes_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation_log, "Thread", Refused)
    log, lines = logged()
    for number in range(WAITING + 1):
        log.allocated([str(number)])
    log.close()
    assert len(lines) == WAITING + 1
    log.close()


def threads() -> list[threading.Thread]:
    """Return the threads of such logs; what else begins meanwhile is no business of theirs."""
    return [thread for thread in threading.enumerate() if thread.name == "allocation log"]


def test_a_set_that_was_our_answer_was_chosen_by_us() -> None:
    log, lines = logged()
    log.answered(QUESTION, ["a", "b"])
    log.allocated(["b", "a"])
    log.close()
    assert lines == [
        {
            "level": "info",
            "event": "devices allocated",
            "chosen": ["b", "a"],
            "first": "b",
            "size": 2,
            "chosen_by": "us",
            "took_ms": 0.25,
        }
    ]


def test_any_other_set_was_chosen_by_the_kubelet() -> None:
    log, lines = logged()
    log.answered(QUESTION, ["a", "b"])
    log.allocated(["a", "c"])
    log.close()
    (line,) = lines
    assert (line["chosen_by"], line["size"], line["took_ms"]) == ("kubelet", None, None)


def test_an_answer_counts_once() -> None:
    log, lines = logged()
    log.answered(QUESTION, ["a"])
    log.allocated(["a"])
    log.allocated(["a"])
    log.close()
    assert [line["chosen_by"] for line in lines] == ["us", "kubelet"]


def test_only_the_last_answers_are_remembered() -> None:
    log, lines = logged()
    for number in range(ANSWERS + 1):
        log.answered(QUESTION, [str(number)])
    for number in (0, 1, ANSWERS):
        log.allocated([str(number)])
    log.close()
    assert [line["chosen_by"] for line in lines] == ["kubelet", "us", "us"]


def test_allocating_does_not_wait_for_the_reasons() -> None:
    may_end = threading.Event()

    def slow(ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
        may_end.wait(30)
        return asked_size(ids, asked)

    log, lines = logged(slow)
    log.allocated(["a"])
    log.allocated(["b"])
    assert lines == []  # and this line was reached while the first explanation is not done
    may_end.set()
    assert eventually(lambda: [line["first"] for line in lines] == ["a", "b"])
    log.close()


def test_more_than_may_wait_are_logged_at_once_without_reasons_and_counted() -> None:
    is_explaining, may_end = threading.Event(), threading.Event()

    def slow(ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
        is_explaining.set()
        may_end.wait(30)
        return asked_size(ids, asked)

    log, lines = logged(slow)
    log.allocated(["busy"])
    assert is_explaining.wait(30)
    for number in range(WAITING + 2):
        log.allocated([str(number)])
    assert [(line["level"], line["chosen"], line["unexplained"]) for line in lines] == [
        ("warning", [str(WAITING)], 1),
        ("warning", [str(WAITING + 1)], 2),
    ]
    assert log.dropped == 2
    may_end.set()
    log.close()
    assert eventually(lambda: len(lines) == WAITING + 3)


def test_a_fault_in_the_reasons_is_logged_and_does_not_end_the_log() -> None:
    def faulty(ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
        if ids == ("a",):
            raise ZeroDivisionError
        return asked_size(ids, asked)

    log, lines = logged(faulty)
    log.allocated(["a"])
    log.allocated(["b"])
    log.close()
    assert [(line["event"], line["chosen"]) for line in lines] == [
        ("allocation not explained", ["a"]),
        ("devices allocated", ["b"]),
    ]


def test_closing_writes_what_waits_and_ends_the_thread() -> None:
    before = set(threads())
    log, lines = logged()
    for number in range(10):
        log.allocated([str(number)])
    log.close()
    assert len(lines) == 10
    assert set(threads()) <= before


def test_after_closing_an_allocation_is_still_logged() -> None:
    log, lines = logged()
    log.close()
    log.allocated(["a"])
    assert [line["chosen"] for line in lines] == [["a"]]


def test_the_latest_allocations_are_kept_with_their_reasons() -> None:
    def reasons(ids: Sequence[str], _asked: Asked | None) -> Mapping[str, object]:
        if ids[0] == "broken":
            raise ValueError("no reasons")
        return {"said": f"because of {ids[0]}"}

    log = AllocationLog(reasons, Lines().logger(), PATIENCE_S, resource="r/gpu")
    log.answered(QUESTION, ["a", "b"])
    log.allocated(["b", "a"])
    log.allocated(["broken"])
    log.close()
    assert [(one.resource, one.devices, one.is_ours, one.said) for one in log.recent] == [
        ("r/gpu", ("b", "a"), True, "because of b"),
        ("r/gpu", ("broken",), False, None),
    ]


def test_of_many_allocations_the_latest_are_kept() -> None:
    log = AllocationLog(no_reasons, Lines().logger(), PATIENCE_S)
    for number in range(REMEMBERED + 5):
        log.allocated([str(number)])
    log.close()
    assert [one.devices for one in log.recent] == [
        (str(number),) for number in range(5, REMEMBERED + 5)
    ]
