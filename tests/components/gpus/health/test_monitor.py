"""The watch: events from any thread, looks, the file, and what it costs."""

import threading
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from nodetopo.components.gpus.health.monitor import MAX_NOTICES, UNNAMED, GpuHealthMonitor
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.state import MAX_GPUS
from nodetopo.model.nvml_event import EventKind, NvmlEvent, NvmlTrouble
from nodetopo.model.xid import MAX_CODES, OTHER, TABLE
from tests.components.gpus.health.gpu_history import FINE, SOUND, A, B, seen, told, trouble, xid
from tests.components.gpus.health.watched_gpus import Daemon


def test_an_xid_is_in_the_view_before_the_call_ends_and_its_change_is_told() -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(79)])
    assert (daemon.reasons, daemon.changes) == ({A: "Xid79"}, 1)


def test_what_changes_no_verdict_is_told_to_nobody() -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(43), xid(13)])
    daemon.watch.take_events([])
    daemon.wait(1)
    assert daemon.changes == 0


def test_a_view_that_was_taken_does_not_change() -> None:
    daemon = Daemon()
    before = daemon.watch.view
    daemon.watch.take_events([xid(79)])
    assert before == {}
    assert isinstance(daemon.watch.view, MappingProxyType)


def test_every_report_is_counted_by_gpu_and_code() -> None:
    daemon = Daemon()
    daemon.watch.take_events([xid(13, count=7), xid(45, count=100), xid(13, on=None)])
    daemon.watch.take_events([xid(13, count=3), xid(13, on=B), told(EventKind.MIG_CHANGE)])
    assert daemon.watch.counts == {(A, 13): 10, (A, 45): 100, (B, 13): 1, (UNNAMED, 13): 1}


def test_counters_are_bounded_and_lose_nothing() -> None:
    daemon = Daemon()
    daemon.watch.take_events([xid(code) for code in range(2000)])
    daemon.watch.take_events([xid(1, on=f"GPU-{number}") for number in range(2000)])
    counts = daemon.watch.counts
    assert sum(counts.values()) == 4000
    assert sum(gpu == A for gpu, _code in counts) <= MAX_CODES + len(TABLE) + 1
    assert counts[A, OTHER] > 1
    assert len({gpu for gpu, _code in counts}) <= MAX_GPUS + 1


def test_a_code_of_the_table_keeps_its_class_after_any_amount_of_noise() -> None:
    daemon = Daemon()
    daemon.watch.take_events([xid(code) for code in range(5000, 7000)])
    daemon.watch.take_events([xid(79)])
    assert daemon.reasons[A] == "Xid79"


def test_a_storm_is_judged_once_between_ticks_and_counted_whole() -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    batch = [xid(code, on=gpu, count=100) for code in (95, 94, 13, 45, 31) for gpu in (A, B)]
    before = daemon.clock_reads
    for _ in range(1000):
        daemon.watch.take_events(batch)
    assert daemon.clock_reads == before + 1  # each judgement needs the time
    assert daemon.watch.counts[A, 95] == 100_000
    assert daemon.changes == 1
    assert len(daemon.watch.notices()) == 2 * 4


def test_an_error_that_goes_on_is_not_over() -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    for _ in range(70):
        daemon.watch.take_events([xid(95)])
        daemon.watch.take_events([xid(95)])
        daemon.wait(1)
    daemon.watch.look(SOUND, FINE)
    daemon.wait(59)
    daemon.watch.look(SOUND, FINE)
    assert daemon.reasons == {A: "Xid95"}
    daemon.wait(1)
    daemon.watch.look(SOUND, FINE)
    assert (daemon.reasons, daemon.changes) == ({}, 2)


def test_an_error_after_a_look_breaks_evidence_off_before_any_tick() -> None:
    daemon = Daemon()
    daemon.watch.take_events([xid(95)])
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(95)])
    daemon.now += 60
    daemon.watch.look(SOUND, FINE)
    assert daemon.reasons == {A: "Xid95"}


def test_an_error_after_a_tick_begins_a_quiet_hour_anew() -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(92)])
    daemon.wait(3000)
    daemon.watch.take_events([xid(92)])
    for _ in range(3):
        daemon.wait(600)
        daemon.watch.look(SOUND, FINE)
    assert daemon.reasons == {A: "Xid92"}
    daemon.wait(1800)
    daemon.watch.look(SOUND, FINE)
    assert daemon.reasons == {}


