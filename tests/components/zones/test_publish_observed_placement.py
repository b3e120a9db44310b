"""The annotation on pods, against a server that applies it."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from nodetopo.components.zones.publish import ObservedPlacementPublisher, Pod
from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi.client import Answer
from tests.kubeapi.fake_objects import FakeObjects, Object

KEY = "kai.scheduler/numa-placement-observed"
A, B = Pod("ml", "a"), Pod("ml", "b")
ZERO = '[{"zone":"node-0","amount":{"cpu":"2"}}]'
ONE = '[{"zone":"node-1","amount":{"cpu":"2"}}]'
NPE = "numa-placement-exporter"


def path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod[0]}/pods/{pod[1]}"


def put(api: FakeObjects, pod: Pod, **annotations: str) -> None:
    metadata = {"namespace": pod[0], "name": pod[1], "annotations": {"x": "y"}}
    api.put(path(pod), {"metadata": metadata, "spec": {"nodeName": "gpu-1"}}, "kubectl")
    for value in annotations.values():
        api.objects[path(pod)]["metadata"]["annotations"][KEY] = value
        api.owners[path(pod)][("metadata", "annotations", KEY)] = {NPE}


@pytest.fixture
def api() -> FakeObjects:
    found = FakeObjects()
    put(found, A)
    put(found, B)
    return found


def publisher(api: FakeObjects) -> ObservedPlacementPublisher:
    return ObservedPlacementPublisher(lambda: api, "gpu-1")


def annotations(api: FakeObjects, pod: Pod) -> dict[str, str]:
    found: dict[str, str] = api.objects[path(pod)]["metadata"]["annotations"]
    return found


def test_each_pod_gets_its_own_and_keeps_the_rest(api: FakeObjects) -> None:
    ours = publisher(api)
    ours.publish({A: ZERO, B: ONE})
    assert annotations(api, A) == {"x": "y", KEY: ZERO}
    assert annotations(api, B) == {"x": "y", KEY: ONE}
    assert api.objects[path(A)]["spec"] == {"nodeName": "gpu-1"}
    assert ours.writes == 2


def test_a_pod_that_has_its_own_is_not_asked_for_again(api: FakeObjects) -> None:
    ours = publisher(api)
    ours.publish({A: ZERO})
    api.asked.clear()
    ours.publish({A: ZERO, B: ONE})
    assert api.asked == [("GET", path(B)), ("PATCH", path(B))]


def test_after_a_restart_nothing_is_written_again(api: FakeObjects) -> None:
    publisher(api).publish({A: ZERO, B: ONE})
    api.asked.clear()
    again = publisher(api)
    again.publish({A: ZERO, B: ONE})
    assert (api.writes, again.writes) == ([], 0)


def test_a_placement_that_is_not_wanted_any_more_stays_with_its_pod(api: FakeObjects) -> None:
    ours = publisher(api)
    ours.publish({A: ZERO})
    ours.publish({})
    assert annotations(api, A)[KEY] == ZERO


def test_another_pod_of_the_same_name_gets_its_own(api: FakeObjects) -> None:
    ours = publisher(api)
    ours.publish({A: ZERO})
    ours.publish({})
    put(api, A)
    ours.publish({A: ZERO})
    assert annotations(api, A)[KEY] == ZERO


def test_a_new_pod_of_the_same_name_is_annotated_at_the_next_recheck(
    api: FakeObjects,
) -> None:
    ours = publisher(api)
    ours.publish({A: ZERO})
    put(api, A)
    ours.publish({A: ZERO})
    assert KEY not in annotations(api, A)
    ours.republish({A: ZERO})
    assert annotations(api, A)[KEY] == ZERO


def test_a_pod_that_moved_within_its_name_is_corrected(api: FakeObjects) -> None:
    ours = publisher(api)
    ours.publish({A: ZERO})
    ours.publish({A: ONE})
    assert annotations(api, A)[KEY] == ONE


def test_what_another_program_wrote_is_left_as_it_is_and_that_is_said_once(
    api: FakeObjects,
) -> None:
    put(api, A, theirs=ONE)
    put(api, B, theirs=ONE)
    ours = publisher(api)
    with capture_logs() as lines:
        ours.publish({A: ZERO, B: ZERO})
    assert (annotations(api, A)[KEY], api.writes, ours.left) == (ONE, [], 2)
    assert [(line["event"], line["programs"]) for line in lines] == [
        ("placement of pods left to another program", [NPE])
    ]
    ours.publish({B: ZERO})
    assert ours.left == 1


def test_a_pod_that_is_gone_already_is_passed_over(api: FakeObjects) -> None:
    del api.objects[path(A)]
    ours = publisher(api)
    ours.publish({A: ZERO, B: ONE})
    assert (path(A) in api.objects, annotations(api, B)[KEY]) == (False, ONE)


def test_a_pod_recreated_during_the_write_is_not_annotated(api: FakeObjects) -> None:
    class Racing(FakeObjects):
        def read(self, path: str) -> dict[str, object]:
            found = super().read(path)
            if not self.writes:
                put(self, A)  # after it was looked at; another uid from now on
            return found

    racing = Racing(objects=api.objects, owners=api.owners, _uids=api._uids)
    ours = publisher(racing)
    with pytest.raises(ApiUnavailable, match="1 pods changed"):
        ours.publish({A: ZERO, B: ONE})
    assert (KEY in annotations(racing, A), annotations(racing, B)[KEY]) == (False, ONE)
    ours.publish({A: ONE, B: ONE})  # by then the kubelet has told where the new one is
    assert annotations(racing, A)[KEY] == ONE


def test_a_pod_of_the_same_name_on_another_node_is_not_annotated(api: FakeObjects) -> None:
    api.objects[path(A)]["spec"]["nodeName"] = "gpu-2"
    ours = publisher(api)
    ours.publish({A: ZERO})
    assert (KEY in annotations(api, A), api.writes, ours.writes) == (False, [], 0)


def test_a_pod_that_came_back_is_asked_for_again(api: FakeObjects) -> None:
    ours = publisher(api)
    ours.publish({A: ZERO})
    put(api, A)
    ours.publish({A._replace(appearance=7): ZERO})
    assert annotations(api, A)[KEY] == ZERO


def test_a_stale_cache_of_the_api_server_hides_no_pod() -> None:
    class Behind(FakeObjects):
        def _send(self, method: str, path: str, query: Any, *rest: Any, **more: Any) -> Answer:
            if query.get("resourceVersion") == "0":
                return Answer(status=404, body={}, retry_after_s=None)
            return super()._send(method, path, query, *rest, **more)

    behind = Behind()
    put(behind, A)
    publisher(behind).publish({A: ZERO})
    assert annotations(behind, A)[KEY] == ZERO


def test_a_webhook_that_fails_for_one_pod_delays_no_other(api: FakeObjects) -> None:
    class Hooked(FakeObjects):
        def _apply(self, path_: str, query: Any, body: Any) -> tuple[int, Any]:
            if path_ == path(A):
                return 500, {"message": "failed calling webhook"}
            return super()._apply(path_, query, body)

    hooked = Hooked(objects=api.objects, owners=api.owners)
    ours = publisher(hooked)
    ours.publish({A: ZERO, B: ONE})
    assert (annotations(hooked, B)[KEY], ours.refusals) == (ONE, 1)


@pytest.mark.parametrize(
    "broken",
    [
        {"spec": 1},
        {"metadata": [1]},
        {"metadata": {"annotations": [KEY]}},
        {"metadata": {"annotations": {KEY: 1}}},
        {"metadata": {"managedFields": {"x": 1}}},
    ],
)
def test_an_answer_that_is_no_pod_is_an_error_like_others(broken: Object) -> None:
    class Broken(FakeObjects):
        def read(self, path: str) -> Object:
            assert path
            return {"spec": {"nodeName": "gpu-1"}, **broken}

    with pytest.raises(ApiUnavailable):
        publisher(Broken(objects={path(A): {}})).publish({A: ZERO})


def test_a_refused_pod_delays_no_other_and_is_retried(
    api: FakeObjects,
) -> None:
    api.refuse[path(A)] = 403
    ours = publisher(api)
    with capture_logs() as lines:
        ours.publish({A: ZERO, B: ONE})
        ours.publish({A: ZERO, B: ONE})
    assert [line["cure"] for line in lines] == ["grant `get` and `patch` on pods"]
    assert (annotations(api, B)[KEY], ours.writes, ours.refusals) == (ONE, 1, 1)
    api.refuse.clear()
    ours.republish({A: ZERO, B: ONE})
    assert (annotations(api, A)[KEY], ours.writes) == (ZERO, 2)


@pytest.mark.parametrize("status", [0, 401, 429, 500, 503])
def test_an_api_server_that_is_not_there_is_not_asked_for_every_pod(
    api: FakeObjects, status: int
) -> None:
    api.fail_with = status
    ours = publisher(api)
    with pytest.raises(ApiUnavailable):
        ours.publish({A: ZERO, B: ONE})
    assert len(api.asked) == 1
    api.fail_with = None
    ours.publish({A: ZERO, B: ONE})
    assert ours.writes == 2
