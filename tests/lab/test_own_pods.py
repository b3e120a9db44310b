"""``deploy/daemonset/components/own-node``: what a token of the agent may do to pods and zones."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.bench.fleet_identity import pod
from tests.lab.api import Api, ApiError
from tests.lab.cluster import Cluster
from tests.lab.own_node import (
    OTHER,
    OWN,
    annotate,
    apply_zones,
    loose,
    pod_path,
    policed,
)

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> Iterator[Api]:
    """Return the API server as the agent on the Node ``OWN`` sees it, under the policies."""
    with policed(cluster) as found:
        cluster.api.create(pod_path("").rstrip("/"), pod(OTHER))
        yield found
        cluster.api.delete(pod_path(OTHER))


def test_a_pod_of_the_own_node_may_be_told_where_it_is(cluster: Cluster, agent: Api) -> None:
    annotate(agent, OWN)
    found = cluster.api.get(pod_path(OWN))["metadata"]["annotations"]
    assert found.keys() == {"kai.scheduler/numa-placement-observed"}


def test_a_pod_of_another_node_may_not(agent: Api) -> None:
    with pytest.raises(ApiError, match=f"on node {OWN} may change pods of that node only"):
        annotate(agent, OTHER)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metadata": {"annotations": {"a.example/b": "c"}}}, "no annotation of a pod but"),
        ({"metadata": {"labels": {"a.example/b": "c"}}}, "nothing else of a pod"),
        ({"metadata": {"finalizers": ["a.example/b"]}}, "nothing else of a pod"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "nothing else of a pod"),
        ({"metadata": {"managedFields": [{}]}}, "no managedFields of others"),
    ],
)
def test_nothing_else_of_a_pod_may_change(agent: Api, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ApiError, match=said):
        agent.merge(pod_path(OWN), change)


def test_the_status_of_a_pod_may_not_change(agent: Api) -> None:
    with pytest.raises(ApiError, match="nothing else of a pod"):
        agent.merge(f"{pod_path(OWN)}/status", {"status": {"message": "x"}})


def test_no_pod_may_be_created_or_deleted(agent: Api) -> None:
    with pytest.raises(ApiError, match="may change pods of that node only"):
        agent.create(pod_path("").rstrip("/"), pod("more"))
    with pytest.raises(ApiError, match="may change pods of that node only"):
        agent.delete(pod_path(OWN))


def test_no_pod_may_be_bound_or_evicted(agent: Api) -> None:
    binding = {"metadata": {"name": OTHER}, "target": {"kind": "Node", "name": OTHER}}
    eviction = {"metadata": {"name": OTHER, "namespace": "nodetopo"}}
    for part, kind, version, body in (
        ("binding", "Binding", "v1", binding),
        ("eviction", "Eviction", "policy/v1", eviction),
    ):
        with pytest.raises(ApiError, match="may change pods of that node only"):
            agent.create(f"{pod_path(OTHER)}/{part}", {"apiVersion": version, "kind": kind, **body})


def test_only_the_zones_of_the_own_node_may_be_written(agent: Api) -> None:
    apply_zones(agent, OWN)
    with pytest.raises(ApiError, match=f"on node {OWN} may write the zones of that Node only"):
        apply_zones(agent, OTHER)


def test_a_token_of_no_pod_may_write_neither(cluster: Cluster, agent: Api) -> None:
    del agent
    stranger = loose(cluster.api)
    with pytest.raises(ApiError, match="names no node"):
        annotate(stranger, OWN)
    with pytest.raises(ApiError, match="names no node"):
        apply_zones(stranger, OWN)


def test_others_are_not_held_to_anything(cluster: Cluster, agent: Api) -> None:
    del agent
    annotate(cluster.api, OWN, "a.example/b")
    apply_zones(cluster.api, OTHER)
    cluster.api.merge(pod_path(OWN), {"metadata": {"annotations": {"a.example/b": None}}})
