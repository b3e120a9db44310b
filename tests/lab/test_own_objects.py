"""``deploy/daemonset/components/own-node``: NodeFeatures and Events of the agent, and who it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetopo.components.labels.outputs.nfd import NodeFeaturePublisher
from nodetopo.components.zones.node_resource_topology import attributes, content
from nodetopo.components.zones.publish import NodeZonesPublisher
from nodetopo.components.zones.zones import zones
from nodetopo.kernel.events import EventPublisher, NodeEvent, PodEvent, PodEventPublisher
from nodetopo.kubeapi.apply import connection
from tests.bench.fleet_identity import pod
from tests.components.labels.outputs.desired_labels import desired
from tests.components.zones.machines import NODES, OFFER
from tests.lab.api import Api, ApiError, Object
from tests.lab.cluster import Cluster
from tests.lab.own_node import (
    ELSEWHERE,
    EVENTS,
    FEATURES,
    OTHER,
    OWN,
    ZONES,
    apply_event,
    apply_features,
    features,
    policed,
    relabel,
)

pytestmark = pytest.mark.lab

FEATURE = f"{FEATURES}/nodetopo-{OWN}"
FOREIGN = "vendor.example/theirs"


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> Iterator[Api]:
    """Return the API server as the agent on the Node ``OWN`` sees it, under the policies."""
    with policed(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster, agent: Api) -> Path:
    """Return the way in for that agent."""
    return cluster.control_plane.write_kubeconfig("own-objects", agent.token)


def test_the_publisher_writes_the_feature_of_its_node_anew_and_again(
    cluster: Cluster, kubeconfig: Path
) -> None:
    ours = NodeFeaturePublisher(kubeconfig, OWN, namespace="nodetopo", pod=OWN)
    ours.publish(desired({"nvidia.com/gpu.count": "8", "gpu.topology/rdma": "ib"}))
    cluster.api.merge(FEATURE, {"spec": {"labels": {FOREIGN: "x"}}})
    ours.publish(desired({"gpu.topology/rdma": "roce"}), complete=True)
    found = cluster.api.get(FEATURE)["spec"]["labels"]
    cluster.api.delete(FEATURE)
    assert found == {"gpu.topology/rdma": "roce", FOREIGN: "x"}


def test_no_feature_may_name_another_node(cluster: Cluster, agent: Api) -> None:
    said = f"on node {OWN} may write features of that Node only"
    for name, target in ((OTHER, OTHER), (OWN, OTHER)):
        with pytest.raises(ApiError, match=said):
            apply_features(agent, name, target=target)
    cluster.api.create(FEATURES, features(OTHER))
    with pytest.raises(ApiError, match=said):  # not to be taken over either
        apply_features(agent, OTHER, target=OWN)
    with pytest.raises(ApiError, match=said):
        agent.delete(f"{FEATURES}/nodetopo-{OTHER}")
    cluster.api.delete(f"{FEATURES}/nodetopo-{OTHER}")


def test_a_feature_may_neither_bring_labels_of_others_nor_take_them_away(
    cluster: Cluster, agent: Api
) -> None:
    with pytest.raises(ApiError, match="publish its own labels"):
        apply_features(agent, OWN, label=FOREIGN)
    cluster.api.create(FEATURES, features(OWN, FOREIGN))
    for value in (None, "other"):
        with pytest.raises(ApiError, match="publish its own labels"):
            agent.merge(FEATURE, {"spec": {"labels": {FOREIGN: value}}})
    with pytest.raises(ApiError, match="publish its own labels"):
        agent.merge(FEATURE, {"spec": {"labels": {"nvidia.com/mig.config": "all-disabled"}}})
    cluster.api.delete(FEATURE)


def test_a_feature_may_not_feed_rules(cluster: Cluster, agent: Api) -> None:
    flags: Object = {"flags": {"a.b": {"elements": {"C": {}}}}}
    body = features(OWN)
    body["spec"]["features"] = flags
    with pytest.raises(ApiError, match="no features but labels"):
        agent.create(FEATURES, body)
    cluster.api.create(FEATURES, features(OWN))
    with pytest.raises(ApiError, match="no features but labels"):
        agent.merge(FEATURE, {"spec": {"features": flags}})
    cluster.api.delete(FEATURE)


def test_the_publisher_writes_events_about_its_node(cluster: Cluster, kubeconfig: Path) -> None:
    ours = EventPublisher(kubeconfig, OWN)
    for _ in range(2):
        ours.post(NodeEvent(reason="Probe", message="x", is_warning=False, key="k"))
        ours.write_next()
    mine = [
        one
        for one in cluster.api.get(EVENTS)["items"]
        if one["involvedObject"]["name"] == OWN and one["reason"] == "Probe"
    ]
    for one in mine:
        cluster.api.delete(f"{EVENTS}/{one['metadata']['name']}")
    assert len(mine) == 1


def test_no_event_about_another_node_may_be_written(agent: Api) -> None:
    with pytest.raises(ApiError, match=f"on node {OWN} may write Events about that Node and"):
        apply_event(agent, OTHER)


def test_an_event_about_a_pod_is_created_in_the_name_of_the_own_node_and_never_changed(
    cluster: Cluster, kubeconfig: Path, agent: Api
) -> None:
    about = PodEvent(
        reason="Probe",
        message="x",
        is_warning=True,
        key="u-1",
        namespace="default",
        pod="some-pod",
        uid="u-1",
    )
    for _ in range(2):
        ours = PodEventPublisher(kubeconfig, OWN)
        ours.post(about)
        ours.write_next()
    (made,) = (
        one
        for one in cluster.api.get(EVENTS)["items"]
        if one["involvedObject"]["name"] == "some-pod"
    )
    place = f"{EVENTS}/{made['metadata']['name']}"
    with pytest.raises(ApiError, match="about that Node and its pods only"):
        agent.merge(place, {"message": "changed"})
    for host in (OTHER, None):
        body = {
            "metadata": {"name": "another", "namespace": "default"},
            "involvedObject": made["involvedObject"],
            "source": {"component": "nodetopo", **({} if host is None else {"host": host})},
        }
        with pytest.raises(ApiError, match="about that Node and its pods only"):
            agent.create(EVENTS, body)
    cluster.api.delete(place)


def test_no_event_of_another_program_may_be_changed(cluster: Cluster, agent: Api) -> None:
    apply_event(cluster.api, OWN, "kubelet")
    with pytest.raises(ApiError, match="no Event but its own"):
        apply_event(agent, OWN)
    with pytest.raises(ApiError, match="may write Events about that Node and its pods only"):
        agent.delete(f"{EVENTS}/{OWN}.probe")
    cluster.api.delete(f"{EVENTS}/{OWN}.probe")


def test_the_publisher_writes_the_zones_of_its_node(cluster: Cluster, kubeconfig: Path) -> None:
    ours = NodeZonesPublisher(connection(kubeconfig), OWN)
    assert ours.publish(content(zones(NODES, OFFER, ()), attributes(None, ())))
    (owner,) = cluster.api.get(f"{ZONES}/{OWN}")["metadata"]["ownerReferences"]
    cluster.api.delete(f"{ZONES}/{OWN}")
    assert (owner["kind"], owner["name"]) == ("Node", OWN)


def test_no_event_may_be_written_in_the_name_of_another_program(agent: Api) -> None:
    for component, reporting in (("kubelet", ""), ("nodetopo", "kubelet"), ("", "nodetopo")):
        with pytest.raises(ApiError, match="Events in its own name"):
            apply_event(agent, OWN, component, reporting)


def test_an_agent_in_another_namespace_is_held_too(cluster: Cluster, agent: Api) -> None:
    api = cluster.api
    api.create("/api/v1/namespaces", {"metadata": {"name": ELSEWHERE}})
    base = f"/api/v1/namespaces/{ELSEWHERE}"
    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "nodetopo"}})
    body = pod(OWN)
    body["metadata"]["namespace"] = ELSEWHERE
    uid = api.create(f"{base}/pods", body)["metadata"]["uid"]
    reference = {"kind": "Pod", "apiVersion": "v1", "name": OWN, "uid": uid}
    token = api.create(
        f"{base}/serviceaccounts/nodetopo/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"boundObjectRef": reference},
        },
    )["status"]["token"]
    there = Api(agent.url, token, agent.authority)
    relabel(there, OWN)
    with pytest.raises(ApiError, match="may change that Node only"):
        relabel(there, OTHER)
    api.delete(f"{base}/pods/{OWN}")
    api.delete(f"/api/v1/namespaces/{ELSEWHERE}")


def test_others_are_not_held_to_anything(cluster: Cluster, agent: Api) -> None:
    del agent
    apply_features(cluster.api, OTHER, label=FOREIGN)
    apply_event(cluster.api, OTHER, "kubelet")
    cluster.api.delete(f"{EVENTS}/{OTHER}.probe")
