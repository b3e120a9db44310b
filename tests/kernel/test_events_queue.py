"""Which Events are written, and when: joined, rationed, and given up in the end."""

from datetime import UTC, datetime, timedelta

import pytest

from nodetopo.kernel.events import (
    BUDGET,
    BUDGET_S,
    EXPIRY_S,
    QUIET_S,
    REMEMBERED,
    WAITING,
    EventQueue,
    NodeEvent,
    Waiting,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.now


def event(key: str = "GPU-a", *, reason: str = "GpuUnhealthy", message: str = "m") -> NodeEvent:
    return NodeEvent(reason=reason, message=message, is_warning=True, key=key)


def normal(key: str) -> NodeEvent:
    return NodeEvent(reason="GpuRecovered", message="m", is_warning=False, key=key)


def write(queue: EventQueue) -> Waiting | None:
    taken = queue.take()
    if taken is not None:
        queue.wrote(taken)
    return taken


def write_all(queue: EventQueue) -> list[str]:
    return [taken.event.key for taken in iter(lambda: write(queue), None)]


def test_nothing_waits_at_first() -> None:
    assert EventQueue(Clock(), now=lambda: NOW).take() is None


def test_what_waits_is_taken_once() -> None:
    queue = EventQueue(Clock(), now=lambda: NOW)
    queue.put(event())
    assert queue.take() == Waiting(event(), 1, 1000.0, NOW)
    assert queue.take() is None


def test_events_about_one_subject_are_joined_with_the_last_message() -> None:
    queue = EventQueue(Clock(), now=lambda: NOW)
    for message in ("first", "second", "third"):
        queue.put(event(message=message))
    assert queue.take() == Waiting(event(message="third"), 3, 1000.0, NOW)


def test_another_reason_of_the_same_gpu_is_another_thing() -> None:
    queue = EventQueue(Clock(), now=lambda: NOW)
    queue.put(event())
    queue.put(normal("GPU-a"))
    assert write_all(queue) == ["GPU-a", "GPU-a"]


def test_a_subject_has_one_event_in_ten_minutes() -> None:
    clock = Clock()
    queue = EventQueue(clock, now=lambda: NOW)
    queue.put(event())
    write(queue)
    queue.put(event())
    clock.now += QUIET_S - 1
    assert queue.take() is None


def test_joined_events_are_written_after_ten_minutes_with_their_count() -> None:
    clock = Clock()
    queue = EventQueue(clock, now=lambda: NOW)
    queue.put(event())
    write(queue)
    queue.put(event())
    queue.put(event(message="last"))
    clock.now += QUIET_S
    assert queue.take() == Waiting(event(message="last"), 2, 1000.0, NOW)


def test_an_event_that_must_wait_does_not_delay_others() -> None:
    queue = EventQueue(Clock(), now=lambda: NOW)
    queue.put(event("GPU-a"))
    write(queue)
    queue.put(event("GPU-a"))
    queue.put(event("GPU-b"))
    assert write_all(queue) == ["GPU-b"]


def test_a_node_writes_no_more_than_its_budget_in_an_hour() -> None:
    clock = Clock()
    queue = EventQueue(clock, now=lambda: NOW)
    for number in range(BUDGET + 3):
        queue.put(event(str(number)))
    assert len(write_all(queue)) == BUDGET
    clock.now += BUDGET_S - 1
    queue.put(event("one more"))
    assert write_all(queue) == []


def test_a_queue_may_have_another_budget() -> None:
    queue = EventQueue(Clock(), 3 * BUDGET)
    for number in range(4 * BUDGET):
        queue.put(event(str(number)))
    assert len(write_all(queue)) == 3 * BUDGET


def test_the_budget_comes_back_as_its_writes_grow_old() -> None:
    clock = Clock()
    queue = EventQueue(clock, now=lambda: NOW)
    for number in range(BUDGET):
        clock.now += 1
        queue.put(event(str(number)))
        write(queue)
    clock.now += BUDGET_S - BUDGET + 2  # the first two are an hour old
    for number in range(5):
        queue.put(event(f"later {number}"))
    assert len(write_all(queue)) == 2


def test_warnings_go_before_good_news() -> None:
    queue = EventQueue(Clock(), now=lambda: NOW)
    queue.put(normal("GPU-a"))
    queue.put(event("GPU-b"))
    queue.put(event("GPU-c"))
    assert write_all(queue) == ["GPU-b", "GPU-c", "GPU-a"]


def test_a_flood_of_events_drops_the_oldest_and_counts_them() -> None:
    queue = EventQueue(Clock(), now=lambda: NOW)
    for number in range(WAITING + 5):
        queue.put(event(str(number)))
    taken = queue.take()
    assert taken is not None
    assert (taken.event.key, queue.dropped) == ("5", 5)


def test_dropping_counts_everything_that_was_joined() -> None:
    queue = EventQueue(Clock(), now=lambda: NOW)
    for _ in range(3):
        queue.put(event("oldest"))
    for number in range(WAITING):
        queue.put(event(str(number)))
    assert queue.dropped == 3


def test_what_could_not_be_written_for_an_hour_is_given_up() -> None:
    clock = Clock()
    queue = EventQueue(clock, now=lambda: NOW)
    queue.put(event())
    taken = queue.take()
    assert taken is not None
    queue.put_back(taken)
    clock.now += EXPIRY_S
    assert (queue.take(), queue.dropped) == (None, 1)


def test_an_event_that_was_put_back_is_taken_next() -> None:
    queue = EventQueue(Clock(), now=lambda: NOW)
    queue.put(event("GPU-a"))
    taken = queue.take()
    assert taken is not None
    queue.put(event("GPU-b"))
    queue.put_back(taken)
    assert write_all(queue) == ["GPU-a", "GPU-b"]


def test_what_is_put_back_joins_what_came_meanwhile() -> None:
    clock = Clock()
    queue = EventQueue(clock, now=lambda: NOW)
    queue.put(event(message="old"))
    taken = queue.take()
    assert taken is not None
    clock.now += 5
    queue.put(event(message="new"))
    queue.put_back(taken)
    assert queue.take() == Waiting(event(message="new"), 2, 1000.0, NOW)


def test_no_more_is_remembered_of_what_was_written_than_it_takes() -> None:
    clock = Clock()
    queue = EventQueue(clock, now=lambda: NOW)
    for number in range(REMEMBERED + 1):  # so long that the budget never ends it
        clock.now += BUDGET_S / BUDGET
        queue.put(event(str(number)))
        assert write(queue) is not None
    assert len(queue._written) == REMEMBERED


def test_of_one_gpu_the_order_of_posting_stays_and_the_time_of_the_latest_counts() -> None:
    clock = Clock()
    queue = EventQueue(clock, now=lambda: NOW + timedelta(seconds=clock.now))
    posted = [normal("GPU-a"), event("GPU-a"), normal("GPU-b"), event("GPU-a", message="again")]
    for one in posted:
        queue.put(one)
        clock.now += 60
    taken = queue.take()
    assert taken is not None
    assert taken.event == normal("GPU-a"), "before the warning, which is newer"
    queue.put(normal("GPU-a"))
    queue.put_back(taken)
    clock.now += 60
    written = [(taken.event, taken.at.minute) for taken in iter(lambda: write(queue), None)]
    first = datetime(2026, 1, 1, 0, 16, 40, tzinfo=UTC).minute
    assert written == [
        (event("GPU-a", message="again"), first + 3),
        (normal("GPU-b"), first + 2),
        (normal("GPU-a"), first + 4),
    ]


def recorded(queue: EventQueue) -> list[tuple[str, str]]:
    """Write all that is due; return reason and key of each."""
    return [(taken.event.reason, taken.event.key) for taken in iter(lambda: write(queue), None)]


@pytest.mark.parametrize("subject", ["GPU-a", "0000:1b:00.0"])
def test_conditions_of_one_subject_keep_their_order(subject: str) -> None:
    queue = EventQueue(Clock(), now=lambda: NOW)
    queue.put(event(f"{subject} Xid95"))
    queue.put(normal(f"{subject} recovered"))
    queue.put(event("GPU-b Xid95"))
    queue.put(event(f"{subject} Xid95"))
    assert recorded(queue) == [
        ("GpuUnhealthy", "GPU-b Xid95"),
        ("GpuRecovered", f"{subject} recovered"),
        ("GpuUnhealthy", f"{subject} Xid95"),
    ]


def test_an_event_is_not_overtaken_by_a_newer_one_of_its_gpu_while_it_must_wait() -> None:
    clock = Clock()
    queue = EventQueue(clock, now=lambda: NOW)
    queue.put(event("GPU-a Xid95"))
    write(queue)
    clock.now += QUIET_S / 2
    queue.put(event("GPU-a Xid95"))
    assert recorded(queue) == []
    queue.put(normal("GPU-a recovered"))
    assert recorded(queue) == [
        ("GpuUnhealthy", "GPU-a Xid95"),
        ("GpuRecovered", "GPU-a recovered"),
    ]
