"""Rejected pods in the daemon: what is explained, how often, and what is given up."""

import dataclasses
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.audit.rejections_loop import (
    ATTEMPTS,
    GAP_S,
    MOST_CONTAINERS,
    NEWS,
    REMEMBERED,
    WAITING,
    RejectionsLoop,
    explain,
)
from nodetopo.deviceplugin.plugin import Absence
from nodetopo.errors import UnreadableError
from nodetopo.kernel.events import PodEvent
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.machines.bundled import machine
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.pods.objects import pod_from_object

GPU = "nvidia.com/gpu"
NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SETTINGS = KubeletSettings(
    source="configz",
    version="v1.36.3",
    cpu_manager_policy="none",
    cpu_manager_options={},
    memory_manager_policy="None",
    topology_manager_policy="single-numa-node",
    topology_manager_scope="container",
    topology_manager_options={},
    feature_gates={},
    system_reserved={},
    kube_reserved={},
    eviction_hard={},
    reserved_memory=(),
    reserved_system_cpus="",
)
H100 = replace(
    machine("dgx-h100"),
    kubelet=SETTINGS,
    pods=(),
    offer=NodeOffer(
        devices=tuple(
            PlacedDevice(resource=GPU, id=gpu.id, numa_nodes=(gpu.numa_node or 0,))
            for gpu in machine("dgx-h100").gpus
        )
    ),
)


def rejected(name: str = "wide", gpus: int = 6, **fields: Any) -> Mapping[str, Any]:
    amounts = {"cpu": "2", "memory": "1Gi", GPU: str(gpus)}
    resources = {"requests": amounts, "limits": amounts}
    return {
        "metadata": {"namespace": "ml", "name": name, "uid": f"u-{name}"},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "c", "resources": resources}]},
        "status": {
            "phase": "Failed",
            "reason": "TopologyAffinityError",
            "qosClass": "Guaranteed",
            "startTime": "2026-11-21T11:59:59Z",
        },
        **fields,
    }


@dataclasses.dataclass
class Played:
    """A daemon whose node a test sets, and whose clock it turns."""

    node: Snapshot = H100
    is_silent: bool = False
    seconds: float = 0.0
    reads: int = 0
    posted: list[PodEvent] = dataclasses.field(default_factory=list)
    absences: tuple[Absence, ...] = ()

    def __post_init__(self) -> None:
        self.store = SnapshotStore()
        self.store.publish(H100)
        self.rejections = RejectionsLoop(
            Settings(node_name="gpu-1"),
            self.store,
            post=self.posted.append,
            read=self.read,
            absences=lambda: {GPU: self.absences} if self.absences else {},
            clock=lambda: self.seconds,
            now=lambda: NOON + timedelta(seconds=self.seconds),
        )

    def read(self, _snapshot: Snapshot) -> Snapshot:
        """Return the node, or raise."""
        self.reads += 1
        if self.is_silent:
            raise UnreadableError("no answer")
        return self.node

    def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds)):
            self.rejections.step()
            self.seconds += 1

    @property
    def counts(self) -> tuple[int, int]:
        """How many were explained and given up."""
        return self.rejections.explained, self.rejections.given_up


def test_a_rejected_pod_is_explained_as_an_event_and_in_the_log() -> None:
    agent = Played()
    agent.rejections.take(rejected())
    with capture_logs() as lines:
        agent.run(1)
    (event,) = agent.posted
    assert event == PodEvent(
        reason="RejectionExplained",
        message=event.message,
        is_warning=True,
        key="u-wide",
        namespace="ml",
        pod="wide",
        uid="u-wide",
    )
    assert event.message.startswith("TopologyAffinityError: ")
    assert GPU in event.message
    assert [(line["event"], line["message"]) for line in lines] == [
        ("rejection explained", event.message)
    ]
    assert agent.counts == (1, 0)


def test_the_explanation_ends_with_what_would_make_it_fit() -> None:
    pod = pod_from_object(dict(rejected()))
    text = explain(H100, pod).text or ""
    wider = replace(SETTINGS, topology_manager_policy="best-effort")
    why, _, changes = text.partition(". Any one of these would make it fit: ")
    assert GPU in why
    assert "best-effort" in changes
    admitted = explain(replace(H100, kubelet=wider), pod).text or ""
    assert admitted.startswith("TopologyAffinityError: by now the kubelet would admit it")


def told_of(
    *absences: Absence,
    reason: str = "TopologyAffinityError",
    message: str | None = None,
    at: str | None = "2026-11-21T11:59:59Z",
    node: Snapshot = H100,
) -> str:
    """Return the Event at noon on a pod of two GPUs that the node has room for.

    *absences* are on the monotonic clock, which is 0 at noon.
    """
    agent = Played(node=node, absences=absences)
    status = {**rejected()["status"], "reason": reason, "message": message, "startTime": at}
    agent.rejections.take(rejected(gpus=2, status=status))
    agent.run(1)
    (event,) = agent.posted
    return event.message


