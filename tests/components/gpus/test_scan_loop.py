"""The loop that reads the node, and what it makes of errors that come while it reads."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nodetopo.components.gpus.driver_pause import DriverPause
from nodetopo.components.gpus.health import monitor as gpu_health
from nodetopo.components.gpus.health.monitor import GpuHealthMonitor
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.scan_loop import ScanLoop
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kernel.target import Machine, Target
from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.gpus.health.gpu_history import SOUND, xid

TIMEOUT_S = 60.0
UNREAD = Snapshot(issues=(ProbeIssue(probe="nvml", subject="", reason="closed"),))


def scan_loop(
    health: GpuHealthMonitor | None,
    read: Callable[[], Snapshot],
    nvml: Callable[[], NvmlStatus] = NvmlStatus,
    claim: Callable[[], str | None] = lambda: None,
    **machine_calls: Any,
) -> ScanLoop:
    """Return a loop that a test steps itself."""
    machine = Machine(**{"read": read, "reread": lambda: None, "nvml": nvml, **machine_calls})
    return ScanLoop(
        target=Target(machine=machine, simulated=None, socket_dir=Path("/nowhere")),
        store=SnapshotStore(),
        health=health,
        interval_s=lambda: 60.0,
        on_scan=lambda: None,
        beat=lambda: None,
        claim=claim,
    )


def logged(statuses: Iterable[NvmlStatus]) -> list[tuple[str, str]]:
    """Scan once for each of *statuses*, which is how NVML fares; return levels and events."""
    given = list(statuses)
    left = iter(given)
    loop = scan_loop(None, lambda: SOUND, lambda: next(left))
    with capture_logs() as logs:
        for _ in given:
            loop.step()
    return [(line["log_level"], line["event"]) for line in logs if "NVML" in line["event"]]


TROUBLES = (
    (NvmlTrouble.REFUSED, "nvmlDeviceGetCount_v2: Unknown Error", "start the container anew"),
    (NvmlTrouble.DIED, "the NVML process was killed by signal 11", "look for its cause in `dmesg`"),
    (NvmlTrouble.REFUSED, "nvmlInitWithFlags: Unknown Error", "start the container anew"),
    (NvmlTrouble.NO_ANSWER, "a call is stuck in the NVIDIA driver (process 7)", "reset the GPU"),
)


def failed(minute: range) -> list[NvmlStatus]:
    """Return how NVML fares at each second of *minute*: another call fails each time."""
    return [
        NvmlStatus(trouble=trouble, failures=second + 1, cause=cause, cure=cure)
        for second in minute
        for trouble, cause, cure in (TROUBLES[second % len(TROUBLES)],)
    ]


def test_a_minute_without_readings_is_one_warning_and_one_message_at_its_end() -> None:
    once = [("warning", "NVML gives no reading"), ("info", "NVML gives readings again")]
    outage = [*failed(range(60)), NvmlStatus()]
    assert logged([NvmlStatus(), *outage, NvmlStatus()]) == once
    assert logged(outage) == once
    assert logged([*outage, *outage]) == once * 2


def test_a_warning_of_nvml_has_its_cause_and_cure() -> None:
    (status,) = failed(range(1))
    with capture_logs() as logs:
        scan_loop(None, lambda: SOUND, lambda: status).step()
    (warning,) = (line for line in logs if line["log_level"] == "warning")
    assert (warning["trouble"], warning["cause"], warning["cure"]) == TROUBLES[0]


def test_a_node_that_never_had_a_library_is_no_warning_and_one_that_lost_it_is() -> None:
    none = NvmlStatus(trouble=NvmlTrouble.NO_LIBRARY, failures=1, cause="no libnvidia-ml.so.1")
    assert logged([none, none, NvmlStatus()]) == []
    assert logged([none, NvmlStatus(), none, none]) == [("warning", "NVML gives no reading")]


def test_an_error_during_a_scan_asks_for_another_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_health, "LOOK_PAUSE_S", 0.0)
    health = GpuHealthMonitor(HealthRules(), None, boot_id=None, on_change=lambda: None)

    def read() -> Snapshot:
        health.take_events([xid(154)])
        return SOUND

    scan_loop(health, read).step()
    assert health.wants_look
    scan_loop(health, lambda: SOUND).step()
    assert not health.wants_look


def test_a_wait_for_the_next_scan_ends_when_one_is_asked_for() -> None:
    loop = scan_loop(None, lambda: SOUND)
    loop.scan_soon()
    loop.wait(threading.Event(), 1e6)
    waiting = threading.Thread(target=loop.wait, args=(threading.Event(), 1e6))
    waiting.start()
    loop.scan_whole()
    waiting.join(TIMEOUT_S)
    assert not waiting.is_alive()


def test_a_wait_for_the_next_scan_ends_at_a_stop() -> None:
    loop, stopping = scan_loop(None, lambda: SOUND), threading.Event()
    stopping.set()
    loop.wait(stopping, 1e6)


def pause_s(status: NvmlStatus) -> float:
    """Return the seconds until the next scan after NVML has fared so."""
    pause = scan_loop(None, lambda: SOUND, lambda: status).step()
    assert pause is not None
    return pause


@pytest.mark.parametrize("trouble", [NvmlTrouble.REFUSED, NvmlTrouble.DIED])
def test_an_nvml_that_may_soon_answer_is_asked_soon(trouble: NvmlTrouble) -> None:
    pauses = [pause_s(NvmlStatus(trouble=trouble, failures=count)) for count in (1, 2, 3, 4, 5, 99)]
    assert pauses == [5, 10, 20, 40, 60, 60]


@pytest.mark.parametrize("trouble", [None, NvmlTrouble.NO_ANSWER, NvmlTrouble.NO_LIBRARY])
def test_an_nvml_that_answers_or_hangs_or_is_missing_is_asked_at_each_interval(
    trouble: NvmlTrouble | None,
) -> None:
    assert pause_s(NvmlStatus(trouble=trouble, failures=0 if trouble is None else 1)) == 60


def test_while_the_driver_is_claimed_nothing_is_read_and_nvml_is_closed() -> None:
    claims: list[str | None] = [None, "a=b", "a=b", None]
    reads: list[int] = []
    closed: list[bool] = []

    def read() -> Snapshot:
        reads.append(len(closed))
        return SOUND

    def release() -> bool:
        closed.append(True)
        return True

    left = iter(claims)
    loop = scan_loop(None, read, claim=lambda: next(left), release=release)
    with capture_logs() as logs:
        for _ in claims:
            loop.step()
    assert (reads, len(closed)) == ([0, 2], 2)
    events = [(line["log_level"], line["event"]) for line in logs if "NVML" in line["event"]]
    assert events == [("info", "NVML closed"), ("info", "NVML read again")]


def test_a_process_that_begins_in_a_pause_reads_the_rest_of_the_node_once() -> None:
    claims: list[str | None] = ["a=b", "a=b", None, "a=b"]
    left, causes = iter(claims), list[str]()

    def read_closed(cause: str) -> Snapshot:
        causes.append(cause)
        return UNREAD

    loop = scan_loop(None, lambda: SOUND, claim=lambda: next(left), read_closed=read_closed)
    seen = []
    for _ in claims:
        loop.step()
        current = loop._store.current
        seen.append(None if current is None else current.snapshot)
    assert seen == [UNREAD, UNREAD, SOUND, SOUND]
    assert causes == ["closed, because a=b requests a free driver"]


def test_a_whole_scan_that_is_requested_while_another_request_is_taken_up_is_made() -> None:
    rereads: list[bool] = []
    loop = scan_loop(None, lambda: SOUND, reread=lambda: rereads.append(True))

    class Late(threading.Event):
        """Another thread asks between the look at this event and what follows it."""

        has_asked = False

        def is_set(self) -> bool:
            was_set = super().is_set()
            if not self.has_asked:
                self.has_asked = True
                loop.scan_whole()
            return was_set

    loop._wants_whole = Late()
    loop.scan_soon()
    for _ in range(2):
        loop.wait(threading.Event(), 1e9)
    assert rereads == [True]


def test_a_pause_of_the_driver_ends_the_wait_for_the_next_scan_and_so_does_its_end() -> None:
    pause = DriverPause()
    loop = scan_loop(None, lambda: SOUND, claim=lambda: pause.claim)
    pause.on_change = loop.scan_soon
    seen = []
    for labels in ({"nvidia.com/mig.config.state": "pending"}, {}):
        pause.note({"labels": labels})
        loop.wait(threading.Event(), 1e9)  # would outlast the test
        seen.append(pause.claim)
    assert seen == ["nvidia.com/mig.config.state=pending", None]
