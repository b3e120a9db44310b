"""Beside a DRA driver of another vendor: real slices, a real kubelet, our device plugin."""

from collections.abc import Iterator, Sequence

import pytest

from nodetopo.model.codec import decode
from tests.lab.api import Object
from tests.lab.claims import CLASSES, SLICES
from tests.lab.cluster import MACHINES, Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU
from tests.lab.waiting import wait_for
from tests.tools.cluster.export.dra_machines import slices as nvidia_slices

pytestmark = pytest.mark.lab

_SHAPE = "h100x8-nvswitch-2numa-8cx7"
_SNAPSHOT = decode((MACHINES / _SHAPE / "snapshot.json").read_text("utf-8")).snapshot
_NAME = "beside"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    """A cluster of its own: the kubelet deletes slices of drivers that never registered."""
    del namespaces
    lab = Cluster()
    lab.start()
    try:
        lab.add_node(_NAME, _SHAPE)
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def node(lab: Cluster) -> Iterator[Node]:
    """Return the node, offering all GPUs; the test starts without slices."""
    node = lab.nodes[_NAME]
    node.agent.start(["--publish-events"])
    node.wait_allocatable(GPU, 8)
    yield node
    for each in lab.api.get(SLICES)["items"]:
        lab.api.delete(f"{SLICES}/{each['metadata']['name']}")
    for each in lab.api.get(CLASSES)["items"]:
        lab.api.delete(f"{CLASSES}/{each['metadata']['name']}")
    node.agent.stop()


def publish(lab: Cluster, positions: Sequence[int]) -> None:
    """Publish GPUs as NVIDIA's driver does."""
    (whole,) = nvidia_slices(_SNAPSHOT, _NAME)
    names = {f"gpu-{at}" for at in positions}
    devices = [it for it in whole["spec"]["devices"] if it["name"] in names]
    lab.api.create(SLICES, {**whole, "spec": {**whole["spec"], "devices": devices}})


def events(lab: Cluster) -> set[str]:
    items: list[Object] = lab.api.get("/api/v1/namespaces/default/events")["items"]
    return {it["reason"] for it in items if it["involvedObject"]["name"] == _NAME}


def test_gpus_of_another_driver_are_withdrawn_and_come_back(lab: Cluster, node: Node) -> None:
    wait_for("labels", lambda: "nvidia.com/gpu.count" in node.labels(), evidence=node.logs)
    before = node.labels()
    publish(lab, range(4))
    node.wait_allocatable(GPU, 4)
    assert node.healthy(GPU) == {gpu.id for gpu in _SNAPSHOT.gpus[4:]}
    assert node.labels() == before
    wait_for("an Event", lambda: "GpusServedByDra" in events(lab), evidence=node.logs)
    for each in lab.api.get(SLICES)["items"]:
        lab.api.delete(f"{SLICES}/{each['metadata']['name']}")
    node.wait_allocatable(GPU, 8)
    wait_for("an Event", lambda: "GpusOfferedAgain" in events(lab), evidence=node.logs)


def test_a_class_with_the_name_of_the_resource_takes_it_whole(lab: Cluster, node: Node) -> None:
    expression = 'device.driver == "gpu.nvidia.com"'
    spec = {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": GPU}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    lab.api.create(CLASSES, {**body, "metadata": {"name": "gpu.nvidia.com"}, "spec": spec})
    publish(lab, range(2))
    wait_for("no GPU is offered", lambda: not node.healthy(GPU), evidence=node.logs)
    node.wait_allocatable(GPU, 0)


def test_always_offers_them_all_the_same(lab: Cluster, node: Node) -> None:
    node.agent.stop()
    node.agent.start(["--offer-gpus=always"])
    publish(lab, range(8))
    node.wait_settled(GPU, 8)
