"""Events on their way from the library through the child to who wants them."""

import threading
from pathlib import Path
from time import monotonic, sleep

import pytest
from structlog.testing import capture_logs

from nodetopo.model.nvml_event import EventKind
from nodetopo.probes.nvml import event_pipe
from nodetopo.probes.nvml.events import LOST_IN_A_ROW, LOST_PAUSE_S
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from tests.deviceplugin.eventually import eventually
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.probes.clock import Clock
from tests.probes.conftest import PATIENCE_S, Supervise
from tests.probes.nvml.event_log import EventLog, xid
from tests.probes.nvml.failing_scan import fails
from tests.probes.nvml.nvml_pair import ANSWERS, READING

GPU0, GPU1 = "GPU-00000000", "GPU-00000001"
ALL = 0x8 | 0x100 | 0x4000 | 0x8000


def _listening(supervisor: NvmlSupervisor, fake: FakeNvml, *, gpus: int = 2) -> None:
    """Scan, and wait until *gpus* more GPUs are registered."""
    before = len(fake.registered)
    supervisor.scan()
    assert eventually(lambda: len(fake.registered) >= before + gpus, PATIENCE_S)


def test_each_kind_of_event_arrives_under_the_uuid_of_its_gpu(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    _listening(nvml_supervise(on_events=log), nvml_fake)
    nvml_fake.xid(1, 79)
    for what in ("mig", "unavailable", "recovery"):
        nvml_fake.event(0, what)
    assert log.heard(
        {
            xid(GPU1, 79): 1,
            (EventKind.MIG_CHANGE, GPU0, None): 1,
            (EventKind.UNAVAILABLE, GPU0, None): 1,
            (EventKind.RECOVERY_ACTION, GPU0, None): 1,
        }
    )


def test_an_event_of_a_mig_device_is_its_gpus(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    _listening(nvml_supervise(on_events=log), nvml_fake)
    nvml_fake.xid("0:2", 94)
    nvml_fake.event("0:2", "mig")
    assert log.heard({xid(GPU0, 94): 1, (EventKind.MIG_CHANGE, GPU0, None): 1})


def test_events_before_the_first_reading_are_none_and_those_of_one_kind_are_joined(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    nvml_fake.xid(0, 31, 5)
    _listening(nvml_supervise(on_events=log), nvml_fake)
    nvml_fake.xid(0, 13, 2500)
    nvml_fake.xid(1, 13, 2500)
    assert log.heard({xid(GPU0, 13): 2500, xid(GPU1, 13): 2500})


def test_only_what_a_gpu_supports_is_registered(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    nvml_fake.answer(f"{ANSWERS}\nnvmlDeviceGetSupportedEventTypes 0 = 0 0xB\n")
    _listening(nvml_supervise(on_events=EventLog()), nvml_fake)
    assert [line[1:] for line in nvml_fake.registered] == [(0, 0x8), (1, ALL)]


@pytest.mark.parametrize("answer", ["RegisterEvents 0 = 999", "GetSupportedEventTypes 0 = 0 0"])
def test_a_gpu_that_gives_no_events_does_not_keep_others_from_giving_theirs(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, answer: str
) -> None:
    nvml_fake.answer(f"{ANSWERS}\nnvmlDevice{answer}\n")
    log = EventLog()
    _listening(nvml_supervise(on_events=log), nvml_fake, gpus=1)
    nvml_fake.xid(0, 79)
    nvml_fake.xid(1, 79)
    assert log.heard({xid(GPU1, 79): 1})
    # nvml.h: after UNKNOWN the set is undefined, and so another one was made.
    assert nvml_fake.freed == ("999" in answer)


def test_without_a_callback_nothing_is_registered(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    quiet, other = nvml_supervise(), nvml_supervise(on_events=EventLog())
    quiet.scan()
    _listening(other, nvml_fake)  # by now the first child would have registered too
    quiet.refresh()
    assert len({process for process, _, _ in nvml_fake.registered}) == 1
    assert not [it for it in threading.enumerate() if it.name == "nvml-events"][1:]


def test_a_refresh_of_the_same_gpus_leaves_the_registration_alone(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    _listening(supervisor, nvml_fake)
    for _ in range(3):
        supervisor.refresh()
    nvml_fake.xid(0, 79)
    assert log.heard({xid(GPU0, 79): 1})
    assert (len(nvml_fake.registered), nvml_fake.freed) == (2, 0)


def test_other_gpus_are_registered_when_a_scan_finds_them(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    nvml_fake.answer(ANSWERS.replace("GetCount_v2 = 0 2", "GetCount_v2 = 0 1"))
    _listening(supervisor, nvml_fake, gpus=1)
    nvml_fake.answer(ANSWERS)
    supervisor.refresh()
    assert eventually(lambda: len(nvml_fake.registered) == 3, PATIENCE_S)
    nvml_fake.xid(1, 79)
    assert log.heard({xid(GPU1, 79): 1})
    assert nvml_fake.freed == 1


def test_a_lost_gpu_does_not_keep_others_from_giving_their_events(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    _listening(supervisor, nvml_fake)
    nvml_fake.fail("gone 0")
    _listening(supervisor, nvml_fake, gpus=1)
    nvml_fake.xid(1, 48)
    assert log.heard({xid(GPU1, 48): 1})
    nvml_fake.fail()
    _listening(supervisor, nvml_fake)
    nvml_fake.xid(0, 48)
    assert log.heard({xid(GPU0, 48): 1, xid(GPU1, 48): 1})


def test_while_a_gpu_is_lost_each_scan_has_nvml_look_for_it_anew(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    supervisor = nvml_supervise(on_events=EventLog())
    nvml_fake.fail("gone 0")
    _listening(supervisor, nvml_fake, gpus=1)
    supervisor.refresh()
    assert eventually(lambda: len(nvml_fake.registered) == 2, PATIENCE_S)
    assert nvml_fake.freed == 1


@pytest.mark.parametrize("code", [15, 999])
def test_an_error_of_the_wait_is_no_event_and_does_not_last(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, code: int
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    _listening(supervisor, nvml_fake)
    nvml_fake.fail(f"code nvmlEventSetWait_v2 {code}")
    # The same GPUs again: all of them were given up, after one error or many lost ones.
    assert eventually(lambda: len(nvml_fake.registered) >= 4, PATIENCE_S)
    assert log.counts == {}
    nvml_fake.fail()

    def is_heard() -> bool:
        nvml_fake.xid(0, 79)  # again and again: it may come between two registrations
        return bool(log.counts)

    assert eventually(is_heard, PATIENCE_S)
    assert set(log.counts) == {xid(GPU0, 79)}
    assert supervisor.refresh() == READING
    assert supervisor.status.trouble is None


def test_a_few_lost_answers_to_a_wait_cost_no_registration(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    few_s, is_few = LOST_IN_A_ROW * LOST_PAUSE_S / 2, False
    while not is_few:  # on a machine that stood still they were many
        log, before = EventLog(), nvml_fake.freed
        supervisor = nvml_supervise(on_events=log)
        _listening(supervisor, nvml_fake)
        began = monotonic()
        nvml_fake.fail("code nvmlEventSetWait_v2 15")
        sleep(0.3)  # for some waits to be answered so
        nvml_fake.xid(0, 79)
        nvml_fake.fail()
        is_few = monotonic() - began < few_s
        if not is_few:
            supervisor.close()
    assert log.heard({xid(GPU0, 79): 1})
    assert nvml_fake.freed == before


@pytest.mark.parametrize(
    ("is_old", "fault", "reason"),
    [
        (True, "", "nvmlEventSetWait_v2: Function Not Found"),
        (False, "code nvmlEventSetCreate 3", "nvmlEventSetCreate: Not Supported"),
        (False, "code nvmlDeviceRegisterEvents 3", "no GPU offers events: Not Supported"),
        (
            False,
            "code nvmlDeviceGetSupportedEventTypes 4",
            "no GPU offers events: Insufficient Permissions",
        ),
        (False, "code nvmlDeviceRegisterEvents 999", "no GPU offers events: Unknown Error"),
    ],
)
def test_without_events_all_else_works_and_one_warning_is_logged(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
    nvml_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_old: bool,
    fault: str,
    reason: str,
) -> None:
    log = EventLog()
    monkeypatch.setattr(event_pipe, "SILENT_S", 0.0)
    nvml_fake.fail(fault)
    directory = library(nvml_cache, without_newer=is_old)
    with capture_logs() as logs:
        supervisor = nvml_supervise(directory, on_events=log)
        supervisor.scan()
        assert eventually(lambda: len(logs) == 1, PATIENCE_S)
        supervisor.scan()  # which has the GPUs registered again
        assert supervisor.refresh() == supervisor.scan()
        supervisor.close()
    assert [(line["event"], line["reason"]) for line in logs] == [("no events from NVML", reason)]
    assert log.counts == {}


def test_a_callback_that_fails_is_asked_again(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    class Failing(EventLog):
        def __call__(self, events: object) -> None:
            super().__call__(events)  # type: ignore[arg-type] # what it was given
            if len(self.times) == 1:
                raise RuntimeError("not now")

    log = Failing()
    with capture_logs() as logs:
        _listening(nvml_supervise(on_events=log), nvml_fake)
        nvml_fake.xid(0, 79)
        assert log.heard({xid(GPU0, 79): 1})
        nvml_fake.xid(0, 79)
        assert log.heard({xid(GPU0, 79): 2})
    assert [line["event"] for line in logs] == ["events of GPUs not taken"]


def test_events_are_heard_from_the_first_reading_after_nvml_refused_them(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    _listening(supervisor, nvml_fake)
    nvml_fake.fail("code nvmlEventSetWait_v2 999")
    # At once, after 1, 2 and 4 s: the listener would wait 8 s now.
    assert eventually(lambda: len(nvml_fake.registered) >= 10, PATIENCE_S)
    nvml_fake.fail()
    supervisor.refresh()
    nvml_fake.xid(0, 79)
    assert log.heard({xid(GPU0, 79): 1})


def test_nothing_is_missed_between_a_registration_and_its_reading(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    """Else every whole scan would ask for a scan, and while a GPU is lost every scan."""
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    for fault in ("", "gone 0", ""):
        nvml_fake.fail(fault)
        for ask in (supervisor.scan, supervisor.refresh, supervisor.record):
            ask()
            nvml_fake.xid(1, 31)
    assert log.heard({xid(GPU1, 31): 9})
    assert log.missed == 0


def test_a_process_that_dies_between_two_scans_asks_for_a_scan(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    _listening(supervisor, nvml_fake)
    nvml_fake.fail("crash nvmlEventSetWait_v2")
    assert eventually(lambda: log.missed == 1, PATIENCE_S)
    nvml_fake.fail()
    supervisor.refresh()
    nvml_fake.xid(0, 79)
    assert log.heard({xid(GPU0, 79): 1})
    assert supervisor.status.trouble is None


def test_a_process_that_dies_again_and_again_asks_once_a_minute(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    supervisor = nvml_supervise(on_events=log)
    _listening(supervisor, nvml_fake)
    for _ in range(2):
        child = supervisor._child
        assert child is not None
        child.kill()
        assert child.has_ended(PATIENCE_S)
        assert eventually(lambda: supervisor._events._followed is None)  # type: ignore[union-attr]
        supervisor.refresh()
    nvml_fake.xid(0, 79)
    assert log.heard({xid(GPU0, 79): 1})
    assert log.missed == 1


def test_a_process_that_is_ended_because_nvml_refused_asks_for_nothing(
    nvml_fake: FakeNvml, nvml_supervise: Supervise
) -> None:
    log = EventLog()
    clock = Clock()
    supervisor = nvml_supervise(on_events=log, clock=clock)
    _listening(supervisor, nvml_fake)
    nvml_fake.fail("code nvmlDeviceGetCount_v2 999")
    fails(supervisor)
    nvml_fake.fail()
    clock.now += 60.0
    supervisor.refresh()
    nvml_fake.xid(0, 79)
    assert log.heard({xid(GPU0, 79): 1})
    assert log.missed == 0
