"""Events joined by what they are."""

from nodetopo.model.nvml_event import EventKind, NvmlEvent
from nodetopo.probes.nvml.tally import MAX_KEYS, UNKNOWN_XID, EventTally, HeldEvents


def _xid(gpu: str | None, code: int, count: int = 1) -> NvmlEvent:
    return NvmlEvent(kind=EventKind.XID, gpu=gpu, xid=code, count=count)


def test_events_of_one_kind_gpu_and_code_are_one_with_their_sum() -> None:
    tally = EventTally()
    lost = NvmlEvent(kind=EventKind.UNAVAILABLE, gpu="a")
    for event in (_xid("a", 79), _xid("b", 79), lost, _xid("a", 79, 3), _xid("a", 48), lost):
        tally.add(event)
    assert tally.take() == (
        _xid("a", 79, 4),
        _xid("b", 79),
        NvmlEvent(kind=EventKind.UNAVAILABLE, gpu="a", count=2),
        _xid("a", 48),
    )


def test_what_was_taken_is_counted_no_more() -> None:
    tally = EventTally()
    tally.add(_xid("a", 79))
    tally.take()
    assert not tally
    assert tally.take() == ()


def test_codes_without_end_take_bounded_memory_and_none_is_lost() -> None:
    tally = EventTally()
    for code in range(5 * MAX_KEYS):
        tally.add(_xid("a", 100_000 + code))
        tally.add(_xid("b", 100_000 + code))
    tally.add(_xid("a", 100_000, 7))  # a key that is counted apart still is
    events = tally.take()
    assert len(events) == MAX_KEYS + 2
    assert events[0] == _xid("a", 100_000, 8)
    assert {(event.gpu, event.xid) for event in events[-2:]} == {
        ("a", UNKNOWN_XID),
        ("b", UNKNOWN_XID),
    }
    assert sum(event.count for event in events) == 10 * MAX_KEYS + 7


def test_of_held_events_those_after_a_time_are_passed_on() -> None:
    held = HeldEvents()
    for code, heard_at in ((13, 1.0), (31, 1.01), (13, 2.0), (79, 3.0)):
        held.add(_xid("a", code), heard_at)
    assert list(held.after(1.5)) == [_xid("a", 13), _xid("a", 79)]


def test_without_a_time_all_held_events_are_passed_on() -> None:
    held = HeldEvents()
    for heard_at in (1.0, 2.0):
        held.add(_xid("a", 13), heard_at)
    assert list(held.after(None)) == [_xid("a", 13), _xid("a", 13)]


def test_what_was_heard_about_then_is_held_as_one_and_rather_counted_twice_than_lost() -> None:
    held = HeldEvents()
    for number in range(1000):
        held.add(_xid("a", 13), 1.0 + number / 20_000)
    assert list(held.after(1.03)) == [_xid("a", 13, 1000)]
    assert list(HeldEvents().after(1.03)) == []
