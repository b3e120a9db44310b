"""Measuring pods in the daemon: what is counted, what is told, and how often."""

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.audit.alignment.loop import LOOK_S, AlignmentLoop, MeasuredPods
from nodetopo.errors import UnreadableError
from nodetopo.kernel.events import PodEvent
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.alignment.alignment_nodes import GIB, NONE, node, worker
from tests.kernel.test_running_pods import no_offer
from tests.probes.kubelet.test_podresources_kept import serving

H100 = node(settings=NONE)
GOOD = Pod(
    namespace="ml",
    name="good",
    uid="u-good",
    containers=(worker(H100, [0], cpus="0-3", memory={0: GIB}),),
)
BAD = Pod(
    namespace="ml",
    name="bad",
    uid="u-bad",
    containers=(worker(H100, [1], cpus="56-57", memory={0: GIB}),),
)
SILENT = Pod(
    namespace="ml",
    name="silent",
    uid="u-silent",
    containers=(replace(worker(H100, [2]), cpus=None),),
)
SHARING = replace(
    BAD, name="sharing", uid="u-sharing", qos_class="Burstable", containers=(worker(H100, [3]),)
)


@dataclasses.dataclass
class Played:
    """A daemon whose kubelet has *pods*, or does not answer."""

    pods: tuple[Pod, ...] = ()
    is_silent: bool = False
    posted: list[PodEvent] = dataclasses.field(default_factory=list)
    does_post: bool = True

    def __post_init__(self) -> None:
        self.store = SnapshotStore()
        self.store.publish(H100)
        self.alignment = AlignmentLoop(
            Settings(node_name="gpu-1"),
            self.store,
            post=self.posted.append if self.does_post else None,
            read=self.read,
        )

    def read(self, snapshot: Snapshot) -> Snapshot:
        """Put the pods into *snapshot*, or raise."""
        if self.is_silent:
            raise UnreadableError("no answer")
        return replace(snapshot, pods=self.pods)

    def look(self, times: int = 1) -> MeasuredPods | None:
        """Let the daemon look, and return what it found last."""
        for _ in range(times):
            assert self.alignment.step() == LOOK_S
        return self.alignment.found


def test_pods_are_counted_by_verdict_and_the_misaligned_by_their_first_cause() -> None:
    agent = Played((GOOD, BAD, SILENT, SHARING))
    assert agent.look() == MeasuredPods(
        verdicts={"aligned": 1, "misaligned": 2, "unknown": 1},
        reasons={"KUB-003": 1, "KUB-001": 1},
    )


def test_a_pod_counts_once_whatever_its_containers() -> None:
    both = replace(
        BAD, containers=(*GOOD.containers, replace(BAD.containers[0], name="b"), *SILENT.containers)
    )
    assert Played((both,)).look() == MeasuredPods(
        verdicts={"aligned": 0, "misaligned": 1, "unknown": 0}, reasons={"KUB-003": 1}
    )


def test_a_corrected_pod_is_counted_no_more() -> None:
    agent = Played((BAD,))
    agent.look()
    agent.pods = (replace(BAD, containers=GOOD.containers),)
    assert agent.look() == MeasuredPods(
        verdicts={"aligned": 1, "misaligned": 0, "unknown": 0}, reasons={}
    )


def test_a_misaligned_pod_is_reported_once_at_the_second_measurement() -> None:
    agent = Played((GOOD, BAD))
    with capture_logs() as lines:
        agent.look()
        assert agent.posted == []
        agent.look(100)
    message = (
        "container worker with GPU1: cpus own CPUs 56-57 on NUMA node 1, expected on NUMA node 0: "
        "the Topology Manager has the policy none: devices and CPUs were chosen one by one "
        "(KUB-003)"
    )
    assert agent.posted == [
        PodEvent(
            reason="PodMisaligned",
            message=message,
            is_warning=True,
            key="u-bad",
            namespace="ml",
            pod="bad",
            uid="u-bad",
        )
    ]
    assert [line["message"] for line in lines] == [message]
    assert (lines[0]["pod"], lines[0]["causes"]) == ("ml/bad", ["KUB-003"])


