"""Whatever NVML and its process do, the parent answers, and comes back without a restart."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest

from nodetopo.errors import NvmlUnavailable
from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble
from nodetopo.probes.nvml import supervisor as nvml_supervisor
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from tests.budget import cases
from tests.deviceplugin.eventually import eventually
from tests.fake_nvml.fake import FakeNvml
from tests.probes.clock import Clock
from tests.probes.conftest import PATIENCE_S, Supervise
from tests.probes.nvml.event_log import EventLog, xid
from tests.probes.nvml.failing_scan import fails
from tests.probes.nvml.nvml_pair import READING
from tests.probes.nvml.uninterruptible_call import UninterruptibleCall, uninterruptible_call

GPU0 = "GPU-00000000"
STAYS_S = 0.2
"""A process that is stuck for so long is not just waiting for the disk."""


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[UninterruptibleCall]:
    """A call that cannot be ended."""
    with uninterruptible_call(tmp_path) as made:
        yield made


def _hangs(supervisor: NvmlSupervisor, fake: FakeNvml, stuck: UninterruptibleCall) -> NvmlStatus:
    """Fail a scan by a call that hangs; its time is over once the child is in that call."""
    assert supervisor.scan() == READING
    child = supervisor._child
    assert child is not None
    fake.fail(stuck.fault("nvmlDeviceGetName"))

    def stays() -> bool:
        for _ in range(10):
            if not stuck.is_stuck(child.pid):
                return False
            sleep(STAYS_S / 10)
        return True

    def no_answer(_descriptor: int, _timeout_s: float) -> None:
        assert eventually(stays)

    with pytest.MonkeyPatch.context() as late:
        late.setattr(nvml_supervisor, "read_line", no_answer)
        return fails(supervisor)


def _children() -> list[int]:
    """Return the NVML processes of this one that have not ended."""
    mine = psutil.Process().children()
    return [it.pid for it in mine if it.status() != psutil.STATUS_ZOMBIE]


def test_a_child_in_uninterruptible_sleep_is_the_only_one_until_it_wakes(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, stuck: UninterruptibleCall
) -> None:
    clock = Clock()
    before = set(_children())
    supervisor = nvml_supervise(timeout_s=PATIENCE_S, clock=clock)
    status = _hangs(supervisor, nvml_fake, stuck)
    assert status.cause == f"NVML did not answer within {PATIENCE_S:g} s"
    assert "dmesg" in (status.cure or "")
    (pid,) = set(_children()) - before
    assert stuck.is_stuck(pid)
    for failures in (2, 3, 4):
        clock.now += 60.0
        assert fails(supervisor) == NvmlStatus(
            trouble=NvmlTrouble.NO_ANSWER,
            failures=failures,
            cause=f"a call is stuck in the NVIDIA driver (process {pid})",
            cure=status.cure,
        )
        assert set(_children()) - before == {pid}  # SIGKILL has no effect
    assert stuck.is_stuck(pid)
    nvml_fake.fail()
    stuck.release()
    clock.now += 60.0
    assert eventually(lambda: not stuck.is_stuck(pid), PATIENCE_S)
    assert supervisor.scan() == READING
    assert supervisor.status == NvmlStatus()
    assert len(set(_children()) - before) == 1


def test_close_does_not_wait_for_a_child_in_uninterruptible_sleep(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, stuck: UninterruptibleCall
) -> None:
    supervisor = nvml_supervise(timeout_s=PATIENCE_S, on_events=EventLog())
    _hangs(supervisor, nvml_fake, stuck)
    (left_behind,) = supervisor._left
    assert stuck.is_stuck(left_behind.pid)
    began = monotonic()
    supervisor.close()
    assert monotonic() - began < PATIENCE_S / 2
    assert not [it for it in threading.enumerate() if it.name == "nvml-events"]
    stuck.release()
    assert left_behind.has_ended(PATIENCE_S)


def test_a_call_for_events_that_never_returns_keeps_no_scan_from_being_made(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, stuck: UninterruptibleCall
) -> None:
    supervisor = nvml_supervise(timeout_s=PATIENCE_S, on_events=EventLog())
    nvml_fake.fail(stuck.fault("nvmlEventSetWait_v2"))
    assert supervisor.scan() == supervisor.refresh() == supervisor.scan() == READING
    child = supervisor._child
    assert child is not None
    stuck.release()
    nvml_fake.fail()
    supervisor.close()
    assert child.has_ended(PATIENCE_S)


def test_events_arrive_while_a_scan_hangs(nvml_fake: FakeNvml, nvml_supervise: Supervise) -> None:
    log = EventLog()
    supervisor = nvml_supervise(timeout_s=120.0, on_events=log)
    supervisor.scan()
    assert eventually(lambda: len(nvml_fake.registered) == 2, PATIENCE_S)
    nvml_fake.fail("hang nvmlDeviceGetPersistenceMode")
    causes: list[str] = []

    def refresh() -> None:
        with pytest.raises(NvmlUnavailable) as caught:
            supervisor.refresh()
        causes.append(caught.value.cause)

    scan = threading.Thread(target=refresh)
    scan.start()
    assert eventually(supervisor._lock.locked)
    nvml_fake.xid(0, 79)
    assert log.heard({xid(GPU0, 79): 1})
    assert scan.is_alive()
    supervisor.close()
    scan.join(PATIENCE_S)
    (cause,) = causes  # it is killed, or notices first that its input has ended
    assert cause.startswith("the NVML process ")


def test_a_slow_library_is_waited_for(nvml_fake: FakeNvml, nvml_supervise: Supervise) -> None:
    nvml_fake.fail("slow nvmlInitWithFlags 400")
    supervisor = nvml_supervise(timeout_s=PATIENCE_S)
    assert supervisor.scan() == READING
    assert supervisor.status == NvmlStatus()


def test_one_event_thread_serves_all_children_that_come_and_go(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    for times in (1, 2):
        supervisor.scan()
        assert eventually(lambda n=times: len(nvml_fake.registered) == 2 * n, PATIENCE_S)  # type: ignore[misc]
        nvml_fake.xid(0, 79)
        assert log.heard({xid(GPU0, 79): times})
        child = supervisor._child
        assert child is not None
        os.kill(child.pid, signal.SIGKILL)
        assert child.has_ended(PATIENCE_S)
        assert len([it for it in threading.enumerate() if it.name == "nvml-events"]) == 1
    supervisor.close()
    assert not [it for it in threading.enumerate() if it.name == "nvml-events"]


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("crash nvmlInitWithFlags", NvmlStatus(trouble=NvmlTrouble.DIED)),
        ("code * 999", NvmlStatus(trouble=NvmlTrouble.REFUSED, code=999)),
        ("code nvmlInitWithFlags 18", NvmlStatus(trouble=NvmlTrouble.REFUSED, code=18)),
        (
            "code nvmlDeviceGetHandleByIndex_v2 4",
            NvmlStatus(trouble=NvmlTrouble.REFUSED, code=4),
        ),
        ("code nvmlDeviceGetUUID 999", NvmlStatus(trouble=NvmlTrouble.REFUSED, code=999)),
        ("code nvmlInitWithFlags 12", NvmlStatus(trouble=NvmlTrouble.NO_LIBRARY)),
    ],
)
def test_each_failure_is_reported_and_counted_once_per_attempt(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, fault: str, status: NvmlStatus
) -> None:
    clock = Clock()
    supervisor = nvml_supervise(clock=clock)
    nvml_fake.fail(fault)
    for failures in (1, 2):
        found = fails(supervisor)
        assert found == fails(supervisor)  # refused without an attempt
        assert found.cause
        assert (found.trouble, found.code, found.failures) == (
            status.trouble,
            status.code,
            failures,
        )
        clock.now += 60.0
    nvml_fake.fail()
    assert supervisor.scan() == READING
    assert supervisor.status == NvmlStatus()


def test_two_clients_at_once_each_read_everything_and_hear_every_event(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    logs = EventLog(), EventLog()
    clients = [nvml_supervise(on_events=log) for log in logs]
    readings: list[object] = []

    def read(client: NvmlSupervisor) -> None:
        for _ in range(3):
            readings.extend((client.scan(), client.refresh()))

    threads = [threading.Thread(target=read, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert readings == [READING] * 12
    settled = len(nvml_fake.registered)
    assert eventually(lambda: _is_listening(nvml_fake), PATIENCE_S), settled
    nvml_fake.xid(0, 79, 100)
    assert all(log.heard({xid(GPU0, 79): 100}) for log in logs)


def _is_listening(fake: FakeNvml) -> bool:
    """Say whether both clients have every set but one freed again, and two GPUs in that."""
    return len(fake.registered) - 2 * fake.freed == 4


def test_a_storm_costs_neither_process_memory_and_no_event(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    supervisor.scan()
    assert eventually(lambda: len(nvml_fake.registered) == 2, PATIENCE_S)
    child = supervisor._child
    assert child is not None
    sizes: list[int] = []
    pace = threading.Event()
    steps = cases(20, 50)
    for step in range(steps):  # 10,000 events a second: two GPUs with ten codes each
        for gpu in (0, 1):
            for code in range(10):
                nvml_fake.xid(gpu, 100 + code, 50)
        pace.wait(0.1)
        if step >= steps // 5:
            sizes.append(sum(psutil.Process(pid).memory_info().rss for pid in (child.pid, None)))
    each = 50 * steps
    wanted = {xid(f"GPU-0000000{gpu}", 100 + code): each for gpu in (0, 1) for code in range(10)}
    assert log.heard(wanted)
    assert max(sizes) - sizes[0] < 4 << 20
    gaps = [b - a for a, b in zip(log.times, log.times[1:], strict=False)]
    assert min(gaps) > 0.09  # never more than ten batches a second
    assert supervisor.refresh() == READING
