"""Events about the Node, against a server that takes them as the real one does."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nodetopo.backoff import API_RETRY_S, note_answer
from nodetopo.kernel.events import EXPIRY_S, QUIET_S, EventPublisher, NodeEvent
from tests.kubeapi.fake_api_server import kubeconfig
from tests.kubeapi.fake_events import FakeEvents, bound, serving

LOST = NodeEvent(
    reason="GpuUnhealthy",
    message="GPU3 (GPU-d) fell off the bus (XID 79)",
    is_warning=True,
    key="GPU-d",
)
NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
TIMEOUT_S = 240


class Clock:
    """Monotonic seconds and the time of day, which move together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.seconds

    def now(self) -> datetime:
        """Return the time of day."""
        return NOON + timedelta(seconds=self.seconds)


@contextmanager
def publisher(
    events: FakeEvents, directory: Path, clock: Clock | None = None, node: str = "gpu-1"
) -> Iterator[EventPublisher]:
    used = clock or Clock()
    with serving(events, directory) as config:
        yield EventPublisher(config, node, clock=used, now=used.now)


def tell(ours: EventPublisher, *events: NodeEvent) -> None:
    for event in events:
        ours.post(event)
    ours.write_next()


def only(events: FakeEvents) -> dict[str, object]:
    (stored,) = events.stored.values()
    return stored


def test_an_event_is_written_as_the_kubelet_writes_its_own(tmp_path: Path) -> None:
    events = FakeEvents()
    with publisher(events, tmp_path) as ours:
        tell(ours, LOST)
    (path, stored), *_ = events.stored.items()
    name = path.removeprefix("/api/v1/namespaces/default/events/")
    assert stored == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "gpu-1", "uid": "gpu-1"},
        "type": "Warning",
        "reason": "GpuUnhealthy",
        "message": "GPU3 (GPU-d) fell off the bus (XID 79)",
        "source": {"component": "nodetopo", "host": "gpu-1"},
        "reportingComponent": "nodetopo",
        "reportingInstance": "gpu-1",
        "firstTimestamp": "2026-11-21T12:00:00Z",
        "lastTimestamp": "2026-11-21T12:00:00Z",
        "count": 1,
    }


def test_it_is_applied_under_our_name(tmp_path: Path) -> None:
    events = FakeEvents()
    with publisher(events, tmp_path) as ours:
        tell(ours, LOST)
    assert events.queries == [{"fieldManager": "nodetopo", "force": "true"}]


def test_good_news_is_no_warning(tmp_path: Path) -> None:
    events = FakeEvents()
    with publisher(events, tmp_path) as ours:
        tell(ours, NodeEvent(reason="GpuRecovered", message="m", is_warning=False, key="GPU-d"))
    assert only(events)["type"] == "Normal"


def test_what_goes_on_counts_the_same_event_up(tmp_path: Path) -> None:
    events, clock = FakeEvents(), Clock()
    with publisher(events, tmp_path, clock) as ours:
        tell(ours, LOST)
        clock.seconds += 60
        tell(ours, LOST, LOST, LOST)
        clock.seconds += QUIET_S
        ours.write_next()
    stored = only(events)
    assert (stored["count"], stored["firstTimestamp"], stored["lastTimestamp"]) == (
        4,
        "2026-11-21T12:00:00Z",
        "2026-11-21T12:01:00Z",
    )
    assert str(stored["message"]).endswith("(XID 79) (2 more since the last Event)")


def test_a_restarted_agent_writes_to_the_same_event(tmp_path: Path) -> None:
    events = FakeEvents()
    for _ in range(3):
        with publisher(events, tmp_path) as ours:
            tell(ours, LOST)
    assert (len(events.writes), len(events.stored)) == (3, 1)


def test_the_longest_node_name_still_makes_the_name_of_an_object(tmp_path: Path) -> None:
    events, node = FakeEvents(), "n" * 235 + ".example.com"
    with publisher(events, tmp_path, node=node) as ours:
        tell(ours, LOST)
    (path,) = events.stored
    name = path.rpartition("/")[2]
    assert len(name) <= 253
    assert all(part.strip("-") == part != "" for part in name.split("."))


def test_a_long_message_is_cut_between_characters(tmp_path: Path) -> None:
    events = FakeEvents()
    with publisher(events, tmp_path) as ours:
        tell(ours, *[NodeEvent(reason="R", message="é" * 2000, is_warning=True, key="k")] * 2)
    message = str(only(events)["message"])
    assert len(message.encode()) in {1023, 1024}
    assert message.endswith("éé (1 more since the last Event)")


