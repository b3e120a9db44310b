"""``deploy/daemonset/components/own-node``: what a token of the agent may do to Nodes."""

from collections.abc import Iterator
from typing import Any

import pytest

from agent.publish.labels.node import NodeLabelPublisher
from agent.publish.labels.output import DesiredLabels
from tests.lab.api import Api, ApiError
from tests.lab.cluster import Cluster
from tests.lab.own_node import OTHER, OWN, bare_node, loose, policed, relabel

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> Iterator[Api]:
    """Return the API server as the agent on the Node ``OWN`` sees it, under the policies."""
    with policed(cluster) as found:
        yield found


def test_the_publisher_labels_the_node_of_its_pod(cluster: Cluster, agent: Api) -> None:
    kubeconfig = cluster.control_plane.write_kubeconfig("own-node", agent.token)
    desired = DesiredLabels(
        labels={"nvidia.com/gpu.count": "8", "gpu.topology/rdma": "ib"},
        annotations={"gpu.topology/topology-ok-reason": "all is well"},
    )
    NodeLabelPublisher(kubeconfig, OWN).publish(desired, complete=True)
    metadata = cluster.api.get(f"/api/v1/nodes/{OWN}")["metadata"]
    assert desired.labels.items() <= metadata["labels"].items()
    assert metadata["annotations"].items() >= {**(desired.annotations or {})}.items()


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"gpu.topology/stale": None}}},
        {"metadata": {"annotations": {"nvidia.com/note": "x"}}},
    ],
    ids=["a label goes", "an annotation comes"],
)
def test_what_is_the_agents_own_may_change(agent: Api, change: dict[str, Any]) -> None:
    agent.merge(f"/api/v1/nodes/{OWN}", change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metadata": {"labels": {"foreign.example/key": "other"}}}, "labels of its own"),
        ({"metadata": {"labels": {"foreign.example/key": None}}}, "labels of its own"),
        ({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}}, "labels of its own"),
        ({"metadata": {"annotations": {"foreign.example/key": "x"}}}, "annotations of its own"),
        ({"metadata": {"annotations": {"foreign.example/note": None}}}, "annotations of its own"),
        ({"spec": {"unschedulable": True}}, "neither the spec"),
        ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, "neither the spec"),
        ({"metadata": {"finalizers": ["a.example/b"]}}, "neither the owners"),
    ],
    ids=lambda one: "" if isinstance(one, dict) else one,
)
def test_nothing_else_of_the_own_node_may(agent: Api, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ApiError, match=said):
        agent.merge(f"/api/v1/nodes/{OWN}", change)


def test_no_label_of_another_node_may(agent: Api) -> None:
    with pytest.raises(ApiError, match=f"nodetopo on node {OWN} may change that Node only"):
        relabel(agent, OTHER)


def test_a_patch_of_the_status_may_change_neither_it_nor_foreign_labels(agent: Api) -> None:
    with pytest.raises(ApiError, match="neither the spec nor the status"):
        agent.merge(f"/api/v1/nodes/{OWN}/status", {"status": {"capacity": {"nvidia.com/gpu": 9}}})
    with pytest.raises(ApiError, match="labels of its own"):
        agent.merge(f"/api/v1/nodes/{OWN}/status", {"metadata": {"labels": {"a.example/b": "c"}}})


def test_no_node_may_be_created_or_deleted(agent: Api) -> None:
    with pytest.raises(ApiError, match="may change that Node only"):
        agent.create("/api/v1/nodes", bare_node("own-node-c"))
    with pytest.raises(ApiError, match="may change that Node only"):
        agent.delete(f"/api/v1/nodes/{OWN}")


def test_a_token_of_no_pod_may_label_no_node(cluster: Cluster, agent: Api) -> None:
    del agent
    with pytest.raises(ApiError, match="names no node"):
        relabel(loose(cluster.api), OWN)


def test_others_are_not_held_to_anything(cluster: Cluster, agent: Api) -> None:
    del agent
    cluster.api.merge(
        f"/api/v1/nodes/{OTHER}", {"metadata": {"labels": {"foreign.example/b": "c"}}}
    )
