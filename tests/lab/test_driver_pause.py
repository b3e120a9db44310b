"""Labels by which the GPU Operator asks for a free driver, on a real API server and kubelet."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
MIG = "nvidia.com/mig.config.state"


@pytest.fixture(scope="module")
def _node(cluster: Cluster) -> Iterator[Node]:
    yield cluster.add_node("upgraded", "h100x8-nvswitch-2numa-8cx7")
    cluster.remove_node("upgraded")


@pytest.fixture
def node(cluster: Cluster, _node: Node) -> Iterator[Node]:
    """Return a node whose agent has registered eight GPUs and watches the Node."""
    _node.agent.start()
    wait_for("the daemon is registered", _node.agent.registrations, evidence=_node.logs)
    _node.wait_allocatable(GPU, 8)
    yield _node
    for key in (PLUGIN, UPGRADE, MIG):
        label(cluster, _node, key, None)
    cluster.pods.delete_all()
    _node.agent.stop()


def label(cluster: Cluster, node: Node, key: str, value: str | None) -> None:
    path = f"/api/v1/nodes/{node.name}"
    cluster.api.merge(path, {"metadata": {"labels": {key: value}}})


def lines(node: Node) -> list[dict[str, object]]:
    """Return what the agent logged since it was started."""
    return [json.loads(line) for line in node.agent.log_since_start().splitlines()]


def notices(node: Node) -> list[object]:
    """Return the reasons of what the agent told so far."""
    return [line["reason"] for line in lines(node) if line["event"] == "notice"]


def readiness(node: Node) -> str:
    """Return what /readyz answers; empty before it is served."""
    served = [line for line in lines(node) if line["event"] == "metrics served"]
    if not served:
        return ""
    try:
        with urllib.request.urlopen(str(served[0]["url"]).replace("/metrics", "/readyz")) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


@pytest.mark.parametrize(
    ("key", "value", "after"),
    [
        (PLUGIN, "paused-for-mig-change", "true"),
        (UPGRADE, "pod-restart-required", "validation-required"),
        (MIG, "pending", "success"),
    ],
)
def test_nothing_of_ours_holds_the_driver_while_a_label_asks_for_it(
    cluster: Cluster, node: Node, key: str, value: str, after: str
) -> None:
    wait_for("NVML is open", node.agent.nvml_processes, evidence=node.logs)
    before = cluster.api.get(f"/api/v1/nodes/{node.name}")["metadata"]["labels"]
    label(cluster, node, key, value)
    wait_for("NVML is closed", lambda: not node.agent.nvml_processes(), evidence=node.logs)
    node.agent.fail("crash nvmlInit_v2", "crash nvmlInitWithFlags")  # the driver is unloaded

    said = f"DriverPaused: {key}={value} has requested a free driver since "
    wait_for("readiness says so", lambda: readiness(node).startswith(said), evidence=node.logs)
    assert len(node.healthy(GPU)) == node.allocatable(GPU) == 8
    cluster.pods.run(guaranteed("during", node.name, {GPU: 2}))
    assert node.agent.nvml_processes() == []
    labels = cluster.api.get(f"/api/v1/nodes/{node.name}")["metadata"]["labels"]
    assert {name: labels.get(name) for name in before} == before

    node.agent.mend()
    label(cluster, node, key, after)
    wait_for("NVML is open", node.agent.nvml_processes, evidence=node.logs)
    wait_for("it is ready", lambda: readiness(node) == "ok\n", evidence=node.logs)
    assert node.agent.registrations() == 1
    assert node.allocatable(GPU) == 8
    warned = [line for line in lines(node) if line["level"] not in ("info", "debug")]
    assert warned == []
    wait_for(
        "beginning and end are told once",
        lambda: notices(node) == ["DriverPaused", "DriverResumed"],
        evidence=node.logs,
    )


def test_a_gpu_that_fails_after_a_pause_is_noticed(cluster: Cluster, node: Node) -> None:
    wait_for("NVML is open", node.agent.nvml_processes, evidence=node.logs)
    label(cluster, node, MIG, "pending")
    wait_for("NVML is closed", lambda: not node.agent.nvml_processes(), evidence=node.logs)
    label(cluster, node, MIG, "success")
    wait_for("events are listened to", node.agent.listens, evidence=node.logs)
    node.agent.xid(3, 79)
    wait_for("it is Unhealthy", lambda: len(node.healthy(GPU)) == 7, evidence=node.logs)
    node.agent.heal()
    node.wait_allocatable(GPU, 8)
