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

import pytest
import structlog

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.errors import UnreadableError
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.podresources import PodResources
from tests.lab.static_pods import LIST_S, StaticPods, static_pods
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

TOY = "example.com/toy"
COUNT = 5


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


@contextmanager
def toy(node: StaticPods) -> Iterator[ToyAnswers]:
    """Serve five devices of a resource beside GPUs and HCAs."""
    answers = ToyAnswers()
    plugin = DevicePlugin(
        TOY,
        node.kubelet.directory / "device-plugins",
        lowest,
        answers,
        structlog.get_logger(),
    )
    devices = [PluginDevice(id=f"toy-{number}", is_healthy=True) for number in range(COUNT)]
    plugin.update(devices)
    plugin.start()
    try:
        wait_for("the toy is registered", lambda: plugin.state.is_registered)
        yield answers
    finally:
        answers.may_answer.set()
        plugin.stop()


@contextmanager
def reader(node: StaticPods) -> Iterator[PodResources]:
    """Return another program's connection to the kubelet, which knows nothing of our gate."""
    found = PodResources(node.socket, timeout_s=LIST_S, gate=None)
    yield found
    found.close()


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


def begin_to_end(node: StaticPods, name: str) -> None:
    """Remove a pod that takes some seconds to end; return once the kubelet has begun."""
    (node.kubelet.directory / "manifests" / f"{name}.json").unlink()
    wait_for("the kubelet ends the pod", lambda: "Killing container" in node.kubelet.log())


def ends_slowly(node: StaticPods, name: str, resource: str) -> None:
    """Run a pod that takes some seconds to end, after which its devices are free."""
    node.run(
        name,
        {"work": {resource: 1}},
        terminationGracePeriodSeconds=60,
        lifecycle={"preStop": {"sleep": {"seconds": 3}}},
    )


def wait_ended(other: PodResources, name: str) -> None:
    """List until the pod is gone: each list is what another program may do at any time."""
    wait_for(
        "the pod has ended",
        lambda: all(not pod.name.startswith(name) for pod in other.assigned()),
    )


def test_the_kubelet_gives_a_device_twice_where_an_allocation_is_slow(namespaces: None) -> None:
    del namespaces
    with static_pods() as node, toy(node) as answers, reader(node) as other:
        answers.may_answer.set()
        ends_slowly(node, "first", TOY)
        node.run("keep", {"work": {TOY: 1}})
        begin_to_end(node, "first")
        answers.may_answer.clear()
        answers.is_asked.clear()
        node.add("during", {"work": {TOY: 1}})
        assert answers.is_asked.wait(300)
        wait_ended(other, "first")
        with pytest.raises(UnreadableError, match="allocating devices"):
            PodResources(node.socket, timeout_s=0.1).assigned()  # ours does not list
        answers.may_answer.set()
        for name in ("next", "last"):
            node.run(name, {"work": {TOY: 1}})
        assert max(held(node.pods(), TOY).values()) == 2


def test_ours_gives_no_device_twice_with_such_a_reader_beside_it(namespaces: None) -> None:
    del namespaces
    with static_pods() as node, reader(node) as other:
        ends_slowly(node, "first", "nvidia.com/gpu")
        node.run("keep", {"work": {"nvidia.com/gpu": 1}})
        begin_to_end(node, "first")
        node.add("during", {"work": {"nvidia.com/gpu": 1}})
        wait_ended(other, "first")
        for name in ("next", "last"):
            node.run(name, {"work": {"nvidia.com/gpu": 1}})
        node.wait("during", {"work": {"nvidia.com/gpu": 1}})
        assert set(held(node.pods(), "nvidia.com/gpu").values()) == {1}
