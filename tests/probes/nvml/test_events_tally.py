"""Events joined by what they are."""

from agent.model.nvml_event import EventKind, NvmlEvent
from agent.probes.nvml.events import MAX_KEYS, UNKNOWN_XID, EventTally


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
    tally.add(_xid("a", 100_000, 7))  # one that is told apart still is
    events = tally.take()
    assert len(events) == MAX_KEYS + 2
    assert events[0] == _xid("a", 100_000, 8)
    assert {(event.gpu, event.xid) for event in events[-2:]} == {
        ("a", UNKNOWN_XID),
        ("b", UNKNOWN_XID),
    }
    assert sum(event.count for event in events) == 10 * MAX_KEYS + 7
