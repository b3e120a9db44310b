"""What the cluster sees of a node: its GPUs and its labels."""

import pytest
from msgspec.structs import replace

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.machines.bundled import machine
from tests.components.labels.outputs.desired_labels import desired
from tests.lab.audit import moment
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab


LABELS = labels(replace(machine("dgx-h100"), node="h100"))


def test_the_node_offers_its_eight_gpus(h100: Node) -> None:
    h100.wait_allocatable(GPU, 8)

    assert h100.capacity(GPU) == 8


def test_the_node_carries_the_labels_of_its_machine(h100: Node) -> None:
    h100.wait_labels(LABELS)


def test_publishing_the_same_labels_again_writes_nothing(cluster: Cluster, h100: Node) -> None:
    h100.wait_labels(LABELS)
    publisher = NodeLabelPublisher(cluster.kubeconfig, h100.name)
    publisher.publish(desired(LABELS))

    assert not publisher.publish(desired(LABELS))


def test_new_scans_with_the_same_labels_ask_nothing_of_the_api_server(
    cluster: Cluster, h100: Node
) -> None:
    h100.wait_labels(LABELS)
    start = moment()

    for mode in ("0 0", "0 1"):  # persistence mode is in no label
        _scan_anew(h100, mode)
    without = {"metadata": {"labels": {"nvidia.com/gpu.count": None}}}
    cluster.api.merge("/api/v1/nodes/h100", without)

    def patches() -> int:
        return cluster.control_plane.agent_verbs("h100", start).count("patch")

    # The one write puts that label back, so there was none before.
    h100.wait_labels(LABELS)
    wait_for("the write is in the audit log", patches)
    assert patches() == 1


def _scan_anew(node: Node, persistence_mode: str) -> None:
    """Change the machine, and wait until the agent has seen it."""

    def scans() -> int:
        return node.agent.log_since_start().count("snapshot published")

    before = scans()
    node.agent.change_answer("nvmlDeviceGetPersistenceMode 0", persistence_mode)
    wait_for("a new snapshot", lambda: scans() > before)
