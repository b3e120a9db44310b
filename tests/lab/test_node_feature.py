"""Our NodeFeature object, on a real API server with NFD's definition, as our account."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.outputs.nfd import NodeFeaturePublisher
from nodetopo.errors import ApiUnavailable
from nodetopo.machines.bundled import machine
from tests.bench.fleet_identity import NAMESPACE
from tests.components.labels.outputs.desired_labels import desired
from tests.lab import featured
from tests.lab.api import Object
from tests.lab.audit import moment
from tests.lab.cluster import Cluster
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

NODE = "featured"
LABELS = labels(machine("gb200-nvl72"))
COUNT = "nvidia.com/gpu.count"
_LOOK = ("get", "nodefeatures")


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Iterator[Path]:
    """Return our account's, where NFD's definitions and a pod of our DaemonSet are."""
    featured.install(cluster)
    featured.add_pod(cluster.api, NODE)
    yield cluster.control_plane.agent_kubeconfig()
    cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{NODE}")


@pytest.fixture
def ours(cluster: Cluster, kubeconfig: Path) -> Iterator[NodeFeaturePublisher]:
    """Return an output whose object is gone after the test."""
    yield featured.publisher(kubeconfig, NODE)
    featured.publisher(cluster.kubeconfig, NODE).remove()


def test_the_object_holds_the_labels_and_names_its_node(
    cluster: Cluster, ours: NodeFeaturePublisher
) -> None:
    assert ours.publish(desired(LABELS)).added == LABELS
    found = _object(cluster)
    assert found["spec"]["labels"] == LABELS
    assert found["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": NODE}


def test_the_daemon_set_that_is_found_through_the_pod_owns_the_object(
    cluster: Cluster, ours: NodeFeaturePublisher
) -> None:
    ours.publish(desired(LABELS))
    (owner,) = _object(cluster)["metadata"]["ownerReferences"]
    theirs = cluster.api.get(featured.DAEMON_SET)["metadata"]
    assert (owner["kind"], owner["uid"]) == ("DaemonSet", theirs["uid"])


def test_a_second_publication_and_one_after_a_restart_write_nothing(
    cluster: Cluster, kubeconfig: Path, ours: NodeFeaturePublisher
) -> None:
    ours.publish(desired(LABELS))
    before, start = _object(cluster), moment()
    for one in (ours, featured.publisher(kubeconfig, NODE)):
        assert not one.publish(desired(LABELS), complete=True)
        # Over the same connection, so that all that came before it is in the log by then.
        assert not one.publish(desired(LABELS), complete=True)
    assert _object(cluster) == before

    def asked() -> dict[tuple[str, str], int]:
        kinds = ("nodefeatures", "pods")  # of Nodes other agents ask meanwhile
        found = cluster.control_plane.agent_requests(start)
        return {what: count for what, count in found.items() if what[1] in kinds}

    wait_for("the last look is in the audit log", lambda: asked().get(_LOOK, 0) >= 4)
    assert asked() == {_LOOK: 4, ("get", "pods"): 1}


def test_a_label_that_went_on_proof_is_gone_and_those_of_others_stay(
    cluster: Cluster, ours: NodeFeaturePublisher
) -> None:
    ours.publish(desired(LABELS))
    cluster.api.merge(_path(), {"spec": {"labels": {"vendor.example/theirs": "x"}}})
    fewer = {key: value for key, value in LABELS.items() if key != COUNT}
    assert ours.publish(desired(fewer), complete=True).removed == {COUNT: LABELS[COUNT]}
    assert _object(cluster)["spec"]["labels"] == fewer | {"vendor.example/theirs": "x"}


def test_the_account_may_not_delete_the_object_and_an_administrator_may(
    cluster: Cluster, ours: NodeFeaturePublisher
) -> None:
    ours.publish(desired(LABELS))
    with pytest.raises(ApiUnavailable, match="cannot delete"):
        ours.remove()
    assert featured.publisher(cluster.kubeconfig, NODE).remove().removed == LABELS
    assert featured.find(cluster.api, NODE) is None


def test_a_node_whose_name_nfd_cannot_take_is_told_so(cluster: Cluster) -> None:
    far = NodeFeaturePublisher(cluster.kubeconfig, "n" * 64, namespace=NAMESPACE)
    with pytest.raises(ApiUnavailable) as caught:
        far.publish(desired(LABELS))
    assert "63 characters" in caught.value.cure


def _path() -> str:
    return f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures/nodetopo-{NODE}"


def _object(cluster: Cluster) -> Object:
    found = featured.find(cluster.api, NODE)
    assert found is not None
    return found
