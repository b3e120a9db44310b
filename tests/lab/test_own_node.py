"""The own-node policies of kustomize and the chart: what a token of the agent may do to Nodes."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.components.labels.catalogue import CATALOGUE
from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.labels.outputs.output import DesiredLabels
from tests.lab.api import Api, ApiError
from tests.lab.cluster import Cluster
from tests.lab.own_node import (
    BY_KUSTOMIZE,
    OTHER,
    OWN,
    bare_node,
    by_chart,
    loose,
    policed,
    relabel,
)

pytestmark = pytest.mark.lab


COMMANDS = (
    "nvidia.com/mig.config",
    "nvidia.com/mig.config.state",
    "nvidia.com/gpu.deploy.driver",
    "nvidia.com/gpu.deploy.device-plugin",
    "nvidia.com/gpu-driver-upgrade-state",
    "nvidia.com/device-plugin.config",
    "nvidia.com/gpu.workload.config",
    "nvidia.com/vgpu.config",
    "nvidia.com/gpu.present",
    "nvidia.com/gpu",
    "nvidia.com/gpu.countless",
    "nvidia.com/mig-config",
    "nvidia.com/mig-1g.10gb.config",
)
"""Labels by which others command or describe the node, and some that look like ours."""


@pytest.fixture(scope="module", params=["kustomize", "chart"])
def agent(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Api]:
    """Return the API server as the agent on the Node ``OWN`` sees it, under the policies."""
    documents = BY_KUSTOMIZE if request.param == "kustomize" else by_chart()
    with policed(cluster, documents) as found:
        yield found


def every_label() -> dict[str, str]:
    """Return a value for each label of the catalogue, families included."""
    forms = {"<profile>": ("1g.10gb", "1c.3g.40gb", "1g.24gb.me.all"), "<n>": ("0", "7")}
    found = {}
    for row in CATALOGUE:
        variants = next((names for form, names in forms.items() if form in row.key), ("",))
        for name in variants:
            found[re.sub("<.*>", name, row.key)] = "x"
    return found


def test_the_publisher_labels_the_node_of_its_pod(cluster: Cluster, agent: Api) -> None:
    kubeconfig = cluster.control_plane.write_kubeconfig("own-node", agent.token)
    # Of a label that another manager has, too: it is taken over, in its managedFields as well.
    desired = DesiredLabels(
        labels=every_label(),
        annotations={"gpu.topology/topology-ok-reason": "all is well"},
    )
    NodeLabelPublisher(kubeconfig, OWN).publish(desired, complete=True)
    metadata = cluster.api.get(f"/api/v1/nodes/{OWN}")["metadata"]
    assert desired.labels.items() <= metadata["labels"].items()
    assert metadata["annotations"].items() >= {**(desired.annotations or {})}.items()
    fewer = replace(desired, labels={"nvidia.com/gpu.count": "8"})
    NodeLabelPublisher(kubeconfig, OWN).publish(fewer, complete=True)
    left = cluster.api.get(f"/api/v1/nodes/{OWN}")["metadata"]["labels"]
    assert left["nvidia.com/gpu.count"] == "8"
    assert not desired.labels.keys() - {"nvidia.com/gpu.count"} & left.keys()


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"gpu.topology/stale": None}}},
        {"metadata": {"annotations": {"gpu.topology/note": "x"}}},
    ],
    ids=["a label goes", "an annotation comes"],
)
def test_what_is_the_agents_own_may_change(agent: Api, change: dict[str, Any]) -> None:
    agent.merge(f"/api/v1/nodes/{OWN}", change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metadata": {"labels": {"foreign.example/key": "other"}}}, "its own labels"),
        ({"metadata": {"labels": {"foreign.example/key": None}}}, "its own labels"),
        ({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}}, "its own labels"),
        ({"metadata": {"labels": {"nvidia.com/gpu.deploy.driver": None}}}, "its own labels"),
        *(({"metadata": {"labels": {key: "x"}}}, "its own labels") for key in COMMANDS),
        ({"metadata": {"annotations": {"nvidia.com/note": "x"}}}, "its own annotations"),
        ({"metadata": {"annotations": {"foreign.example/key": "x"}}}, "its own annotations"),
        ({"metadata": {"managedFields": [{}]}}, "no managedFields of others"),
        ({"metadata": {"annotations": {"foreign.example/note": None}}}, "its own annotations"),
        ({"spec": {"unschedulable": True}}, "neither the spec"),
        ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, "neither the spec"),
        ({"metadata": {"finalizers": ["a.example/b"]}}, "neither the owners"),
    ],
    ids=lambda one: "" if isinstance(one, dict) else one,
)
def test_nothing_else_of_the_own_node_may(agent: Api, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ApiError, match=said):
        agent.merge(f"/api/v1/nodes/{OWN}", change)


def test_no_field_may_be_taken_from_or_given_to_another_manager(
    cluster: Cluster, agent: Api
) -> None:
    path = f"/api/v1/nodes/{OWN}"
    entries = cluster.api.get(path)["metadata"]["managedFields"]
    foreign = next(it for it in entries if "f:foreign.example/key" in str(it))
    given = copy.deepcopy(foreign)
    given["manager"] = "another"
    taken = copy.deepcopy(foreign)
    del taken["fieldsV1"]["f:metadata"]["f:labels"]["f:foreign.example/key"]
    others = [it for it in entries if it != foreign]
    for changed in ([*entries, given], [*others, taken], [*others, given], others):
        with pytest.raises(ApiError, match="no managedFields of others"):
            agent.merge(path, {"metadata": {"managedFields": changed}})
    assert foreign in cluster.api.get(path)["metadata"]["managedFields"]


def test_no_label_of_another_node_may(agent: Api) -> None:
    with pytest.raises(ApiError, match=f"nodetopo on node {OWN} may change that Node only"):
        relabel(agent, OTHER)


def test_a_patch_of_the_status_may_change_neither_it_nor_foreign_labels(agent: Api) -> None:
    with pytest.raises(ApiError, match="neither the spec nor the status"):
        agent.merge(f"/api/v1/nodes/{OWN}/status", {"status": {"capacity": {"nvidia.com/gpu": 9}}})
    with pytest.raises(ApiError, match="its own labels"):
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