DOWN = "the device plugin of nvidia.com/gpu was down when the kubelet rejected the pod"
MAY_BE_DOWN = "its device plugin may have been down"
EITHER = "its device plugin was down, or all devices were Unhealthy"
ADMITTED = "by now the kubelet would admit it: "


def allocate(problem: str) -> str:
    return f"Pod was rejected: Allocate failed due to {problem} {GPU}, which is unexpected"


NO_HEALTHY = allocate("no healthy devices present; cannot allocate unhealthy devices")


@pytest.mark.parametrize(
    ("absences", "cause"),
    [
        ([], "what it lacked is available again"),
        ([Absence(since_s=-60, until_s=-0.5)], DOWN),
        ([Absence(since_s=-60)], DOWN),
        ([Absence(since_s=-90, until_s=-60), Absence(since_s=-0.2)], DOWN),  # 11:59:59.8
        ([Absence(since_s=-90, until_s=-60)], "what it lacked is available again"),
        ([Absence(since_s=-90, until_s=-60), Absence(since_s=0.5)], "what it lacked is available"),
        (
            [Absence(since_s=5, until_s=9)],
            f"it was rejected before this agent offered {GPU}: {MAY_BE_DOWN}",
        ),
    ],
    ids=["unknown", "down", "still", "since that second", "up", "down later", "before the start"],
)
def test_a_pod_that_was_rejected_while_the_plugin_was_down_is_told_so(
    absences: list[Absence], cause: str
) -> None:
    assert told_of(*absences).startswith(f"TopologyAffinityError: {ADMITTED}{cause}")


@pytest.mark.parametrize(
    ("absences", "message", "cause"),
    [
        ([], allocate("cannot allocate unregistered device"), DOWN),
        ([Absence(since_s=-60)], NO_HEALTHY, DOWN),
        (
            [Absence(since_s=-90, until_s=-60)],
            NO_HEALTHY,
            f"all {GPU} were Unhealthy when the kubelet rejected the pod",
        ),
        (
            [],
            NO_HEALTHY,
            f"the kubelet had no healthy {GPU} when it rejected the pod: {EITHER}",
        ),
        # The kubelet counted free devices, so it had the plugin.
        (
            [Absence(since_s=-60)],
            allocate("requested number of devices unavailable for"),
            "what it lacked is available again",
        ),
        ([], NO_HEALTHY.replace(GPU, f"{GPU}.shared"), "what it lacked is available again"),
    ],
    ids=["unregistered", "down", "unhealthy", "either", "taken", "another resource"],
)
def test_what_the_kubelet_wrote_decides(absences: list[Absence], message: str, cause: str) -> None:
    told = told_of(*absences, reason="UnexpectedAdmissionError", message=message)
    assert told == f"UnexpectedAdmissionError: {ADMITTED}{cause}"


def test_without_a_time_nothing_is_said_of_the_plugin() -> None:
    told = told_of(Absence(since_s=-60), at=None)
    assert told.endswith("what it lacked is available again")


def test_while_the_plugin_is_still_down_the_event_says_both() -> None:
    told = told_of(Absence(since_s=-60), node=replace(H100, offer=NodeOffer(devices=())))
    assert told.startswith(f"TopologyAffinityError: {DOWN}. Now: under policy single-numa-node")
    assert told.endswith(f"2 {GPU}: fewer are free")


def test_a_pod_that_does_not_fit_is_not_told_what_may_have_been() -> None:
    early = replace(H100, offer=NodeOffer(devices=()))
    assert "may have been" not in told_of(Absence(since_s=5, until_s=9), node=early)


def test_a_pod_is_explained_once_however_often_it_is_seen() -> None:
    agent = Played()
    for _ in range(5):
        agent.rejections.take(rejected())
        agent.run(GAP_S)
    assert (len(agent.posted), agent.reads) == (1, 1)


def test_a_pod_that_was_rejected_long_ago_is_left_alone() -> None:
    agent = Played()
    old = {"startTime": "2026-11-21T11:49:59Z"}
    agent.rejections.take(rejected("old", status={**rejected()["status"], **old}))
    unstarted = {**rejected()["status"], "startTime": None}
    metadata = {**rejected("made")["metadata"], "creationTimestamp": "2026-11-20T12:00:00Z"}
    agent.rejections.take(rejected("made", status=unstarted, metadata=metadata))
    agent.run(2 * GAP_S)
    assert (agent.posted, NEWS) == ([], timedelta(minutes=10))


