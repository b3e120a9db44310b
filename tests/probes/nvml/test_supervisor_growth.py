"""A driver's library that keeps memory: its process is replaced, and every event is heard once."""

import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.model.nvml_event import NvmlStatus
from nodetopo.probes.nvml import supervisor as nvml_supervisor
from nodetopo.probes.nvml.supervisor import GROWTH_MIB, NvmlSupervisor
from nodetopo.probes.process_table import resident_bytes
from tests.budget import cases
from tests.deviceplugin.eventually import eventually
from tests.fake_nvml.fake import FakeNvml
from tests.probes.clock import Clock
from tests.probes.conftest import PATIENCE_S, Supervise
from tests.probes.nvml.event_log import EventLog, Key, xid
from tests.probes.nvml.failing_scan import fails
from tests.probes.nvml.nvml_pair import READING

SETTLED_ANSWERS = 10
"""Fewer than in earnest: the library keeps far more than the interpreter."""

LEAK_KIB = 256
LEAK = f"leak nvmlSystemGetDriverVersion {LEAK_KIB}"
"""Which each scan calls once."""

FULL = SETTLED_ANSWERS + GROWTH_MIB * 1024 // LEAK_KIB
"""After so many scans a process is to be replaced, or just before."""


@pytest.fixture(autouse=True)
def _settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_supervisor, "SETTLED_ANSWERS", SETTLED_ANSWERS)


def _pid(supervisor: NvmlSupervisor) -> int:
    assert supervisor._child is not None
    return supervisor._child.pid


def _grow(supervisor: NvmlSupervisor, fake: FakeNvml) -> int:
    """Let the process grow until the next scan would replace it; return its id."""
    fake.fail(LEAK)
    while not supervisor._has_grown():
        assert supervisor.refresh() == READING
    return _pid(supervisor)


class Shooter:
    """Lets XIDs happen all the time: now a few at once, now none for half a second."""

    def __init__(self, fake: FakeNvml) -> None:
        self.fired: Counter[Key] = Counter()
        self._fake = fake
        self._is_over = threading.Event()
        self._random = random.Random(17)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Fire no more."""
        self._is_over.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while not self._is_over.is_set():
            for _ in range(self._random.randint(1, 4)):
                gpu, code = self._random.randrange(2), self._random.choice((13, 31, 43))
                self._fake.xid(gpu, code, 2)
                self.fired[xid(f"GPU-0000000{gpu}", code)] += 2
            self._is_over.wait(self._random.uniform(0, 0.5))


def test_a_library_that_keeps_memory_is_bounded_and_every_event_is_heard_once(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    nvml_fake.fail(LEAK)
    pids, sizes = set(), []
    supervisor.scan()
    first = resident_bytes(_pid(supervisor))
    assert first is not None
    with capture_logs() as logs:
        shooter = Shooter(nvml_fake)
        try:
            for _ in range(cases(200, 2000)):
                assert supervisor.refresh() == READING
                pids.add(_pid(supervisor))
                sizes.append(resident_bytes(_pid(supervisor)) or 0)
        finally:
            shooter.stop()
        assert log.heard(dict(shooter.fired))
    assert len(pids) >= cases(200, 2000) // (FULL + 5)
    # What it keeps until it is settled, what it may keep then, and what one more scan keeps.
    assert max(sizes) - first < (GROWTH_MIB << 20) + ((SETTLED_ANSWERS + 4) * LEAK_KIB << 10)
    assert log.missed == 0
    assert {(line["log_level"], line["event"]) for line in logs} == {
        ("info", "NVML process replaced")
    }
    assert len(logs) == len(pids) - 1
    assert not supervisor._stuck()


def test_the_scan_that_replaces_a_process_is_answered_by_the_new_one(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    supervisor = nvml_supervise()
    old = _grow(supervisor, nvml_fake)
    whole = nvml_supervise().scan().calls
    assert supervisor.refresh() == READING
    assert supervisor.refresh().calls < whole  # the new one's own second reading
    assert _pid(supervisor) != old
    assert not Path(f"/proc/{old}").exists()


@pytest.mark.parametrize(
    "fault",
    [
        "crash nvmlInitWithFlags",
        "code nvmlInitWithFlags 9",
        "hang nvmlInitWithFlags",
        "code nvmlDeviceRegisterEvents 999",
    ],
)
def test_a_new_process_that_fails_leaves_the_old_one_and_is_tried_again_later(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    log, clock = EventLog(), Clock()
    supervisor = nvml_supervise(on_events=log, clock=clock)
    old = _grow(supervisor, nvml_fake)
    # The old one has NVML initialised and its GPUs registered: the faults meet the new one alone,
    # if the old one reads nothing meanwhile.
    nvml_fake.fail(fault)
    monkeypatch.setattr(supervisor, "_timeout_s", 1.0 if "hang" in fault else PATIENCE_S)
    assert supervisor._replace() is None
    monkeypatch.setattr(supervisor, "_timeout_s", PATIENCE_S)
    nvml_fake.fail()
    assert eventually(lambda: not supervisor._stuck(), PATIENCE_S)
    for _ in range(3):
        assert supervisor.refresh() == READING
        assert (_pid(supervisor), supervisor.status) == (old, NvmlStatus())
    nvml_fake.xid(0, 79)
    assert log.heard({xid("GPU-00000000", 79): 1})
    clock.now += nvml_supervisor.REPLACE_RETRY_S
    assert supervisor.refresh() == READING
    assert _pid(supervisor) != old
    assert (log.missed, supervisor.status) == (0, NvmlStatus())


def test_while_a_process_is_stuck_none_is_replaced(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = nvml_supervise()
    old = _grow(supervisor, nvml_fake)
    assert supervisor._child is not None
    with monkeypatch.context() as stuck:
        stuck.setattr(supervisor, "_stuck", lambda: [supervisor._child])
        assert supervisor.refresh() == READING
        assert _pid(supervisor) == old
    assert supervisor.refresh() == READING
    assert _pid(supervisor) != old


def test_an_old_process_that_does_not_end_is_the_stuck_one_and_loses_no_event(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_supervisor, "RETIRE_S", 0.0)
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    old = _grow(supervisor, nvml_fake)
    assert supervisor._child is not None
    child = supervisor._child
    with monkeypatch.context() as unkillable:
        unkillable.setattr(child, "terminate", lambda: None)
        unkillable.setattr(child, "end_input", lambda: None)
        unkillable.setattr(child, "has_ended", lambda **_: False)
        assert supervisor.refresh() == READING
        assert supervisor._stuck() == [child]
        assert _pid(supervisor) != old
        nvml_fake.xid(1, 79)
        assert eventually(lambda: log.counts[xid("GPU-00000001", 79)] >= 1, PATIENCE_S)
        assert supervisor.status == NvmlStatus()
    child.kill()


def test_a_recording_is_made_by_the_process_that_is_there(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    supervisor = nvml_supervise()
    old = _grow(supervisor, nvml_fake)
    assert supervisor.record().answers
    assert _pid(supervisor) == old


def test_a_process_that_has_grown_and_fails_is_replaced_as_any_other(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    clock = Clock()
    supervisor = nvml_supervise(clock=clock)
    _grow(supervisor, nvml_fake)
    nvml_fake.fail("code nvmlDeviceGetCount_v2 999")
    assert fails(supervisor).failures == 1
    nvml_fake.fail()
    clock.now += 60.0
    assert supervisor.refresh() == READING
    assert supervisor.status == NvmlStatus()
