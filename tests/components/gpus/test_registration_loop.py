"""What the kubelet's own list does to registrations."""

import dataclasses

from msgspec.structs import replace

from nodetopo.components.gpus.registration_loop import (
    AGAIN_S,
    ASK_S,
    DOUBT_S,
    UNLISTED_S,
    RegistrationLoop,
)
from nodetopo.deviceplugin.plugin import PluginState
from nodetopo.errors import UnreadableError
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.numa import CpuSet

GPU = "nvidia.com/gpu"
REGISTERED = PluginState(
    is_running=True,
    is_registered=True,
    is_detached=False,
    registrations=1,
    endpoint="nodetopo-gpu-1-aaaaa000.sock",
    stream_count=1,
    devices=2,
    allocations=0,
    last_problem=None,
    conflict=None,
)


@dataclasses.dataclass
class Plugin:
    """A plugin that registers the moment it is asked to."""

    state: PluginState = REGISTERED
    healthy_ids: frozenset[str] = frozenset({"GPU-0", "GPU-1"})
    doubts: list[str] = dataclasses.field(default_factory=list)

    def doubt(self, problem: str) -> None:
        """Remember the problem."""
        self.doubts.append(problem)
        self.state = replace(self.state, is_registered=False, unlisted=problem)

    def confirm(self) -> None:
        """Count as registered again."""
        if self.state.unlisted is not None:
            self.state = replace(self.state, is_registered=True, unlisted=None)


@dataclasses.dataclass
class Node:
    """A kubelet, its one plugin, and the loop by a clock of its own."""

    listed: tuple[str, ...] | None = ("GPU-0", "GPU-1")
    plugin: Plugin = dataclasses.field(default_factory=Plugin)
    now: float = 0.0
    asked: int = 0

    def __post_init__(self) -> None:
        self.loop = RegistrationLoop(lambda: {GPU: self.plugin}, self, lambda: self.now)

    def offer(self) -> NodeOffer:
        """Return what is listed now."""
        self.asked += 1
        if self.listed is None:
            raise UnreadableError("no answer")
        devices = (PlacedDevice(resource=GPU, id=name, numa_nodes=()) for name in self.listed)
        return NodeOffer(devices=tuple(devices), cpus=CpuSet.of(()), memory=())

    def close(self) -> None:
        """Hold nothing open."""

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.now + seconds
        while self.now < until:
            self.now += self.loop.step()


def test_a_kubelet_that_lists_the_devices_is_seldom_asked() -> None:
    node = Node()
    node.run(10 * ASK_S)
    assert node.plugin.doubts == []
    assert node.asked <= 11


def test_devices_that_are_not_listed_for_seconds_are_registered_again_until_they_are() -> None:
    node = Node()
    node.run(1)
    node.listed = ()
    node.run(UNLISTED_S + DOUBT_S)
    assert len(node.plugin.doubts) == 1
    assert "lists none of its 2 devices as allocatable" in node.plugin.doubts[0]
    node.run(AGAIN_S[0] + 1)
    assert len(node.plugin.doubts) == 2
    node.listed = ("GPU-1",)
    node.run(2)
    assert node.plugin.state.is_registered


def test_registrations_in_vain_become_seldom() -> None:
    node = Node(listed=("GPU-9",))
    node.run(3600)
    assert 10 < len(node.plugin.doubts) < 24


def test_a_kubelet_that_does_not_answer_gives_no_reason_for_doubt() -> None:
    node = Node(listed=())
    node.run(UNLISTED_S + 2)
    assert not node.plugin.state.is_registered
    node.listed = None
    node.run(60)
    assert len(node.plugin.doubts) == 1
    assert node.plugin.state.is_registered


def test_what_is_not_to_be_listed_gives_no_reason_for_doubt() -> None:
    for plugin in (
        Plugin(healthy_ids=frozenset()),
        Plugin(state=replace(REGISTERED, is_registered=False)),
        Plugin(state=replace(REGISTERED, conflict="NVIDIA's device plugin serves it")),
    ):
        node = Node(listed=(), plugin=plugin)
        node.run(120)
        assert plugin.doubts == []