@pytest.mark.parametrize("stamp", [None, "yesterday", 5, ["2026-11-21T11:49:59Z"]])
def test_a_pod_without_a_readable_time_is_news(stamp: object) -> None:
    agent = Played()
    agent.rejections.take(rejected(status={**rejected()["status"], "startTime": stamp}))
    agent.run(1)
    assert len(agent.posted) == 1


def test_many_rejected_pods_are_explained_one_after_the_other_the_newest_if_too_many() -> None:
    agent = Played()
    for number in range(WAITING + 4):
        agent.rejections.take(rejected(f"p{number}"))
    agent.run(GAP_S * 3)
    assert [event.pod for event in agent.posted] == ["p4", "p5", "p6"]
    assert agent.counts == (3, 4)


def test_what_was_seen_is_not_remembered_for_ever() -> None:
    agent = Played()
    for number in range(REMEMBERED + 1):
        agent.rejections.take(rejected(f"p{number}"))
    for name in (f"p{REMEMBERED}", "p0"):
        agent.rejections.take(rejected(name))
    agent.run(GAP_S * WAITING * 2)
    assert [event.pod for event in agent.posted[-2:]] == [f"p{REMEMBERED}", "p0"]


def test_a_kubelet_that_comes_back_is_asked_again() -> None:
    agent = Played(is_silent=True)
    agent.rejections.take(rejected())
    agent.run(GAP_S)
    agent.is_silent = False
    agent.run(GAP_S)
    assert agent.counts == (1, 0)


def test_a_kubelet_that_stays_silent_is_not_asked_for_ever() -> None:
    agent = Played(is_silent=True)
    agent.rejections.take(rejected())
    with capture_logs() as lines:
        agent.run(GAP_S * 10)
    assert (agent.reads, agent.counts) == (ATTEMPTS, (0, 1))
    assert [(line["event"], line["missing"]) for line in lines] == [
        ("rejection not explained", ["no answer"])
    ]


def test_what_cannot_be_told_is_said_in_the_log_and_to_nobody_else() -> None:
    agent = Played(node=replace(H100, kubelet=None))
    agent.rejections.take(rejected())
    with capture_logs() as lines:
        agent.run(1)
    assert agent.posted == []
    (line,) = lines
    assert line["missing"]
    assert agent.counts == (0, 1)


@pytest.mark.parametrize(
    "found",
    [
        {},
        rejected(metadata={"namespace": "ml", "name": "x"}),
        rejected(spec={"containers": 3}),
        rejected(spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}),
    ],
    ids=["empty", "no uid", "no list", "no quantity"],
)
def test_an_object_that_is_no_pod_is_passed_over(found: Mapping[str, Any]) -> None:
    agent = Played()
    agent.rejections.take(found)
    agent.rejections.take(rejected())
    agent.run(2 * GAP_S)
    assert [event.pod for event in agent.posted] == ["wide"]


def test_before_the_first_scan_pods_wait() -> None:
    agent = Played()
    agent.rejections = RejectionsLoop(
        Settings(node_name="gpu-1"),
        SnapshotStore(),
        post=agent.posted.append,
        read=agent.read,
        now=lambda: NOON,
    )
    agent.rejections.take(rejected())
    agent.run(GAP_S)
    assert agent.reads == 0


def test_the_loop_ends_at_a_stop() -> None:
    agent, stopping = Played(), threading.Event()
    agent.rejections.take(rejected())
    loop = threading.Thread(target=agent.rejections.run, args=(stopping,))
    loop.start()
    while not agent.posted:
        stopping.wait(0.01)
    stopping.set()
    agent.rejections.wake()
    loop.join(120)
    assert not loop.is_alive()


def test_a_pod_of_very_many_containers_is_given_up_at_once() -> None:
    (wide,) = rejected()["spec"]["containers"]
    small = {"name": "s", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}
    many = [wide, *({**small, "name": f"s{number}"} for number in range(MOST_CONTAINERS))]
    most = explain(H100, pod_from_object(rejected(spec={"containers": many[:-1]})))
    more = explain(H100, pod_from_object(rejected(spec={"containers": many})))
    assert most.text is not None
    assert more.text is None
    assert more.missing == (f"time for {MOST_CONTAINERS + 1} containers",)


def test_a_bug_of_ours_gives_one_pod_up_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Played()
    monkeypatch.setattr("nodetopo.components.audit.rejections_loop.explain", lambda *_: 1 // 0)
    agent.rejections.take(rejected())
    with capture_logs() as lines:
        agent.rejections.step()
    assert (agent.rejections.given_up, agent.posted) == (1, [])
    assert [line["event"] for line in lines] == [
        "rejection not worked out",
        "rejection not explained",
    ]