def test_events_from_many_threads_are_all_counted() -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    stop = threading.Event()

    def report() -> None:
        for _ in range(500):
            daemon.watch.take_events([xid(13), xid(79, on=B)])

    def live() -> None:
        while not stop.is_set():
            daemon.watch.tick()
            daemon.watch.look(SOUND, FINE)
            daemon.watch.notices()
            assert set(daemon.reasons) <= {B}

    threads = [threading.Thread(target=report) for _ in range(4)]
    other = threading.Thread(target=live)
    for thread in (*threads, other):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    other.join()
    assert daemon.watch.counts == {(A, 13): 2000, (B, 79): 2000}
    assert daemon.reasons == {B: "Xid79"}


def test_notices_are_handed_out_once_and_are_bounded() -> None:
    daemon = Daemon()
    daemon.watch.take_events([xid(79)])
    assert [notice.reason for notice in daemon.watch.notices()] == ["GpuUnhealthy"]
    assert daemon.watch.notices() == ()
    daemon.watch.take_events([xid(79, on=f"GPU-{number}") for number in range(200)])
    daemon.watch.take_events([xid(95, on=f"GPU-{number}") for number in range(200)])
    assert len(daemon.watch.notices()) == MAX_NOTICES


@pytest.mark.parametrize(
    ("event", "wants"),
    [
        (xid(95), True),
        (xid(999), True),
        (xid(13), False),
        (xid(154), True),
        (told(EventKind.RECOVERY_ACTION), True),
        (told(EventKind.MIG_CHANGE), True),
        (NvmlEvent(kind=EventKind.MISSED), True),
    ],
)
def test_a_look_is_wanted_where_it_would_tell_more(event: NvmlEvent, wants: bool) -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    daemon.now += 10
    daemon.watch.take_events([event])
    assert daemon.watch.wants_look == wants
    daemon.watch.look(SOUND, FINE)
    daemon.now += 10
    assert not daemon.watch.wants_look


def test_what_happens_while_a_scan_reads_wants_another() -> None:
    daemon = Daemon()
    began = daemon.now
    daemon.now += 1
    daemon.watch.take_events([xid(154)])
    daemon.now += 1
    daemon.watch.look(SOUND, FINE, began=began)
    daemon.now += 10
    assert daemon.watch.wants_look
    daemon.watch.look(SOUND, FINE, began=daemon.now)
    daemon.now += 10
    assert not daemon.watch.wants_look


@pytest.mark.parametrize(("action", "wants"), [(None, True), (1, False)])
def test_a_look_is_wanted_after_each_error_whose_reset_only_looks_can_show(
    action: int | None, wants: bool
) -> None:
    daemon = Daemon()
    daemon.watch.look(seen(recovery_action=action), FINE)
    for _ in range(2):
        daemon.now += 10
        daemon.watch.take_events([xid(95)])
        wanted = daemon.watch.wants_look
        daemon.watch.look(seen(recovery_action=action), FINE)
    assert wanted is wants


def test_looks_are_not_wanted_in_a_row() -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(95)])
    wanted = [daemon.watch.wants_look]
    daemon.now += 5
    wanted.append(daemon.watch.wants_look)
    assert wanted == [False, True]


def test_a_look_is_wanted_when_it_alone_is_missing_for_a_recovery() -> None:
    daemon = Daemon()
    daemon.watch.look(seen(is_lost=True), FINE)
    daemon.watch.look(SOUND, FINE)
    wanted = []
    for seconds in (59, 1):
        daemon.wait(seconds)
        wanted.append(daemon.watch.wants_look)
    daemon.watch.look(SOUND, FINE)
    daemon.wait(10)
    wanted.append(daemon.watch.wants_look)
    assert (wanted, daemon.reasons) == ([False, True, False], {})


def test_a_quiet_hour_wants_no_looks() -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(92)])
    daemon.wait(10)
    daemon.watch.look(SOUND, FINE)
    daemon.wait(600)
    assert not daemon.watch.wants_look


def test_a_silent_nvml_is_noticed_by_time_alone() -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    daemon.watch.look(SOUND, trouble(NvmlTrouble.NO_ANSWER))
    daemon.wait(180)
    assert (daemon.reasons[A], daemon.changes) == ("NvmlUnresponsive", 1)


def test_a_callback_may_ask_the_watch() -> None:
    asked = []
    watch = GpuHealthMonitor(
        HealthRules(),
        None,
        boot_id=None,
        on_change=lambda: asked.append((watch.view, watch.counts, watch.notices())),
    )
    watch.take_events([xid(79), replace(xid(79), gpu=B)])
    ((view, counts, notices),) = asked
    assert (len(view), len(counts), len(notices)) == (2, 2, 2)
