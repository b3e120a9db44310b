"""Events about pods, against a server that takes them as the real one does."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.kernel.events import EXPIRY_S, NodeEvent, PodEvent, PodEventPublisher
from tests.kubeapi.fake_events import FakeEvents, serving

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
TERMINATING = {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}
APART = PodEvent(
    reason="PodMisaligned",
    message="container worker with GPU0: cpus on NUMA node 1",
    is_warning=True,
    key="u-1",
    namespace="ml",
    pod="job-0",
    uid="u-1",
)


class Clock:
    """Monotonic seconds."""

    seconds = 0.0

    def __call__(self) -> float:
        """Return them."""
        return self.seconds


@contextmanager
def publisher(
    events: FakeEvents, directory: Path, clock: Clock | None = None
) -> Iterator[PodEventPublisher]:
    with serving(events, directory) as config:
        yield PodEventPublisher(config, "gpu-1", clock=clock or Clock(), now=lambda: NOON)


def tell(ours: PodEventPublisher, *events: PodEvent) -> None:
    for event in events:
        ours.post(event)
    for _ in events:
        ours.write_next()


def test_an_event_names_the_pod_as_the_kubelet_names_it_in_its_own(tmp_path: Path) -> None:
    events = FakeEvents()
    with publisher(events, tmp_path) as ours:
        tell(ours, APART)
    ((path, stored),) = events.stored.items()
    name = path.removeprefix("/api/v1/namespaces/ml/events/")
    assert name.startswith("job-0.")
    assert stored == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "ml"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ml",
            "name": "job-0",
            "uid": "u-1",
        },
        "type": "Warning",
        "reason": "PodMisaligned",
        "message": "container worker with GPU0: cpus on NUMA node 1",
        "source": {"component": "nodetopo", "host": "gpu-1"},
        "reportingComponent": "nodetopo",
        "reportingInstance": "gpu-1",
        "firstTimestamp": "2026-11-21T12:00:00Z",
        "lastTimestamp": "2026-11-21T12:00:00Z",
        "count": 1,
    }
    assert events.queries == [{"fieldManager": "nodetopo"}]


def test_an_event_from_before_a_restart_counts_as_written(tmp_path: Path) -> None:
    events, clock = FakeEvents(), Clock()
    for restart in range(3):
        with publisher(events, tmp_path, clock) as ours:
            tell(ours, replace(APART, message=f"said in another way {restart}"))
            clock.seconds += 600
            ours.write_next()
        assert (ours.posted, ours.dropped) == (int(restart == 0), 0)
    (stored,) = events.stored.values()
    assert (len(events.writes), stored["message"]) == (3, "said in another way 0")


def test_each_reason_and_each_pod_has_an_event_of_its_own(tmp_path: Path) -> None:
    events = FakeEvents()
    with publisher(events, tmp_path) as ours:
        other = replace(APART, uid="u-2", key="u-2")
        tell(ours, APART, other, replace(APART, reason="RejectionExplained"))
    assert len(events.stored) == 3


def test_the_longest_name_of_a_pod_still_makes_the_name_of_an_object(tmp_path: Path) -> None:
    events = FakeEvents()
    with publisher(events, tmp_path) as ours:
        tell(ours, replace(APART, pod="p" * 253))
    (path,) = events.stored
    assert len(path.rpartition("/")[2]) == 253


def test_a_hostile_namespace_stays_one_part_of_the_path(tmp_path: Path) -> None:
    events = FakeEvents()
    with publisher(events, tmp_path) as ours:
        tell(ours, replace(APART, namespace="../kube-system"))
    (path,) = events.stored
    assert path.startswith("/api/v1/namespaces/..%2Fkube-system/events/")


@pytest.mark.parametrize(
    ("status", "details"), [(404, {}), (403, TERMINATING), (422, {}), (400, {})]
)
def test_an_event_for_a_namespace_that_goes_keeps_no_other_waiting(
    tmp_path: Path, status: int, details: dict[str, object]
) -> None:
    events, clock = FakeEvents(answer_with=(status, {}), details=details), Clock()
    with publisher(events, tmp_path, clock) as ours:
        tell(ours, APART)
        events.answer_with = None
        tell(ours, replace(APART, namespace="other", uid="u-2", key="u-2"))
    assert (ours.posted, ours.dropped) == (1, 1)
    assert [body["metadata"]["namespace"] for body in events.stored.values()] == ["other"]


def test_a_missing_right_is_retried_until_the_event_expires(tmp_path: Path) -> None:
    events, clock = FakeEvents(answer_with=(403, {})), Clock()
    with publisher(events, tmp_path, clock) as ours:
        tell(ours, APART)
        ours.write_next()
        assert (len(events.writes), ours.dropped) == (1, 0)
        clock.seconds += EXPIRY_S
        ours.write_next()
    assert (len(events.writes), ours.dropped) == (1, 1)


def test_a_burst_of_pods_costs_no_more_writes_than_the_budget(tmp_path: Path) -> None:
    events = FakeEvents()
    with publisher(events, tmp_path) as ours:
        tell(ours, *(replace(APART, uid=f"u-{n}", key=f"u-{n}") for n in range(500)))
    assert len(events.writes) == 10


def test_events_about_anything_else_are_refused(tmp_path: Path) -> None:
    with publisher(FakeEvents(), tmp_path) as ours:
        ours.post(NodeEvent(reason="R", message="m", is_warning=True, key="k"))
        with pytest.raises(AssertionError):
            ours.write_next()
