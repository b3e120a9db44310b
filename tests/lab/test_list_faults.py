"""A fault of the kubelet: a list while Allocate is answered can give a device twice.

The kubelet reserves devices, calls Allocate, and records them with the answer. A list in between
that finds an ended pod rebuilds the reservations from the records
(docs/internals/kubelet-list.md).
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import structlog

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.errors import UnreadableError
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.podresources import PodResources
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.static_pods import LIST_S
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

TOY = "example.com/toy"
COUNT = 5
SHAPE = "h100x8-nvswitch-2numa-8cx7"
LONG_S = 300.0
FIRST = "/api/v1/namespaces/default/pods/first"


@dataclass(slots=True)
class ToyAnswers:
    """Answers Allocate at once, or when the test says so.

    Attributes:
        numa: of the plugin's protocol.
    """

    may_answer: threading.Event = field(default_factory=threading.Event)
    is_asked: threading.Event = field(default_factory=threading.Event)
    numa: NumaReport = NumaReport.NONE

    def look(self) -> None:
        """Have nothing to look up."""

    def answer(self, devices: Sequence[PluginDevice]) -> pb.ContainerAllocateResponse:
        """Return nothing of *devices*, once the test lets it."""
        del devices
        self.is_asked.set()
        assert self.may_answer.wait(300)
        return pb.ContainerAllocateResponse()


def lowest(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
    """Prefer the lowest ids."""
    return [*required, *(one for one in sorted(available) if one not in required)][:size]


@dataclass(slots=True)
class Ending:
    """A pod's preStop hook, which asks here and waits until the test lets the pod end.

    Attributes:
        port: of the HTTP server, on 127.0.0.1.
    """

    port: int = 0
    has_begun: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def serving(self) -> Iterator["Ending"]:
        """Answer until the end; all pods may end then."""
        ending = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ending.has_begun.set()
                ending.may_end.wait(LONG_S)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.may_end.set()
            server.shutdown()
            thread.join()
            server.server_close()


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
    plugin = DevicePlugin(TOY, node.agent.socket_dir, lowest, answers, structlog.get_logger())
    plugin.update([PluginDevice(id=f"toy-{number}", is_healthy=True) for number in range(COUNT)])
    plugin.start()
    try:
        node.wait_allocatable(TOY, COUNT)
        yield answers
    finally:
        answers.may_answer.set()
        plugin.stop()


def run(cluster: Cluster, node: Node, resource: str, *names: str) -> None:
    """Run pods with one device each."""
    for name in names:
        cluster.pods.run(guaranteed(name, node.name, {resource: 1}))


def begin_to_end(cluster: Cluster, node: Node, resource: str, ending: Ending) -> None:
    """Run pod ``first``, and delete it; return while the kubelet waits for its hook."""
    pod = guaranteed("first", node.name, {resource: 1})
    hook = {"httpGet": {"host": "127.0.0.1", "port": ending.port, "path": "/"}}
    pod["spec"]["terminationGracePeriodSeconds"] = round(LONG_S)
    pod["spec"]["containers"][0]["lifecycle"] = {"preStop": hook}
    cluster.pods.run(pod)
    run(cluster, node, resource, "keep")
    cluster.api.delete(FIRST, grace_s=round(LONG_S))
    assert ending.has_begun.wait(LONG_S)


def wait_ended(other: PodResources) -> None:
    """List until pod ``first`` is gone, as another program may do at any time."""
    wait_for("pod first has ended", lambda: all(pod.name != "first" for pod in other.assigned()))


def held(pods: Sequence[Pod], resource: str) -> Counter[str]:
    """Return how many containers have each device."""
    return Counter(
        name
        for pod in pods
        for container in pod.containers
        for devices in container.devices or ()
        if devices.resource == resource
        for name in devices.ids
    )


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
