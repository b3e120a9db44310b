"""A node's label names its config: changed live, on a real API server and under a real kubelet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

LABEL = "nvidia.com/device-plugin.config"
_SHARED = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: %d}]}}"
_CONFIGS = {
    "whole": "version: v1\n",
    "four": f"version: v1\n{_SHARED % 4}\n",
    "renamed": f"version: v1\n{_SHARED % 2}\n".replace(
        "timeSlicing: {", "timeSlicing: {renameByDefault: true, "
    ),
    "bad": "version: v1\nflags: {migStrategy: both}\n",
}


@pytest.fixture(scope="module")
def _node(cluster: Cluster) -> Iterator[Node]:
    yield cluster.add_node("named", "h100x8-nvswitch-2numa-8cx7")
    cluster.remove_node("named")


@pytest.fixture
def node(cluster: Cluster, _node: Node, tmp_path: Path) -> Iterator[Node]:
    """Return a node labelled ``four`` whose agent may take any of the configs."""
    for name, text in _CONFIGS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    _label(cluster, _node, "four")
    _node.agent.start(["--config-dir", str(tmp_path), "--default-config", "whole"])
    # The kubelet still counts what the daemon before it offered.
    wait_for("the daemon is registered", _node.agent.registrations, evidence=_node.logs)
    _node.wait_allocatable(GPU, 32)
    yield _node
    cluster.pods.delete_all()
    _node.agent.stop()


def test_the_labelled_config_is_the_first_that_is_ever_offered(node: Node) -> None:
    log = node.agent.log_since_start()
    changes = [line for line in log.splitlines() if '"event": "device list changed"' in line]
    assert len(changes) == 1
    assert '"devices": 32' in changes[0]


def test_a_label_that_changes_changes_the_replicas_and_leaves_pods_and_registration(
    cluster: Cluster, node: Node
) -> None:
    cluster.pods.run(guaranteed("bound", node.name, {GPU: 2}))
    before = node.given("bound")
    _label(cluster, node, None)
    node.wait_allocatable(GPU, 8)
    assert cluster.pods.get("bound")["status"]["phase"] == "Running"
    assert node.given("bound") == before
    _label(cluster, node, "four")
    node.wait_allocatable(GPU, 32)
    assert node.agent.registrations() == 1


def test_a_label_that_changes_takes_a_resource_back_and_offers_another(
    cluster: Cluster, node: Node
) -> None:
    _label(cluster, node, "renamed")
    node.wait_allocatable("nvidia.com/gpu.shared", 16)
    node.wait_allocatable(GPU, 0)
    cluster.pods.run(guaranteed("shared", node.name, {"nvidia.com/gpu.shared": 1}))
    _label(cluster, node, "four")
    node.wait_allocatable(GPU, 32)
    node.wait_allocatable("nvidia.com/gpu.shared", 0)


@pytest.mark.parametrize("wrong", ["none-such", "bad"])
def test_a_label_that_names_no_good_config_leaves_the_one_before_and_says_so(
    cluster: Cluster, node: Node, wrong: str
) -> None:
    _label(cluster, node, wrong)
    wait_for("it is said", lambda: "configuration refused" in node.agent.log_since_start())
    assert node.allocatable(GPU) == 32
    assert node.agent.registrations() == 1
    node.agent.check_running()
    _label(cluster, node, None)
    node.wait_allocatable(GPU, 8)


def test_the_label_is_followed_by_a_watch_and_by_nothing_else(cluster: Cluster, node: Node) -> None:
    _label(cluster, node, None)
    node.wait_allocatable(GPU, 8)
    said = node.agent.log_since_start()
    assert said.count('"event": "config label seen"') == 2
    assert '"event": "Node not watched"' not in said


def _label(cluster: Cluster, node: Node, value: str | None) -> None:
    path = f"/api/v1/nodes/{node.name}"
    cluster.api.merge(path, {"metadata": {"labels": {LABEL: value}}})
