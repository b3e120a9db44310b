"""Pods are told what they were given: one Event each, once the kubelet lists them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.own_pods import ANNOTATION, UNUSED_POLICY, OwnPods
from nodetopo.components.gpus.told_pods import (
    MOST_LOOKS,
    OUTAGE_ATTEMPTS,
    REASON,
    WAITING,
    ToldPodsLoop,
)
from nodetopo.deviceplugin.allocation_log import LoggedAllocation
from nodetopo.errors import UnreadableError
from nodetopo.kernel.events import PodEvent
from nodetopo.model.pod import Pod
from tests.listed_pods import listed_pod

GPU, HCA = "nvidia.com/gpu", "rdma/hca"
START = datetime(2026, 11, 26, 9, 0, tzinfo=UTC)


class Node:
    """What the plugins gave, what the kubelet lists, and what the pods were told."""

    def __init__(self) -> None:
        self.given = list[LoggedAllocation]()
        self.listed = dict[str, dict[str, dict[str, tuple[str, ...]]]]()
        self.is_silent = False
        self.lists = 0
        self.events = list[PodEvent]()
        self.pods = OwnPods(None, "gpu-1", None)
        self.loop = ToldPodsLoop(lambda: self.given, self.assigned, self.pods, self.events.append)

    def assigned(self) -> list[Pod]:
        """Answer as the kubelet's List does."""
        self.lists += 1
        if self.is_silent:
            raise UnreadableError("the kubelet is busy", "wait")
        return [listed_pod("ml", *named) for named in self.listed.items()]

    def follow(self, name: str) -> None:
        """Have the watch show a pod."""
        metadata = {"namespace": "ml", "name": name, "uid": f"u-{name}"}
        self.pods.take("ADDED", {"metadata": metadata, "spec": {"nodeName": "gpu-1"}})

    def give(
        self, name: str, resource: str, *ids: str, container: str = "work", **more: Any
    ) -> LoggedAllocation:
        """Allocate devices to a container of a pod that the watch shows."""
        usual = LoggedAllocation(
            at=START + timedelta(seconds=len(self.given)),
            resource=resource,
            devices=ids,
            is_ours=True,
            said=f"{' '.join(ids)}: the best",
        )
        found = replace(usual, **more)
        self.given.append(found)
        self.listed.setdefault(name, {}).setdefault(container, {})[resource] = ids
        self.follow(name)
        return found

    def look(self, times: int = 1) -> None:
        """Let the loop look, once each five seconds on a node."""
        for _ in range(times):
            self.loop.step()

    @property
    def told(self) -> list[tuple[str, str]]:
        """Pod and message of each Event."""
        return [(event.pod, event.message) for event in self.events]


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_pod_is_told_all_that_its_containers_got_in_one_event(node: Node) -> None:
    node.give("a", GPU, "g0", "g1")
    node.give("a", HCA, "h0", said=None)
    node.look()
    node.give("a", GPU, "g2", container="side", is_ours=False)  # its admission goes on
    node.look()
    assert node.events == []
    node.look(3)
    (event,) = node.events
    assert (event.reason, event.is_warning, event.key, event.uid) == (REASON, False, "u-a", "u-a")
    assert (event.namespace, event.pod) == ("ml", "a")
    assert event.message.split("; ") == [
        "container work, nvidia.com/gpu: g0 g1: the best",
        "container work, rdma/hca: h0, for reasons that are not known",
        "container side, nvidia.com/gpu: g2: the best, chosen by the kubelet",
    ]


def test_a_pod_that_is_still_being_admitted_keeps_no_other_waiting(node: Node) -> None:
    node.give("a", GPU, "g0")
    node.look()
    node.give("b", GPU, "g1")
    node.look()
    assert [name for name, _ in node.told] == ["a"]
    node.look()
    assert [name for name, _ in node.told] == ["a", "b"]


def test_the_kubelet_is_asked_only_where_something_was_given(node: Node) -> None:
    node.look(3)
    assert node.lists == 0
    node.give("a", GPU, "g0")
    node.look(5)
    assert (len(node.events), node.lists) == (1, 2)