def test_a_refused_request_is_made_again_after_the_pause_that_the_server_asked_for(
    tmp_path: Path,
) -> None:
    events, clock = FakeEvents(answer_with=(429, {"Retry-After": "7"})), Clock()
    with publisher(events, tmp_path, clock) as ours:
        tell(ours, LOST)
        events.answer_with = None
        clock.seconds += 7
        ours.write_next()
        assert len(events.writes) == 1  # a bit more, so that not all nodes come at once
        clock.seconds += API_RETRY_S[0]
        ours.write_next()
    assert (only(events)["count"], ours.posted) == (1, 1)


def test_the_pause_ends_once_the_server_answers_anybody(tmp_path: Path) -> None:
    events, clock = FakeEvents(answer_with=(429, {"Retry-After": "60"})), Clock()
    with publisher(events, tmp_path, clock) as ours:
        tell(ours, LOST)
        events.answer_with = None
        clock.seconds += API_RETRY_S[0]
        ours.write_next()
        assert ours.posted == 0
        note_answer()
        ours.write_next()
    assert ours.posted == 1


def test_the_pauses_grow_while_the_server_refuses(tmp_path: Path) -> None:
    events, clock = FakeEvents(answer_with=(403, {})), Clock()
    with publisher(events, tmp_path, clock) as ours:
        tell(ours, LOST)
        for _ in range(int(EXPIRY_S)):
            clock.seconds += 1
            ours.write_next()
    # Pauses of 1, 2, 4 … 300 s make 21 tries in the hour, and random parts of them some more.
    assert 20 <= len(events.writes) < 200


def test_an_event_that_is_never_accepted_is_dropped(tmp_path: Path) -> None:
    events, clock = FakeEvents(answer_with=(500, {})), Clock()
    with publisher(events, tmp_path, clock) as ours:
        tell(ours, LOST)
        clock.seconds += EXPIRY_S
        ours.write_next()
        clock.seconds += EXPIRY_S
        ours.write_next()
        assert (len(events.writes), ours.dropped, ours.posted) == (1, 1, 0)


def test_an_event_that_the_server_calls_invalid_is_not_sent_again(tmp_path: Path) -> None:
    events, clock = FakeEvents(answer_with=(422, {})), Clock()
    with publisher(events, tmp_path, clock) as ours:
        tell(ours, LOST)
        clock.seconds += API_RETRY_S[1]
        ours.write_next()
        assert (len(events.writes), ours.dropped) == (1, 1)


def test_a_server_that_is_away_keeps_events_waiting(tmp_path: Path) -> None:
    events, clock = FakeEvents(), Clock()
    server = bound(events)
    config = tmp_path / "kubeconfig"
    config.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}"))
    ours = EventPublisher(config, "gpu-1", clock=clock, now=clock.now)
    tell(ours, LOST, LOST)
    assert events.writes == []
    with serving(events, tmp_path, server):
        clock.seconds += API_RETRY_S[0]
        ours.write_next()
    assert only(events)["count"] == 2


def test_posting_does_nothing_but_remember(tmp_path: Path) -> None:
    ours = EventPublisher(tmp_path / "no kubeconfig here", "gpu-1")
    for _ in range(10_000):
        ours.post(LOST)
    assert (ours.posted, ours.dropped) == (0, 0)


def test_the_client_is_not_loaded_before_there_is_something_to_write() -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from nodetopo.kernel.events import EventPublisher, NodeEvent\n"
        "ours = EventPublisher(Path('/nonexistent'), 'gpu-1')\n"
        "ours.write_next()\n"
        "print('kubernetes' in sys.modules)\n"
        "ours.post(NodeEvent(reason='R', message='m', is_warning=True, key='k'))\n"
        "ours.write_next()\n"
        "print('kubernetes' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    words = [line for line in done.stdout.splitlines() if line in {"True", "False"}]
    assert words == ["False", "True"], done.stderr


def test_the_loop_writes_what_other_threads_post_until_it_is_stopped(tmp_path: Path) -> None:
    events, stopping = FakeEvents(), threading.Event()
    with publisher(events, tmp_path) as ours:
        loop = threading.Thread(target=ours.run, args=(stopping,))
        loop.start()
        ours.post(LOST)
        while not ours.posted:
            stopping.wait(0.01)
        stopping.set()
        ours.wake()
        loop.join(TIMEOUT_S)
        assert not loop.is_alive()