def test_a_moment_of_misalignment_is_not_reported() -> None:
    agent = Played((BAD,))
    agent.look()
    agent.pods = ()
    agent.look()
    agent.pods = (BAD,)
    agent.look()
    assert agent.posted == []


def test_a_pod_that_the_kubelet_forgot_for_a_while_is_not_reported_again() -> None:
    agent = Played((BAD,))
    agent.look(2)
    agent.pods = ()
    agent.look()
    agent.pods = (BAD,)
    agent.look(3)
    assert len(agent.posted) == 1


def test_a_new_pod_of_the_same_name_is_reported() -> None:
    agent = Played((BAD,))
    agent.look(2)
    agent.pods = (replace(BAD, uid="u-new"),)
    agent.look(2)
    assert [event.uid for event in agent.posted] == ["u-bad", "u-new"]


def test_a_pod_of_unknown_uid_is_reported_in_the_log_only() -> None:
    agent = Played((replace(BAD, uid=None),))
    with capture_logs() as lines:
        agent.look(3)
    assert (agent.posted, [line["event"] for line in lines]) == ([], ["pod misaligned"])


def test_without_events_misaligned_pods_are_logged() -> None:
    agent = Played((BAD,), does_post=False)
    with capture_logs() as lines:
        agent.look(3)
    assert [line["event"] for line in lines] == ["pod misaligned"]


def test_a_silent_kubelet_leaves_the_result_unknown_and_is_logged_once() -> None:
    agent = Played((BAD,))
    agent.look()
    agent.is_silent = True
    with capture_logs() as lines:
        assert agent.look(3) is None
        agent.is_silent = False
        assert agent.look() is not None
    assert agent.alignment.errors == 3
    assert [line["event"] for line in lines] == [
        "pods not measured",
        "pods measured again",
        "pod misaligned",
    ]


def test_a_kubelet_that_restarts_during_a_measurement_is_not_logged() -> None:
    agent = Played((BAD,))
    agent.is_silent = True
    with capture_logs() as lines:
        assert agent.look() is None
        agent.is_silent = False
        assert agent.look() is not None
    assert lines == []


def test_before_the_first_scan_nothing_is_asked() -> None:
    agent = AlignmentLoop(Settings(node_name="gpu-1"), SnapshotStore(), post=None)
    assert (agent.step(), agent.found, agent.errors) == (1.0, None, 0)


def test_a_kubelet_without_a_socket_is_a_silent_one(tmp_path: Path) -> None:
    store = SnapshotStore()
    store.publish(H100)
    settings = Settings(node_name="gpu-1", pod_resources_socket=tmp_path / "kubelet.sock")
    agent = AlignmentLoop(settings, store, post=None)
    assert agent.step() == LOOK_S
    assert agent.errors == 1


@pytest.mark.parametrize(("asked", "errors"), [(no_offer, 1), (str, 0)])
def test_nothing_is_measured_without_the_kubelets_offer(
    asked: Callable[[str], object], errors: int
) -> None:
    store = SnapshotStore()
    store.publish(H100)
    with TemporaryDirectory(prefix="nodetopo-") as short:
        socket = Path(short) / "kubelet.sock"
        settings = Settings(node_name="gpu-1", pod_resources_socket=socket)
        agent = AlignmentLoop(settings, store, post=None)
        with serving(socket, asked=asked):
            agent.step()
    assert (agent.errors, agent.found is None) == (errors, bool(errors))


def test_the_loop_ends_at_a_stop() -> None:
    agent, stopping = Played((BAD,)), threading.Event()
    loop = threading.Thread(target=agent.alignment.run, args=(stopping,))
    loop.start()
    while agent.alignment.found is None:
        stopping.wait(0.01)
    stopping.set()
    loop.join(120)
    assert not loop.is_alive()


def test_a_bug_of_ours_leaves_the_result_unknown_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Played((BAD,))
    monkeypatch.setattr("nodetopo.components.audit.alignment.loop.measured", lambda _: 1 // 0)
    with capture_logs() as lines:
        assert agent.look(2) is None
    assert agent.alignment.errors == 2
    (line,) = lines
    assert (line["event"], "ZeroDivisionError" in line["error"]) == ("pods not measured", True)
