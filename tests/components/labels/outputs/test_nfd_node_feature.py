"""The NodeFeature object, against a server that applies it."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nodetopo.components.labels.outputs.nfd import LONGEST_NODE, NodeFeaturePublisher
from nodetopo.errors import ApiUnavailable
from tests.components.labels.outputs.desired_labels import desired
from tests.kubeapi.fake_api_server import DirectApi, FakeApi, serving
from tests.kubeapi.fake_node_features import FakeFeatures

LABELS = {"nvidia.com/gpu.count": "8", "gpu.topology/interconnect": "nvswitch"}
PATH = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/ns/nodefeatures/nodetopo-gpu-1"
POD = "/api/v1/namespaces/ns/pods/nodetopo-x"
DAEMON_SET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "nodetopo",
    "uid": "uid-ds",
    "controller": True,
    "blockOwnerDeletion": True,
}


def installed(owner: dict[str, Any] | None = None) -> FakeApi:
    """Return a server with NFD and our pod, which *owner* controls."""
    owners = [] if owner is None else [owner]
    return FakeApi(
        features=FakeFeatures(), pods={POD: {"uid": "uid-pod", "ownerReferences": owners}}
    )


def publisher(api: FakeApi, pod: str | None = None) -> NodeFeaturePublisher:
    connect = DirectApi(api)
    return NodeFeaturePublisher(None, "gpu-1", namespace="ns", pod=pod, connect=lambda: connect)


def features(api: FakeApi) -> FakeFeatures:
    assert api.features is not None
    return api.features


def test_the_object_names_its_node_and_holds_the_labels(tmp_path: Path) -> None:
    api = installed()
    with serving(api, tmp_path) as config:
        NodeFeaturePublisher(config, "gpu-1", namespace="ns").publish(desired(LABELS))
    assert features(api).writes == [
        {
            "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
            "kind": "NodeFeature",
            "metadata": {
                "name": "nodetopo-gpu-1",
                "namespace": "ns",
                "labels": {"nfd.node.kubernetes.io/node-name": "gpu-1"},
            },
            "spec": {"features": {}, "labels": LABELS},
        }
    ]


def test_a_node_without_labels_gets_no_object() -> None:
    api = installed(DAEMON_SET)
    assert not publisher(api, "nodetopo-x").publish(desired({}), complete=True)
    assert features(api).writes == []


def test_the_same_labels_are_not_written_again_after_a_restart() -> None:
    api = installed(DAEMON_SET)
    publisher(api, "nodetopo-x").publish(desired(LABELS))
    assert not publisher(api, "nodetopo-x").publish(desired(LABELS))
    assert len(features(api).writes) == 1


def test_the_daemon_set_owns_the_object_and_not_the_pod_that_a_rollout_replaces() -> None:
    api = installed(DAEMON_SET)
    publisher(api, "nodetopo-x").publish(desired(LABELS))
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nodetopo", "uid": "uid-ds"}
    assert features(api).objects[PATH]["metadata"]["ownerReferences"] == [owner]


def test_a_pod_without_a_controller_owns_the_object() -> None:
    api = installed()
    publisher(api, "nodetopo-x").publish(desired(LABELS))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "nodetopo-x", "uid": "uid-pod"}
    assert features(api).objects[PATH]["metadata"]["ownerReferences"] == [owner]


def test_another_daemon_set_becomes_the_owner_by_one_write() -> None:
    api = installed(DAEMON_SET)
    publisher(api, "nodetopo-x").publish(desired(LABELS))
    api.pods[POD]["ownerReferences"] = [DAEMON_SET | {"uid": "uid-2"}]
    ours = publisher(api, "nodetopo-x")
    assert ours.publish(desired(LABELS)).is_stale
    assert not ours.publish(desired(LABELS))
    (owner,) = features(api).objects[PATH]["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-2"


def test_an_owner_that_we_may_not_see_keeps_no_label_away() -> None:
    api = installed()
    api.pods.clear()
    with capture_logs() as lines:
        publisher(api, "nodetopo-x").publish(desired(LABELS))
    assert features(api).objects[PATH]["spec"]["labels"] == LABELS
    assert [line["event"] for line in lines] == ["owner of the pod not known"]


def test_an_owner_that_cannot_be_read_now_is_waited_for() -> None:
    api = installed(DAEMON_SET)
    features(api).objects.clear()
    ours = publisher(api, "nodetopo-x")
    api.fail_with = (503, {"Retry-After": "3"})
    with pytest.raises(ApiUnavailable) as caught:
        ours.publish(desired(LABELS))
    assert caught.value.retry_after_s == 3
    api.fail_with = None
    ours.publish(desired(LABELS))
    assert "ownerReferences" in features(api).objects[PATH]["metadata"]


def test_a_label_missing_from_an_incomplete_scan_stays() -> None:
    api = installed()
    ours = publisher(api)
    ours.publish(desired(LABELS))
    assert ours.publish(desired({"nvidia.com/gpu.count": "7"})).changed
    assert features(api).objects[PATH]["spec"]["labels"] == LABELS | {"nvidia.com/gpu.count": "7"}


def test_complete_evidence_removes_our_labels_and_leaves_those_of_others() -> None:
    api = installed()
    ours = publisher(api)
    ours.publish(desired(LABELS))
    features(api).label(PATH, "somebody", theirs="x")
    found = ours.publish(desired({"nvidia.com/gpu.count": "8"}), complete=True)
    assert found.removed == {"gpu.topology/interconnect": "nvswitch"}
    labels = features(api).objects[PATH]["spec"]["labels"]
    assert labels == {"nvidia.com/gpu.count": "8", "theirs": "x"}
    assert not ours.publish(desired({"nvidia.com/gpu.count": "8"}), complete=True)


def test_an_object_that_lost_its_node_is_put_right() -> None:
    api = installed()
    ours = publisher(api)
    ours.publish(desired(LABELS))
    features(api).objects[PATH]["metadata"]["labels"] = {}
    assert ours.publish(desired(LABELS)).is_stale
    assert not ours.publish(desired(LABELS))


def test_a_poisoned_label_stays_out_and_the_others_do_not() -> None:
    api = installed()
    ours = publisher(api)
    ours.publish(desired(LABELS | {"nvidia.com/gpu.product": "not valid"}))
    assert features(api).objects[PATH]["spec"]["labels"] == LABELS
    assert ours.refused == {("nvidia.com/gpu.product", "not valid")}


def test_without_nfd_it_is_named(tmp_path: Path) -> None:
    with serving(FakeApi(), tmp_path) as config:
        ours = NodeFeaturePublisher(config, "gpu-1", namespace="ns")
        with pytest.raises(ApiUnavailable, match="install Node Feature Discovery"):
            ours.publish(desired(LABELS))


@pytest.mark.parametrize(
    ("length", "cure"), [(LONGEST_NODE, "the object changed"), (LONGEST_NODE + 1, "63 characters")]
)
def test_a_node_name_too_long_for_nfd_is_an_error(length: int, cure: str) -> None:
    connect = DirectApi(FakeApi(fail_with=(422, {}), features=FakeFeatures()))
    ours = NodeFeaturePublisher(None, "n" * length, namespace="ns", connect=lambda: connect)
    with pytest.raises(ApiUnavailable, match=cure):
        ours.publish(desired(LABELS))


def test_a_missing_permission_is_named() -> None:
    api = FakeApi(fail_with=(403, {}), features=FakeFeatures())
    with pytest.raises(
        ApiUnavailable, match=r"nodefeatures\.nfd\.k8s-sigs\.io in the namespace ns"
    ):
        publisher(api).publish(desired(LABELS))


def test_removal_deletes_the_object_and_tells_what_went(tmp_path: Path) -> None:
    api = installed()
    with serving(api, tmp_path) as config:
        ours = NodeFeaturePublisher(config, "gpu-1", namespace="ns")
        ours.publish(desired(LABELS))
        assert ours.remove().removed == LABELS
        assert features(api).objects == {}
        assert ours.remove().is_there is False


def test_a_removal_that_is_refused_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    api = installed()
    ours = publisher(api)
    ours.publish(desired(LABELS))
    answer = features(api).answer

    def forbid(method: str, *rest: Any) -> tuple[int, dict[str, Any]]:
        return (403, {"message": "no"}) if method == "DELETE" else answer(method, *rest)

    monkeypatch.setattr(features(api), "answer", forbid)
    with pytest.raises(ApiUnavailable, match="grant"):
        ours.remove()
