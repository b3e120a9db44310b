"""Several resources of one node: time-node GPUs and MIG devices, taken by the real kubelet."""

from collections.abc import Iterator, Mapping

import pytest

from tests.fake_nvml.fake import FakeNvml
from tests.lab.cluster import MACHINES, Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_ONE, _THREE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
_RENAMED = "nvidia.com/gpu.shared"
_CPU: Mapping[str, str | int] = {"cpu": 1, "memory": "64Mi"}
_SHAPE = "h100x8-nvswitch-2numa-8cx7"
_WHOLE = (MACHINES / _SHAPE / "nvml.txt").read_text("utf-8")
_MIG = (MACHINES / "h100x8-nvswitch-2numa-mig" / "nvml.txt").read_text("utf-8")
"""The same board with three GPUs in MIG mode, and MIG devices on GPU0 and GPU1."""


@pytest.fixture(scope="module")
def _node(cluster: Cluster) -> Iterator[Node]:
    yield cluster.add_node("mix", _SHAPE)
    cluster.remove_node("mix")


@pytest.fixture
def node(cluster: Cluster, _node: Node) -> Iterator[Node]:
    """Return a DGX H100 under ``single-numa-node``; the agent is for the test to start."""
    _answer(_node, _WHOLE)
    yield _node
    cluster.pods.delete_all()
    _node.agent.stop()


@pytest.fixture
def mig(node: Node) -> Node:
    """Return the node with GPUs in MIG mode, offered by profile."""
    _answer(node, _MIG)
    node.agent.start(["--mig-strategy", "mixed"])
    wait_for("all resources are registered", lambda: node.agent.registrations() >= 3)
    for resource, amount in ((GPU, 5), (_ONE, 7), (_THREE, 2)):
        node.wait_allocatable(resource, amount)
    return node


def test_four_replicas_of_each_gpu_are_allocatable_and_two_are_on_two_gpus(
    cluster: Cluster, node: Node
) -> None:
    node.agent.start(["--time-slicing", f"{GPU}=4"])
    node.wait_allocatable(GPU, 32)
    cluster.pods.run(guaranteed("pair", node.name, {GPU: 2}))

    given = _given(node, "pair", GPU)
    assert len(given) == len({name.partition("::")[0] for name in given}) == 2


def test_a_renamed_resource_takes_the_place_of_the_other(node: Node) -> None:
    node.agent.start(["--time-slicing", f"{GPU}=4,renameByDefault"])

    node.wait_allocatable(_RENAMED, 32)
    node.wait_allocatable(GPU, 0)


def test_a_pod_that_asks_for_two_replicas_is_rejected_in_our_words(
    cluster: Cluster, node: Node
) -> None:
    node.agent.start(["--time-slicing", f"{GPU}=4,failRequestsGreaterThanOne"])
    node.wait_allocatable(GPU, 32)
    cluster.pods.create(guaranteed("greedy", node.name, {GPU: 2}))

    status = cluster.pods.wait_phase("greedy", "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "failRequestsGreaterThanOne is set: ask for 1" in status["message"]


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        (1, None),
        (4, "TopologyAffinityError"),  # four GPUs without MIG are on node 1 alone
    ],
)
def test_a_mig_device_has_the_numa_node_of_its_gpu(
    cluster: Cluster, mig: Node, whole: int, reason: str | None
) -> None:
    cluster.pods.create(guaranteed("part", mig.name, {**_CPU, _THREE: 1, GPU: whole}))

    assert cluster.pods.wait_admitted("part") == reason


def test_a_layout_that_changes_moves_a_gpu_from_one_resource_to_another(mig: Node) -> None:
    line = "nvmlDeviceGetMigMode 1 = 0 1 | 1"
    assert line in _MIG
    _answer(mig, _MIG.replace(line, "nvmlDeviceGetMigMode 1 = 0 0 | 0"))

    # Capacity follows the empty list; a plugin that only left would keep it for five minutes.
    wait_for("the profile has no capacity", lambda: _capacity(mig, _THREE) == 0)
    mig.wait_allocatable(GPU, 6)
    assert (mig.allocatable(_ONE), mig.agent.registrations()) == (7, 3)


def _answer(node: Node, answers: str) -> None:
    """Make the node's fake NVML library answer with *answers* from its next call on."""
    FakeNvml(node.host.parent / "nvml", answers)


def _given(node: Node, pod: str, resource: str) -> tuple[str, ...]:
    (found,) = (entry for entry in node.pod_resources() if entry.name == pod)
    (container,) = found.containers
    (devices,) = (entry for entry in container.devices or () if entry.resource == resource)
    return devices.ids


def _capacity(node: Node, resource: str) -> int:
    return int(node.object()["status"]["capacity"][resource])
