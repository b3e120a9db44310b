"""When the daemon warns that GPUs are not listened to."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from nodetopo.model.nvml_event import EventKind, NvmlEvent
from nodetopo.model.plain import to_plain
from nodetopo.probes.nvml.event_pipe import FORGET_S, SILENT_S, EventPipe
from tests.deviceplugin.eventually import eventually

REASONS = ("nvmlEventSetWait_v2: Unknown Error", "no GPU offers events: Unknown Error")
EVENT = NvmlEvent(kind=EventKind.XID, gpu="GPU-1", xid=31)


class Child:
    """Reports silences at times of its own clock, as children do."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heard = 0
        self.pipe = EventPipe(self._take, clock=lambda: self.now)

    def _take(self, events: object) -> None:
        del events
        self._heard += 1

    def silent(self, reason: str) -> None:
        """Report that GPUs are not listened to; return when that was taken."""
        self._write({"silent": reason})
        self._write(to_plain(EVENT))  # taken after what stands before it
        before = self._heard
        assert eventually(lambda: self._heard > before)

    def _write(self, document: dict[str, Any]) -> None:
        os.write(self.pipe.write_end, json.dumps(document).encode() + b"\n")


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child()
    yield made
    made.pipe.close()


def warnings(child: Child, report: Callable[[int], None], times: range) -> list[str]:
    """Return the reasons of the warnings while *report* is called at each of *times*."""
    with capture_logs() as logs:
        for now in times:
            child.now = now
            report(now)
    return [line["reason"] for line in logs if line["log_level"] == "warning"]


def test_a_lasting_silence_is_one_warning_whatever_its_reasons(child: Child) -> None:
    def report(now: int) -> None:
        child.silent(REASONS[now // 10 % 2])

    assert warnings(child, report, range(0, int(SILENT_S), 10)) == []
    assert len(warnings(child, report, range(int(SILENT_S), 300, 10))) == 1


def test_a_silence_that_a_failed_scan_explains_is_no_warning(child: Child) -> None:
    def report(now: int) -> None:
        child.silent(REASONS[now // 10 % 2])
        child.pipe.excuse_silence()

    assert warnings(child, report, range(0, 300, 10)) == []


def test_short_silences_that_are_far_apart_are_no_warning(child: Child) -> None:
    apart = int(FORGET_S) + 1
    assert warnings(child, lambda _: child.silent(REASONS[0]), range(0, 9 * apart, apart)) == []


def test_what_is_followed_when_the_pipe_is_closed_is_let_go() -> None:
    def count() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = count()
    for _ in range(200):
        heard = Event()
        pipe = EventPipe(lambda _, heard=heard: heard.set())  # type: ignore[misc]
        output, end = os.pipe()
        pipe.follow(output)
        os.write(pipe.write_end, json.dumps(to_plain(EVENT)).encode() + b"\n")
        heard.wait()  # the thread now waits until it may deliver again, or the pipe is closed
        pipe.close()
        pipe.follow(output)  # by a scan that was in progress
        pipe.follow(None)
        os.close(output)
        os.close(end)
    assert eventually(lambda: count() == before)
