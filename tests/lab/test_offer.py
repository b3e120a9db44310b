"""What the cluster sees of a node: its GPUs and its labels."""

from dataclasses import replace

import pytest

from agent.labels.catalogue import labels
from agent.machines.bundled import machine
from agent.publish.node_labels import NodeLabelPublisher
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab


def test_the_node_offers_its_eight_gpus(h100: Node) -> None:
    status = h100.object()["status"]

    assert (status["capacity"][GPU], status["allocatable"][GPU]) == ("8", "8")


def test_the_node_carries_the_labels_of_its_machine(h100: Node) -> None:
    expected = labels(replace(machine("dgx-h100"), node="h100"))

    def published() -> dict[str, str] | None:
        found = h100.labels()
        return {key: found[key] for key in expected} if expected.keys() <= found.keys() else None

    assert wait_for("the labels are published", published) == expected


def test_publishing_the_same_labels_again_writes_nothing(cluster: Cluster, h100: Node) -> None:
    wanted = labels(replace(machine("dgx-h100"), node=h100.name))
    publisher = NodeLabelPublisher(cluster.kubeconfig, h100.name)
    publisher.publish(wanted)

    assert publisher.publish(wanted) is False


def test_new_scans_with_the_same_labels_only_read_the_node(cluster: Cluster, h100: Node) -> None:
    h100.wait_published()
    start = len(cluster.control_plane.agent_verbs("h100"))

    # Each change makes a new snapshot; persistence mode is in no label. The second look at
    # the Node proves that the first was over without a write.
    for reads, mode in enumerate(("0 0", "0 1"), 1):
        h100.agent.change_answer("nvmlDeviceGetPersistenceMode 0", mode)
        cluster.control_plane.wait_agent_verbs("h100", start + reads)

    assert set(cluster.control_plane.agent_verbs("h100")[start:]) == {"get"}
