"""The listener in this process: what a full pipe, a pause and an error do."""

import ctypes
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from types import SimpleNamespace

import pynvml
import pytest
from msgspec.structs import replace

from nodetopo.model.nvml_event import EventKind, NvmlEvent
from nodetopo.probes.nvml import events as nvml_events
from nodetopo.probes.nvml.child import GRACE_S
from nodetopo.probes.nvml.events import EventListener, EventsRefused
from nodetopo.probes.nvml.reading import read_nvml
from nodetopo.probes.nvml.supervisor import RETIRE_S
from nodetopo.probes.nvml.tally import FLUSH_S
from tests.deviceplugin.eventually import eventually
from tests.fake_nvml.build import NAME
from tests.fake_nvml.fake import FakeNvml
from tests.probes.nvml.nvml_pair import READING

GPU0 = "GPU-00000000"
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_events, "WAIT_MS", 50)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe that holds a page, and does not block."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    yield read_end, write_end
    for end in (read_end, write_end):
        os.close(end)


def _lines(read_end: int) -> list[dict[str, object]]:
    try:
        return [json.loads(line) for line in os.read(read_end, 1 << 16).splitlines() if line]
    except BlockingIOError:
        return []


def test_a_reading_outlasts_a_wait_and_an_end_is_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # the real length
    wait_s = nvml_events.WAIT_MS / 1000
    assert wait_s + 0.5 <= nvml_events.PAUSE_S <= GRACE_S
    assert nvml_events.SETTLE_S + 3 * nvml_events.PAUSE_S < RETIRE_S


def test_while_nobody_reads_events_are_counted_and_none_is_lost(
    nvml_fake: FakeNvml, nvml_library: Path, pipe: tuple[int, int]
) -> None:
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    filling = b"\n" * 4096
    os.write(write_end, filling)
    listener = EventListener(write_end)
    assert listener.prepare(anew=True)
    for _ in range(3):
        nvml_fake.xid(0, 13, 1000)
    assert eventually(lambda: listener._tally._counts != {})
    assert os.read(read_end, 4096) == filling
    total = 0

    def drained() -> bool:
        nonlocal total
        total += sum(int(str(line.get("count", 1))) for line in _lines(read_end))
        return total == 3000

    assert eventually(drained, PATIENCE_S)
    listener.close()


