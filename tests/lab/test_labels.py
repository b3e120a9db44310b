"""Labels that others touch, on a real API server, with the whole daemon.

The node has no kubelet: the lab's does not run on a machine of this kind, and labels need none.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.tools.capture.archive import unpack
from tests.components.labels.outputs.desired_labels import desired
from tests.lab.api import Api, Object
from tests.lab.cluster import MACHINES, Cluster
from tests.lab.node_agent import NodeAgent
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

NAME = "gb200"
PATH = f"/api/v1/nodes/{NAME}"
COUNT, CLIQUE = "nvidia.com/gpu.count", "nvidia.com/gpu.clique"
TIER = "gpu.topology/tier-0"
LEAF = "fabric.topograph.run/tier-0"
OTHERS = "other.1"
SHAPE = "gb200x4-nvl72-34numa-4cx7"


class Labelled:
    """A Node object, and the agent that labels it."""

    def __init__(self, api: Api, agent: NodeAgent) -> None:
        self._api = api
        self.agent = agent

    def object(self) -> Object:
        """Return the Node."""
        return self._api.get(PATH)

    def labels(self) -> dict[str, str]:
        """Return the labels of the Node."""
        found: dict[str, str] = self.object()["metadata"].get("labels", {})
        return found


@pytest.fixture(scope="module")
def node(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labelled]:
    """Return a node whose clique another program writes, and whose place a cloud tells."""
    host = tmp_path_factory.mktemp("host")
    unpack((MACHINES / SHAPE / "sysfs.txt").read_text("utf-8"), host)
    (host / "var/lib/kubelet/device-plugins").mkdir(parents=True)
    agent = NodeAgent(
        NAME,
        MACHINES / SHAPE,
        home=tmp_path_factory.mktemp("home"),
        host=host,
        kubeconfig=cluster.kubeconfig,
        processes=cluster._processes,
    )
    labels = {CLIQUE: OTHERS, LEAF: "leaf.7"}
    cluster.api.create("/api/v1/nodes", _node(labels))
    agent.start(["--topology-levels=auto"])
    found = Labelled(cluster.api, agent)
    wait_for("labels are published", lambda: found.labels().get(COUNT))
    yield found
    agent.end()
    cluster.api.delete(PATH)


def test_the_clique_is_left_to_its_writer_and_ours_once_that_leaves(
    cluster: Cluster, node: Labelled
) -> None:
    assert node.labels()[CLIQUE] == OTHERS
    cluster.api.merge(PATH, {"metadata": {"labels": {CLIQUE: None}}})
    wait_for("the clique is ours", lambda: node.labels().get(CLIQUE) not in (None, OTHERS))
    assert node.labels()[CLIQUE] == node.labels()["gpu.topology/nvlink-partition"]


def test_the_place_in_the_network_follows_the_label_of_the_cloud(
    cluster: Cluster, node: Labelled
) -> None:
    wait_for("the tier is there", lambda: node.labels().get(TIER))
    assert node.labels()[TIER].startswith("x")  # a dot would be read as another level
    cluster.api.merge(PATH, {"metadata": {"labels": {LEAF: "leaf-8"}}})
    wait_for("the tier follows", lambda: node.labels().get(TIER) == "leaf-8")


def test_a_label_that_somebody_changes_is_put_back(cluster: Cluster, node: Labelled) -> None:
    cluster.api.merge(PATH, {"metadata": {"labels": {COUNT: "1"}}})
    wait_for("it is put back", lambda: node.labels().get(COUNT) == "4")


def test_a_node_that_is_created_anew_gets_all_its_labels(cluster: Cluster, node: Labelled) -> None:
    before, uid = _ours(node.object()), node.object()["metadata"]["uid"]
    cluster.api.delete(PATH)
    cluster.api.create("/api/v1/nodes", _node({}))
    assert node.object()["metadata"]["uid"] != uid
    # What others wrote is gone with the old Node, the tier that followed from it too.
    wanted = {key: value for key, value in before.items() if key != TIER}

    def are_right() -> bool:
        found = node.labels()
        return wanted.items() <= found.items() and TIER not in found

    wait_for("all labels are back", are_right, evidence=lambda: str(node.labels()))


def test_one_value_that_the_api_server_refuses_keeps_no_other_away(
    cluster: Cluster, node: Labelled
) -> None:
    node.agent.stop()
    publisher = NodeLabelPublisher(cluster.kubeconfig, NAME)
    labels = _ours(node.object()) | {"gpu.topology/good": "yes", "gpu.topology/bad": "not valid"}
    publisher.publish(desired(labels))
    assert publisher.refused == {("gpu.topology/bad", "not valid")}
    assert node.labels()["gpu.topology/good"] == "yes"
    publisher.remove()
    assert _ours(node.object()) == {}


def _node(labels: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME, "labels": labels}}


def _ours(node: dict[str, Any]) -> dict[str, str]:
    """Return the labels that the field manager of ours has applied."""
    entries = [one for one in node["metadata"]["managedFields"] if one["manager"] == "nodetopo"]
    keys = [key for one in entries for key in one["fieldsV1"]["f:metadata"].get("f:labels", {})]
    labels = node["metadata"].get("labels", {})
    return {key.removeprefix("f:"): labels[key.removeprefix("f:")] for key in keys}