def test_a_device_that_was_given_again_is_told_to_the_later_pod_alone(node: Node) -> None:
    node.give("gone", GPU, "g0", "g1", said="g0 g1: of the pod before")
    del node.listed["gone"]
    node.give("b", GPU, "g0", "g1", "g2")
    node.give("c", HCA, "g0")  # another resource's devices have names of their own
    node.look(3)
    assert node.told == [
        ("b", "container work, nvidia.com/gpu: g0 g1 g2: the best"),
        ("c", "container work, rdma/hca: g0: the best"),
    ]


def test_a_pod_that_the_watch_shows_later_is_told_then(node: Node) -> None:
    given = node.give("a", GPU, "g0")
    node.pods.take("DELETED", {"metadata": {"namespace": "ml", "name": "a"}, "spec": {}})
    node.pods._pods.clear()
    node.look(MOST_LOOKS - 1)
    assert node.events == []
    node.follow("a")
    node.look()
    assert [name for name, _ in node.told] == ["a"]
    assert node.given == [given]


def test_devices_that_no_pod_has_are_looked_for_some_times(node: Node) -> None:
    node.give("gone", GPU, "g0")
    del node.listed["gone"]
    node.look(2 * MOST_LOOKS)
    assert (node.events, node.lists) == ([], MOST_LOOKS)


def test_a_silent_kubelet_is_logged_once_and_loses_nothing(node: Node) -> None:
    node.give("a", GPU, "g0")
    node.is_silent = True
    with capture_logs() as lines:
        node.look(2 * OUTAGE_ATTEMPTS)
        node.is_silent = False
        node.look(2)
    assert [line["event"] for line in lines] == ["pods not told", "pods told again"]
    assert [name for name, _ in node.told] == ["a"]


def test_what_waits_is_bounded(node: Node) -> None:
    for number in range(3 * WAITING):
        node.give("gone", GPU, f"g{number}")
    node.look()
    assert (len(node.loop._waiting), len(node.loop._seen)) == (WAITING, WAITING)


def followed_policies(node: Node, *, is_told: bool) -> None:
    """Let pods choose their policies."""
    node.loop = ToldPodsLoop(
        lambda: node.given,
        node.assigned,
        node.pods,
        node.events.append,
        is_told=is_told,
        has_policies=True,
    )


def annotate(node: Node, name: str, word: str) -> None:
    """Have the watch show a pod with an annotation."""
    metadata = {
        "namespace": "ml",
        "name": name,
        "uid": f"u-{name}",
        "annotations": {ANNOTATION: word},
    }
    node.pods.take("ADDED", {"metadata": metadata, "spec": {"nodeName": "gpu-1"}})


@pytest.mark.parametrize("is_told", [True, False])
def test_a_pod_whose_policy_was_not_followed_is_warned_once(node: Node, *, is_told: bool) -> None:
    followed_policies(node, is_told=is_told)
    for number, container in enumerate(("work", "side")):
        node.give("a", GPU, f"g{number}", container=container, policy="best")
    node.give("a", HCA, "h0")
    annotate(node, "a", "numa-first")  # the watch was late
    node.look(5)
    (event,) = [one for one in node.events if one.is_warning]
    assert (event.reason, event.key, event.pod) == (UNUSED_POLICY, "u-a", "a")
    assert "numa-first was not followed" in event.message
    assert "container work was chosen by the node's policy, best" in event.message
    assert len(node.events) == (2 if is_told else 1)


def test_only_pods_with_another_policy_are_looked_for_and_warned(node: Node) -> None:
    followed_policies(node, is_told=False)
    node.give("a", GPU, "g0", policy="best")
    node.give("b", GPU, "g1", policy="best")
    annotate(node, "b", "best")
    node.give("c", GPU, "g2", is_ours=False)  # the kubelet had no choice to leave
    annotate(node, "c", "numa-first")
    node.loop.step()
    lists = node.lists
    node.give("d", GPU, "g3", policy="numa-first")
    annotate(node, "d", "numa-first")
    node.look(5)
    assert node.events == []
    assert lists == 1


def test_without_pods_policies_none_is_missed(node: Node) -> None:
    node.give("a", GPU, "g0", policy="best")
    annotate(node, "a", "numa-first")
    node.look(5)
    assert [one.is_warning for one in node.events] == [False]
