"""A fault of the kubelet: a list while Allocate is answered can give a device twice.

The kubelet reserves devices, calls Allocate, and records them with the answer. A list in between
that finds an ended pod rebuilds the reservations from the records
(docs/internals/kubelet-list.md).
"""

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.errors import UnreadableError
from nodetopo.probes.kubelet.podresources import PodResources
from tests.lab.cluster import Cluster
from tests.lab.list_faults import (
    ENDS,
    FIRST,
    LONG_S,
    MOMENTS,
    SHAPE,
    TOY,
    Ending,
    begin_to_end,
    held,
    holders,
    lowest,
    offered,
    run,
    serving,
)
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.static_pods import LIST_S
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

STALL_S = 0.3


@dataclasses.dataclass
class ToyAnswers:
    """Answers Allocate at once, or when the test says so.

    Attributes:
        numa: of the plugin's protocol.
    """

    may_answer: threading.Event = dataclasses.field(default_factory=threading.Event)
    is_asked: threading.Event = dataclasses.field(default_factory=threading.Event)
    numa: NumaReport = NumaReport.NONE

    def look(self) -> None:
        """Have nothing to look up."""

    def answer(self, devices: Sequence[PluginDevice]) -> pb.ContainerAllocateResponse:
        """Return nothing of *devices*, once the test lets it."""
        del devices
        self.is_asked.set()
        assert self.may_answer.wait(300)
        return pb.ContainerAllocateResponse()


@pytest.fixture(scope="module")
def _node(cluster: Cluster) -> Iterator[Node]:
    yield cluster.add_node("lists", SHAPE)
    cluster.remove_node("lists")


@pytest.fixture
def node(cluster: Cluster, _node: Node) -> Iterator[Node]:
    """Return a node whose agent is for the test to start."""
    yield _node
    wait_for("pod first is gone", lambda: cluster.api.find(FIRST) is None)
    cluster.pods.delete_all()


@pytest.fixture
def ending() -> Iterator[Ending]:
    """Return what decides when pod ``first`` ends."""
    with Ending().serving() as found:
        yield found


@pytest.fixture
def other(node: Node) -> Iterator[PodResources]:
    """Return another program's connection to the kubelet, which knows nothing of our gate."""
    found = PodResources(node.pod_resources_socket, timeout_s=LIST_S, gate=None)
    yield found
    found.close()


@contextmanager
def toy(node: Node) -> Iterator[ToyAnswers]:
    """Serve five devices of a resource of nobody's."""
    answers = ToyAnswers()
    with offered(node, lowest, answers):
        try:
            yield answers
        finally:
            answers.may_answer.set()


def wait_ended(other: PodResources) -> None:
    """List until pod ``first`` is gone, as another program may do at any time."""
    wait_for("pod first has ended", lambda: all(pod.name != "first" for pod in other.assigned()))


def test_the_kubelet_gives_a_device_twice_where_an_allocation_is_slow(
    cluster: Cluster, node: Node, ending: Ending, other: PodResources
) -> None:
    with toy(node) as answers:
        answers.may_answer.set()
        begin_to_end(cluster, node, TOY, ending)
        answers.may_answer.clear()
        answers.is_asked.clear()
        cluster.pods.create(guaranteed("during", node.name, {TOY: 1}))
        assert answers.is_asked.wait(LONG_S)
        ending.may_end.set()
        wait_ended(other)
        with pytest.raises(UnreadableError, match="allocating devices"):
            PodResources(node.pod_resources_socket, timeout_s=0.1).assigned()  # ours waits
        answers.may_answer.set()
        run(cluster, node, TOY, "next", "last")
        assert max(held(other.assigned(), TOY).values()) == 2


def test_ours_gives_no_device_twice_with_such_a_reader_beside_it(
    cluster: Cluster, node: Node, ending: Ending, other: PodResources
) -> None:
    node.agent.start()
    try:
        node.wait_allocatable(GPU, 8)
        begin_to_end(cluster, node, GPU, ending)
        cluster.pods.create(guaranteed("during", node.name, {GPU: 1}))
        ending.may_end.set()
        wait_ended(other)
        run(cluster, node, GPU, "next", "last")
        cluster.pods.wait_phase("during", "Running")
        assert set(held(other.assigned(), GPU).values()) == {1}
    finally:
        node.agent.stop()


@pytest.mark.parametrize("end", ENDS)
def test_a_kubelet_that_gets_no_cpu_gives_no_device_twice(
    cluster: Cluster, node: Node, end: str
) -> None:
    """It is stopped at each moment of an admission, while a loop of the daemon's kind lists."""
    with serving(node) as stalls:
        for moment in MOMENTS:
            assert holders(cluster, node, stalls, (moment, end, STALL_S)) == 1, moment
