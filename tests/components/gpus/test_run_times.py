"""When pods that hold GPUs are expected to end: by what the API server says, and who holds what."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nodetopo.allocation.remainder import Ends
from nodetopo.components.gpus.run_times import (
    ANNOTATION,
    OUTAGE_ATTEMPTS,
    REMEMBERED,
    RUNS_KEPT,
    PodRunTimes,
    RunTimesLoop,
)
from nodetopo.kernel.settings.declare import Settings
from nodetopo.probes.kubelet.pb import podresources_pb2 as pb
from tests.components.gpus.plugin_sets import serving_node
from tests.deviceplugin.machines import node
from tests.kubeapi.fake_pods import FakePods, added, followed
from tests.probes.kubelet.test_podresources_kept import GPU, device, serving, socket

__all__ = ["socket"]

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
Object = dict[str, Any]


def pod(name: str, owner: str | None = None, expected: str | None = None, **more: Any) -> Object:
    """A running pod of the node; *more* is what its spec says besides."""
    owners = [{"kind": "Job", "uid": "other"}, {"uid": owner, "controller": True}]
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": f"u-{name}",
            "annotations": {} if expected is None else {ANNOTATION: expected},
            "ownerReferences": owners if owner else [],
        },
        "spec": {"nodeName": "gpu-1", **more},
        "status": {"phase": "Running", "startTime": stamp(0)},
    }


def ended(name: str, owner: str | None, seconds: float, phase: str = "Succeeded") -> Object:
    found = pod(name, owner)
    state = {"terminated": {"finishedAt": stamp(seconds)}}
    earlier = {"terminated": {"finishedAt": stamp(seconds / 2)}}
    statuses = [{"state": state}, {"state": earlier}, {"state": {}}]
    found["status"] |= {"phase": phase, "containerStatuses": statuses}
    return found


def stamp(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def after_s(watch: PodRunTimes, name: str) -> float | None:
    """Return how long the pod is expected to run."""
    end = watch.end("ml", name)
    return None if end is None else end - START.timestamp()


@pytest.fixture
def watch() -> PodRunTimes:
    return PodRunTimes(None, "gpu-1")


@pytest.mark.parametrize(
    ("found", "expected_s"),
    [
        (pod("a"), None),
        (pod("a", expected="90s"), 90),
        (pod("a", expected="5m"), 300),
        (pod("a", expected="soon"), None),
        (pod("a", activeDeadlineSeconds=600), 600),
        (pod("a", expected="5m", activeDeadlineSeconds=600), 300),
        (pod("a", expected="5m", activeDeadlineSeconds=60), 60),
        (pod("a", owner="set"), 40),
        (pod("a", owner="set", expected="5m"), 300),
        (pod("a", owner="set", activeDeadlineSeconds=20), 20),
        (pod("a", owner="another"), None),
    ],
)
def test_a_pod_says_how_long_it_runs_or_its_owner_does_and_its_deadline_limits_it(
    watch: PodRunTimes, found: Object, expected_s: float | None
) -> None:
    for number, seconds in enumerate((10, 40, 7_000)):
        watch.take("ADDED", ended(f"before-{number}", "set", seconds))
    watch.take("ADDED", found)
    assert after_s(watch, "a") == expected_s


def test_only_pods_that_succeeded_make_the_history_each_once(watch: PodRunTimes) -> None:
    watch.take("ADDED", ended("failed", "set", 1, "Failed"))
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        watch.take(kind, ended("done", "set", 100))
    watch.take("ADDED", ended("longer", "set", 300))
    watch.take("ADDED", pod("a", owner="set"))
    assert after_s(watch, "a") == 300


def test_the_latest_runs_count(watch: PodRunTimes) -> None:
    for number in range(RUNS_KEPT):
        watch.take("ADDED", ended(f"old-{number}", "set", 10))
    for number in range(RUNS_KEPT):
        watch.take("ADDED", ended(f"new-{number}", "set", 500))
    watch.take("ADDED", pod("a", owner="set"))
    assert after_s(watch, "a") == 500


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
def test_a_pod_that_has_ended_is_forgotten(watch: PodRunTimes, kind: str) -> None:
    watch.take("ADDED", pod("a", expected="90s"))
    last = pod("a", expected="90s")
    if kind == "MODIFIED":
        last["status"]["phase"] = "Failed"
    watch.take(kind, last)
    assert watch.end("ml", "a") is None


def test_neither_waiting_pods_nor_those_of_other_nodes_are_expected(watch: PodRunTimes) -> None:
    waiting, elsewhere = pod("waiting", expected="1m"), pod("elsewhere", expected="1m")
    del waiting["status"]["startTime"]
    elsewhere["spec"]["nodeName"] = "gpu-2"
    for found in (waiting, elsewhere):
        watch.take("ADDED", found)
    assert (watch.end("ml", "waiting"), watch.end("ml", "elsewhere")) == (None, None)


def test_no_more_is_remembered_than_a_node_can_have(watch: PodRunTimes) -> None:
    for number in range(REMEMBERED + 5):
        watch.take("ADDED", pod(f"p{number}", expected="1m"))
        watch.take("ADDED", ended(f"e{number}", f"o{number}", 5))
    assert len(watch._running) == len(watch._runs) == len(watch._counted) == REMEMBERED


HELD = pb.ListPodResourcesResponse(
    pod_resources=[
        pb.PodResources(
            namespace="ml",
            name=name,
            containers=[pb.ContainerResources(name="c", devices=[device(gpu, 0)])],
        )
        for name, gpu in (("long", "GPU-0"), ("short", "GPU-1"), ("unknown", "GPU-2"))
    ]
)


class Daemon:
    """A loop whose watch has seen two pods with an end, and what placement got."""

    def __init__(self, socket: Path) -> None:
        self.got: list[Ends] = []
        settings = Settings(node_name="gpu-1", pod_resources_socket=socket)
        self.loop = RunTimesLoop(settings, self.got.append)
        for name, expected in (("long", "2h"), ("short", "1m")):
            self.loop.watch.take("ADDED", pod(name, expected=expected))

    def look(self, times: int = 1) -> Ends:
        for _ in range(times):
            assert self.loop.step() > 0
        return self.got[-1]


def test_devices_are_expected_to_be_free_when_their_pods_end(socket: Path) -> None:
    daemon = Daemon(socket)
    with serving(socket, HELD):
        start = START.timestamp()
        assert daemon.look() == {"GPU-0": start + 7_200, "GPU-1": start + 60, "GPU-2": None}
        daemon.loop.close()


def test_nothing_is_expected_while_the_kubelet_or_the_api_server_is_silent(socket: Path) -> None:
    daemon = Daemon(socket)
    assert daemon.look(OUTAGE_ATTEMPTS) == {}
    with serving(socket, HELD):
        assert daemon.look() != {}
        daemon.loop.watch._problem = "HTTP 403"
        assert daemon.look() == {}
        daemon.loop.close()


def test_the_api_server_is_asked_for_the_pods_of_the_own_node(tmp_path: Path) -> None:
    api = FakePods([added(pod("a", expected="90s"))])
    with followed(api, tmp_path, lambda config: PodRunTimes(config, "gpu-1")) as watch:
        assert after_s(watch, "a") == 90
    path, query, _ = api.asked[0]
    assert (path, query["fieldSelector"]) == ("/api/v1/pods", "spec.nodeName=gpu-1")


def test_a_job_ends_its_pods_at_its_own_deadline_and_is_read_once(tmp_path: Path) -> None:
    pods = [pod("early", "long"), pod("late", "long", activeDeadlineSeconds=60), pod("x", "gone")]
    for one, job in zip(pods, ("train", "train", "gone"), strict=True):
        one["metadata"]["ownerReferences"][1] |= {"kind": "Job", "name": job}
    api = FakePods([added(one) for one in pods])
    path = "/apis/batch/v1/namespaces/ml/jobs/train"
    started = {"startTime": stamp(-100)}
    api.objects[path] = {"spec": {"activeDeadlineSeconds": 600}, "status": started}
    with followed(api, tmp_path, lambda config: PodRunTimes(config, "gpu-1")) as watch:
        assert [after_s(watch, name) for name in ("early", "late", "x")] == [500, 60, None]
    assert [asked for asked, _, _ in api.asked].count(path) == 1


def test_the_kubelet_is_answered_by_what_is_expected() -> None:
    snapshot = node("h100x8-nvswitch-2numa-8cx7")
    ids = [gpu.id for gpu in snapshot.gpus]
    with serving_node() as served:
        served.plugins.take(snapshot)
        served.listed(GPU)
        (one,) = served.plugins.served
        offered = [ids[0], ids[4]]
        before = one.placement.prefer(offered, [], 1)
        served.plugins.expect(dict.fromkeys(ids[1:4], 9.0))
        assert (before, one.placement.prefer(offered, [], 1)) == ((ids[0],), (ids[4],))
