"""``deploy/daemonset/components/own-node``: NodeFeatures and Events of the agent, and who it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.publisher import SlicePublisher
from nodetopo.components.dra.served_fields import ServedFields
from nodetopo.components.dra.slices import slice_name
from nodetopo.components.labels.outputs.nfd import NodeFeaturePublisher
from nodetopo.components.zones.node_resource_topology import attributes, content
from nodetopo.components.zones.publish import NodeZonesPublisher
from nodetopo.components.zones.zones import zones
from nodetopo.kernel.events import EventPublisher, NodeEvent, PodEvent, PodEventPublisher
from nodetopo.kubeapi.apply import connection
from nodetopo.machines.bundled import machine
from nodetopo.model.dra import SLICES
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
    apply_slice,
    event_name,
    features,
    policed,
    relabel,
    slice_of,
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
    for name, target in ((OTHER, OTHER), (OWN, OTHER), (OTHER, OWN)):
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
        reason="PodMisaligned",
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
    again = {**made, "metadata": {"name": event_name("some-pod"), "namespace": "default"}}
    for changes, said in (
        ({"source": {"component": "nodetopo", "host": OTHER}}, "Events in its own name"),
        ({"source": {"component": "nodetopo"}}, "Events in its own name"),
        ({"reason": "Evicted"}, "for its own reasons only"),
        ({"metadata": {"name": event_name(OTHER), "namespace": "default"}}, "of its own names"),
    ):
        with pytest.raises(ApiError, match=said):
            agent.create(EVENTS, {**again, **changes})
    cluster.api.delete(place)


OWNERS = [{"apiVersion": "v1", "kind": "Node", "name": OTHER, "uid": "u"}]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"involvedObject": {"kind": "Node", "name": OTHER, "uid": OWN}}, "about that Node and"),
        ({"involvedObject": {"kind": "Node", "name": OWN, "uid": OTHER}}, "about that Node and"),
        ({"involvedObject": {"kind": "Node", "name": OWN}}, "about that Node and"),
        ({"involvedObject": {"kind": "Job", "name": OWN, "uid": OWN}}, "about that Node and"),
        (
            {"involvedObject": {"kind": "Node", "name": OWN, "uid": OWN, "apiVersion": "a.b/v1"}},
            "about that Node and",
        ),
        ({"source": {"component": "nodetopo", "host": OTHER}}, "in its own name"),
        ({"reportingInstance": OTHER}, "in its own name"),
        ({"related": {"kind": "Node", "name": OTHER}}, "to other objects"),
        ({"metadata": {"name": event_name("c"), "namespace": "default"}}, "of its own names"),
        (
            {"metadata": {"name": event_name(f"{OWN}.b"), "namespace": "default"}},
            "of its own names",
        ),
        ({"metadata": {"name": event_name(OWN), "ownerReferences": OWNERS}}, "to other objects"),
        ({"metadata": {"name": event_name(OWN), "finalizers": ["a.b/c"]}}, "to other objects"),
    ],
    ids=str,
)
def test_no_field_of_an_event_may_name_another_node(
    agent: Api, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ApiError, match=said):
        apply_event(agent, OWN, **changes)


def test_an_event_by_the_other_group_is_held_too(agent: Api) -> None:
    body = {
        "metadata": {"name": event_name(OTHER), "namespace": "default"},
        "regarding": {"kind": "Node", "name": OTHER, "uid": OTHER},
        "reportingController": "nodetopo",
        "reportingInstance": OWN,
        "reason": "Probe",
        "action": "Probe",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }
    with pytest.raises(ApiError, match="about that Node and"):
        agent.create("/apis/events.k8s.io/v1/namespaces/default/events", body)


def test_the_publisher_writes_and_deletes_the_slices_of_its_node(
    cluster: Cluster, kubeconfig: Path
) -> None:
    api = connection(kubeconfig)
    snapshot = machine("dgx-h100")
    ours = SlicePublisher(OWN, api, ServedFields(api))
    for gpus in (snapshot.gpus, snapshot.gpus[:1]):  # anew, and changed
        pool = Pool.of(snapshot, gpus, form=Form(has_sets=False))
        ours.publish(pool, pool.groups((), Conditions(), {}), slices_of_own(cluster))
        assert slices_of_own(cluster)
    for name in slices_of_own(cluster):
        ours.delete(name)
    assert not slices_of_own(cluster)


def slices_of_own(cluster: Cluster) -> dict[str, Object]:
    """Return the slices of the Node ``OWN``, by name."""
    items = cluster.api.get(SLICES)["items"]
    return {one["metadata"]["name"]: one for one in items if one["spec"].get("nodeName") == OWN}


COUNTERS = [{"name": "x", "counters": {"y": {"value": "1"}}}]
SELECTOR = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}],
}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {
                "pool": {"name": OTHER, "generation": 10**9, "resourceSliceCount": 1},
                "sharedCounters": COUNTERS,
                "devices": None,
            },
            "of the pool of that Node only",
        ),
        (
            {"pool": {"name": OTHER, "generation": 1, "resourceSliceCount": 1}},
            "of the pool of that Node only",
        ),
        ({"driver": "gpu.nvidia.com"}, "of its own driver for that Node only"),
        ({"nodeName": OTHER}, "of its own driver for that Node only"),
        ({"nodeName": None, "allNodes": True}, "for that Node only"),
        ({"nodeName": None, "nodeSelector": SELECTOR}, "for that Node only"),
        (
            {
                "nodeName": None,
                "perDeviceNodeSelection": True,
                "devices": [{"name": "gpu-0", "nodeName": OTHER}],
            },
            "for that Node only",
        ),
        ({"allNodes": True}, "may select no nodes"),
        ({"nodeSelector": SELECTOR}, "may select no nodes"),
        ({"perDeviceNodeSelection": True}, "may select no nodes"),
        ({"devices": [{"name": "gpu-0", "nodeName": OTHER}]}, "may select no nodes"),
        ({"devices": [{"name": "gpu-0", "allNodes": True}]}, "may select no nodes"),
        ({"devices": [{"name": "gpu-0", "nodeSelector": SELECTOR}]}, "may select no nodes"),
    ],
    ids=str,
)
def test_no_field_of_a_slice_may_reach_another_node(
    cluster: Cluster, agent: Api, spec: dict[str, Any], said: str
) -> None:
    apply_slice(agent, OWN)
    # The API server itself takes one field that selects nodes, and is asked before the policy.
    said = f"{said}|exactly one of|can only be set if|field is immutable"
    with pytest.raises(ApiError, match=said):
        apply_slice(agent, OWN, **spec)
    path = f"{SLICES}/{slice_name(OWN, '1-devices-0')}"
    cluster.api.create(SLICES, slice_of(OWN))
    with pytest.raises(ApiError, match=said):
        agent.merge(path, {"spec": spec})
    cluster.api.delete(path)


@pytest.mark.parametrize(
    "name", [slice_name(OTHER, "1-devices-0"), slice_name(f"{OWN}-nodetopo.io-b", "1-devices-0")]
)
def test_no_slice_may_take_the_name_of_another_nodes(agent: Api, name: str) -> None:
    with pytest.raises(ApiError, match="of its own names only"):
        apply_slice(agent, OWN, name=name)


def test_no_slice_of_another_node_may_be_changed_or_deleted(cluster: Cluster, agent: Api) -> None:
    path = f"{SLICES}/{slice_name(OTHER, '1-devices-0')}"
    cluster.api.create(SLICES, slice_of(OTHER))
    for attempt in (
        lambda: agent.merge(path, {"metadata": {"labels": {"a": "b"}}}),
        lambda: agent.delete(path),
        lambda: agent.delete(SLICES),
    ):
        with pytest.raises(ApiError, match="for that Node only"):
            attempt()
    cluster.api.delete(path)


BLOCKING = [
    {"apiVersion": "v1", "kind": "Node", "name": OWN, "uid": "u", "blockOwnerDeletion": True}
]


@pytest.mark.parametrize("owners", [OWNERS, BLOCKING])
def test_no_object_may_belong_to_another_node_or_hold_up_its_deletion(
    agent: Api, owners: list[Object]
) -> None:
    sliced = slice_of(OWN)
    zoned: Object = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": OWN},
        "zones": [],
    }
    for path, body in ((SLICES, sliced), (ZONES, zoned)):
        body["metadata"]["ownerReferences"] = owners
        with pytest.raises(ApiError, match="belong to its own Node only"):
            agent.apply(f"{path}/{body['metadata']['name']}", body, is_dry_run=True)
    featured = features(OWN)
    featured["metadata"]["ownerReferences"] = BLOCKING
    with pytest.raises(ApiError, match="may not hold up the deletion"):
        agent.create(FEATURES, featured)


def test_no_event_of_another_program_may_be_changed(cluster: Cluster, agent: Api) -> None:
    apply_event(cluster.api, OWN, source={"component": "kubelet"})
    with pytest.raises(ApiError, match="no Event but its own"):
        apply_event(agent, OWN)
    with pytest.raises(ApiError, match="may write Events about that Node and its pods only"):
        agent.delete(f"{EVENTS}/{event_name(OWN)}")
    cluster.api.delete(f"{EVENTS}/{event_name(OWN)}")


def test_the_publisher_writes_the_zones_of_its_node(cluster: Cluster, kubeconfig: Path) -> None:
    ours = NodeZonesPublisher(connection(kubeconfig), OWN)
    assert ours.publish(content(zones(NODES, OFFER, ()), attributes(None, ())))
    (owner,) = cluster.api.get(f"{ZONES}/{OWN}")["metadata"]["ownerReferences"]
    cluster.api.delete(f"{ZONES}/{OWN}")
    assert (owner["kind"], owner["name"]) == ("Node", OWN)


def test_no_event_may_be_written_in_the_name_of_another_program(agent: Api) -> None:
    for component, reporting in (("kubelet", ""), ("nodetopo", "kubelet"), ("", "nodetopo")):
        source = {"component": component, "host": OWN}
        with pytest.raises(ApiError, match="Events in its own name"):
            apply_event(agent, OWN, source=source, reportingComponent=reporting)


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
    apply_event(cluster.api, OTHER, source={"component": "kubelet"})
    cluster.api.delete(f"{EVENTS}/{event_name(OTHER)}")