def test_what_came_just_before_an_error_is_told_before_the_next_attempt(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [79, 45]

    def wait(_timeout_ms: int) -> NvmlEvent:
        if left:
            return NvmlEvent(kind=EventKind.XID, gpu=GPU0, xid=left.pop())
        raise EventsRefused("nvmlEventSetWait_v2: Unknown Error", 999)

    events = nullcontext(SimpleNamespace(wait=wait, gpus=(GPU0,)))
    monkeypatch.setattr(nvml_events, "event_set", lambda *_: events)
    monkeypatch.setattr(nvml_events, "nvml_session", lambda: nullcontext(SimpleNamespace(nvml=0)))
    monkeypatch.setattr(nvml_events, "FIRST_DELAY_S", 3600.0)
    read_end, write_end = pipe
    listener, delivered = EventListener(write_end), []
    listener.prepare(anew=True)

    def is_told() -> bool:
        delivered.extend(_lines(read_end))
        return len(delivered) == 3

    assert eventually(is_told)
    assert [line.get("xid") for line in delivered] == [45, 79, None]
    listener.close()


def test_before_a_whole_reading_nvml_is_shut_down_and_all_is_registered_again(
    nvml_fake: FakeNvml, nvml_library: Path, pipe: tuple[int, int]
) -> None:
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    listener = EventListener(write_end)
    assert listener.prepare(anew=True)
    assert pynvml.nvmlDeviceGetCount() == 2  # the listener keeps NVML initialised
    assert (len(nvml_fake.registered), nvml_fake.freed) == (2, 0)
    nvml_fake.fail("code nvmlInitWithFlags 9")  # shows that it is initialised again
    assert not listener.prepare(anew=True)
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    nvml_fake.fail()
    assert listener.prepare(anew=True)
    assert len(nvml_fake.registered) == 4
    nvml_fake.xid(0, 79)
    assert eventually(lambda: _lines(read_end) == [{"kind": "xid", "gpu": GPU0, "xid": 79}])
    listener.close()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_a_reading_does_not_wait_until_the_listener_tries_again(
    nvml_fake: FakeNvml,
    nvml_library: Path,
    pipe: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvml_events, "FIRST_DELAY_S", 3600.0)
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    listener = EventListener(write_end)
    assert listener.prepare(anew=True)
    nvml_fake.fail("code nvmlEventSetWait_v2 999")
    reason = "nvmlEventSetWait_v2: Unknown Error"
    assert eventually(lambda: _lines(read_end) == [{"silent": reason}])
    nvml_fake.fail()
    assert listener.prepare(anew=False)
    nvml_fake.xid(0, 79)
    assert eventually(lambda: _lines(read_end) == [{"kind": "xid", "gpu": GPU0, "xid": 79}])
    listener.close()


def test_why_there_are_no_events_is_told_after_a_reading_that_succeeds(
    nvml_fake: FakeNvml, nvml_library: Path, pipe: tuple[int, int]
) -> None:
    """A scan that fails as well reports the cause itself."""
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    listener = EventListener(write_end)
    nvml_fake.fail("code nvmlDeviceRegisterEvents 3")
    assert not listener.prepare(anew=True)
    assert _lines(read_end) == []
    listener.watch(read_nvml())
    assert _lines(read_end) == [{"silent": "no GPU offers events: Not Supported"}]
    listener.close()


def test_a_registration_that_comes_after_the_reading_asks_for_another_one(
    nvml_fake: FakeNvml,
    nvml_library: Path,
    pipe: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvml_events, "PAUSE_S", 0.0)
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    listener = EventListener(write_end)
    nvml_fake.fail("slow nvmlDeviceRegisterEvents 50")
    assert not listener.prepare(anew=True)
    listener.watch(read_nvml())
    assert eventually(lambda: _lines(read_end) == [{"kind": "missed"}])
    monkeypatch.setattr(nvml_events, "PAUSE_S", PATIENCE_S)
    listener.close()


def test_other_gpus_than_those_registered_are_registered_and_ask_for_another_reading(
    nvml_fake: FakeNvml, nvml_library: Path, pipe: tuple[int, int]
) -> None:
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    listener = EventListener(write_end)
    assert listener.prepare(anew=True)
    listener.watch(READING)
    nameless = tuple(replace(gpu, uuid=None) for gpu in READING.gpus)
    listener.watch(replace(READING, gpus=nameless))  # they may be the same
    assert (_lines(read_end), len(nvml_fake.registered)) == ([], 2)
    others = (READING.gpus[0], replace(READING.gpus[1], uuid="GPU-00000002"))
    listener.watch(replace(READING, gpus=others))
    assert eventually(lambda: _lines(read_end) == [{"kind": "missed"}])
    assert len(nvml_fake.registered) == 4
    listener.close()


def test_a_listener_retires_in_a_silence_and_says_until_when_it_heard(
    nvml_fake: FakeNvml, nvml_library: Path, pipe: tuple[int, int]
) -> None:
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    listener = EventListener(write_end)
    assert listener.prepare(anew=True)
    nvml_fake.xid(0, 79)
    began = monotonic()
    ended = listener.retire()
    assert ended is not None
    assert began < ended < monotonic()
    assert _lines(read_end) == [{"kind": "xid", "gpu": GPU0, "xid": 79}]
    assert nvml_fake.freed == 1


def test_a_listener_that_is_only_ended_waits_for_no_silence(
    nvml_fake: FakeNvml,
    nvml_library: Path,
    pipe: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvml_events, "QUIET_MS", 3_600_000)
    ctypes.CDLL(str(nvml_library / NAME))
    listener = EventListener(pipe[1])
    assert listener.prepare(anew=True)
    listener.close(within_s=PATIENCE_S)
    assert listener._thread is not None
    assert not listener._thread.is_alive()
    assert nvml_fake.freed == 1


def test_what_came_just_before_a_registration_is_cancelled_is_told(
    nvml_fake: FakeNvml, nvml_library: Path, pipe: tuple[int, int]
) -> None:
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    listener = EventListener(write_end)
    times = 50
    for _ in range(times):
        assert listener.prepare(anew=True)
        nvml_fake.xid(0, 13)
    listener.close()
    assert sum(int(str(line.get("count", 1))) for line in _lines(read_end)) == times


def test_whatever_a_reading_interrupts_it_misses_nothing(
    nvml_fake: FakeNvml, nvml_library: Path, pipe: tuple[int, int]
) -> None:
    """An older registration that ends late takes nothing from the one that is waited for."""
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    listener = EventListener(write_end)
    nvml_fake.fail("slow nvmlEventSetCreate 2")
    for _ in range(20):
        assert listener.prepare(anew=True)
    assert _lines(read_end) == []
    listener.close()


@pytest.mark.parametrize(("is_drained", "ends"), [(False, False), (True, True)])
def test_in_a_storm_a_listener_retires_at_a_moment_with_nothing_left_to_read(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch, *, is_drained: bool, ends: bool
) -> None:
    heard = 0

    def wait(timeout_ms: int) -> NvmlEvent | None:
        nonlocal heard
        events.enter_result.is_drained = is_drained and timeout_ms == 0 and heard > 0
        if events.enter_result.is_drained:
            return None
        heard += 1
        return NvmlEvent(kind=EventKind.XID, gpu=GPU0, xid=13)

    events = nullcontext(SimpleNamespace(wait=wait, gpus=(GPU0,), is_drained=False))
    monkeypatch.setattr(nvml_events, "event_set", lambda *_: events)
    monkeypatch.setattr(nvml_events, "nvml_session", lambda: nullcontext(SimpleNamespace(nvml=0)))
    monkeypatch.setattr(nvml_events, "SETTLE_S", 0.2)
    read_end, write_end = pipe
    listener = EventListener(write_end)
    assert listener.prepare(anew=True)
    delivered = 0

    def read() -> None:
        nonlocal delivered
        while delivered < heard or listener._thread.is_alive():  # type: ignore[union-attr] # it began
            delivered += sum(int(str(line.get("count", 1))) for line in _lines(read_end))

    reader = Thread(target=read)
    reader.start()
    assert (listener.retire() is not None) == ends
    reader.join(PATIENCE_S)
    assert delivered == heard > 0


def test_a_successor_keeps_events_back_and_passes_on_those_that_are_new(
    nvml_fake: FakeNvml, nvml_library: Path, pipe: tuple[int, int]
) -> None:
    ctypes.CDLL(str(nvml_library / NAME))
    read_end, write_end = pipe
    listener = EventListener(write_end)
    listener.hold()
    assert listener.prepare(anew=True)
    nvml_fake.xid(0, 13)
    held = listener._held
    assert held is not None
    assert eventually(lambda: len(held._spans) == 1)
    until = monotonic()
    sleep(FLUSH_S)
    nvml_fake.xid(0, 79)
    assert eventually(lambda: len(held._spans) == 2)
    assert _lines(read_end) == []
    listener.release(until)
    nvml_fake.xid(1, 31)
    delivered: list[object] = []

    def is_told() -> bool:
        delivered.extend(line["xid"] for line in _lines(read_end))
        return len(delivered) == 2

    assert eventually(is_told)
    assert delivered == [79, 31]
    listener.close()
