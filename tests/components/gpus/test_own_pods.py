"""The pods of the node: their policies, what they ask for, and how they are placed."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from nodetopo.allocation.rules import Model, Policy
from nodetopo.components.gpus.own_pods import (
    ANNOTATION,
    REMEMBERED,
    UNKNOWN_POLICY,
    OwnPods,
    PodChoice,
)
from nodetopo.components.gpus.placement import Placement
from nodetopo.kernel.events import PodEvent
from nodetopo.kernel.requester import Requesters
from nodetopo.machines.bundled import machine
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.gate import AdmissionGate
from tests.deviceplugin.machines import whole
from tests.kubeapi.fake_pods import FakePods, added, followed
from tests.listed_pods import listed_pod

GPU, HCA = "nvidia.com/gpu", "rdma/hca"
DGX = machine("dgx-1v")
IDS = tuple(gpu.id for gpu in DGX.gpus)
Object = dict[str, Any]


def pod(name: str, word: str | None = None, node: str = "gpu-1", **spec: Any) -> Object:
    """A pod of the node as the API server has it."""
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": f"u-{name}",
            "annotations": {} if word is None else {ANNOTATION: word},
        },
        "spec": {"nodeName": node, "containers": [container("work", {GPU: "2"})], **spec},
        "status": {"phase": "Pending"},
    }


def container(name: str, limits: Mapping[str, str], **more: Any) -> Object:
    return {"name": name, "resources": {"limits": limits}, **more}


class Node:
    """The pods that are followed, and the Events on them."""

    def __init__(self) -> None:
        self.events = list[PodEvent]()
        self.pods = OwnPods(None, "gpu-1", self.events.append)

    def policy(self, name: str) -> Policy | None:
        """Return the policy of a pod that is followed."""
        found = self.pods.pod(("ml", name))
        assert found is not None
        return found.policy


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.parametrize("policy", Policy)
def test_a_pod_has_the_policy_of_its_annotation(node: Node, policy: Policy) -> None:
    node.pods.take("ADDED", pod("a", f" {policy.value} "))
    node.pods.take("ADDED", pod("b"))
    assert (node.policy("a"), node.policy("b")) == (policy, None)
    assert node.events == []


def test_an_unknown_word_is_an_event_once_and_the_nodes_policy(node: Node) -> None:
    for kind in ("ADDED", "MODIFIED"):
        node.pods.take(kind, pod("a", "fastest" + "!" * 500))
    assert node.policy("a") is None
    (event,) = node.events
    assert (event.reason, event.is_warning, event.uid) == (UNKNOWN_POLICY, True, "u-a")
    assert (event.namespace, event.pod) == ("ml", "a")
    assert "'fastest!" in event.message
    assert "best, numa-first, packed, distributed, nic-required" in event.message
    assert len(event.message) < 300
    again = pod("a", "fastest")
    again["metadata"]["uid"] = "u-later"  # another pod of that name
    node.pods.take("ADDED", again)
    assert [one.uid for one in node.events] == ["u-a", "u-later"]


def test_where_policies_do_not_count_no_word_is_wrong() -> None:
    quiet = OwnPods(None, "gpu-1", None)
    quiet.take("ADDED", pod("a", "fastest"))
    assert quiet.pod(("ml", "a")) is not None


def test_what_containers_and_sidecars_ask_for(node: Node) -> None:
    limits = {GPU: "2", HCA: "1", "cpu": "4", "memory": "8Gi", "hugepages-2Mi": "2Mi"}
    node.pods.take(
        "ADDED",
        pod(
            "a",
            containers=[container("work", limits), {"name": "log"}],
            initContainers=[container("side", {HCA: "1"}, restartPolicy="Always")],
        ),
    )
    asked = {name: node.pods.requests(("ml", "a"), name) for name in ("work", "log", "side")}
    assert asked == {"work": {GPU: 2, HCA: 1}, "log": {}, "side": {HCA: 1}}
    assert node.pods.requests(("ml", "b"), "work") is None


def test_init_containers_with_devices_leave_open_who_asks(node: Node) -> None:
    # The kubelet asks for them first and lists them never.
    node.pods.take("ADDED", pod("a", initContainers=[container("init", {GPU: "1"})]))
    node.pods.take("ADDED", pod("b", initContainers=[container("init", {"cpu": "1"})]))
    assert node.pods.requests(("ml", "a"), "work") is None
    assert node.pods.requests(("ml", "b"), "work") == {GPU: 2}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", None])
def test_a_pod_that_has_ended_is_forgotten(node: Node, phase: str | None) -> None:
    node.pods.take("ADDED", pod("a", "packed"))
    last = pod("a", "packed")
    last["status"]["phase"] = phase or "Running"
    node.pods.take("MODIFIED" if phase else "DELETED", last)
    assert node.pods.pod(("ml", "a")) is None


def test_pods_of_other_nodes_are_left_out(node: Node) -> None:
    node.pods.take("ADDED", pod("a", "packed", node="gpu-2"))
    assert node.pods.pod(("ml", "a")) is None


def test_the_latest_pods_are_remembered(node: Node) -> None:
    for number in range(REMEMBERED + 1):
        node.pods.take("ADDED", pod(f"p-{number}"))
    assert node.pods.pod(("ml", "p-0")) is None
    assert node.pods.pod(("ml", "p-1")) is not None


def test_pods_that_end_while_a_watch_has_expired_are_forgotten() -> None:
    """The next stream begins with the pods that exist, and has no event of the others."""
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    stopping = threading.Event()
    started = {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}

    def events(*names: str) -> Iterator[Mapping[str, Any]]:
        yield from ({"type": "ADDED", "object": pod(name) | started} for name in names)
        if names == ("old",):
            yield gone
        stopping.set()

    streams = [events("old"), events("new")]
    watch: Any = OwnPods(None, "gpu-1", None)

    def opened() -> Any:
        return nullcontext(SimpleNamespace(events=lambda: streams.pop(0), cancel=lambda: None))

    watch._opened = opened
    watch.run(stopping)
    assert list(watch._pods) == [("ml", "new")]


def test_one_watch_of_the_nodes_pods_and_nothing_once_it_is_lost(tmp_path: Path) -> None:
    api = FakePods([added(pod("a", "packed"))])
    with followed(api, tmp_path, lambda config: OwnPods(config, "gpu-1", None)) as pods:
        assert ("ml", "a") in pods._pods
        assert pods.pod(("ml", "a")) is None
        assert pods.requests(("ml", "a"), "work") is None
    assert {path for path, _, _ in api.asked} == {"/api/v1/pods"}
    assert {query["fieldSelector"] for _, query, _ in api.asked} == {"spec.nodeName=gpu-1"}


class Choices:
    """A node whose kubelet asks for GPUs of its pods."""

    def __init__(self, node: Node, *, is_followed: bool = True) -> None:
        self.listed: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {}
        self.gate = AdmissionGate()
        self.requesters = Requesters(self.held, gate=self.gate)
        self.requesters.need("test", is_needed=True)
        self.requesters.prime(self.held)
        self.requesters.requests = node.pods.requests
        self.placement = Placement(Policy.BEST, Model.RING)
        self.placement.take(DGX, whole(DGX))
        pods = node.pods if is_followed else None
        self.choice = PodChoice(GPU, self.placement, self.requesters, pods)

    def held(self) -> list[Pod]:
        """Answer as the kubelet's List does."""
        return [listed_pod("ml", *named) for named in self.listed.items()]

    def look(self, resource: str, size: int) -> None:
        """Find the container of a call, in that call."""
        with self.gate.choosing(is_reserved=False, waits=Mock()):
            self.requesters.look(resource, (), size)

    def ask(self, name: str, container: str, *free: int, size: int = 2) -> list[int]:
        """Choose for a container of a pod under admission, and give it."""
        self.look(GPU, size)
        chosen = tuple(self.choice([IDS[gpu] for gpu in free], (), size))
        self.requesters.gave(GPU, chosen)
        self.listed[name][container] = {GPU: chosen}
        return sorted(IDS.index(name) for name in chosen)


def test_a_pod_is_placed_by_its_own_policy_and_the_next_by_the_nodes(node: Node) -> None:
    choices = Choices(node)
    for name, word in (("a", "numa-first"), ("b", None), ("c", "unheard")):
        node.pods.take("ADDED", pod(name, word))
    for name, chosen in (("a", [0, 1]), ("b", [0, 4]), ("c", [0, 4])):
        choices.listed[name] = {"work": {}}
        assert choices.ask(name, "work", 0, 1, 4, 5) == chosen


def test_gpus_are_foreseen_by_the_policy_of_a_pod_that_asks_for_hcas_first(node: Node) -> None:
    choices = Choices(node)
    requests = [container("work", {GPU: "2", "rdma/hca": "2"})]
    node.pods.take("ADDED", pod("a", "numa-first", containers=requests))
    choices.listed["a"] = {"work": {}}
    choices.look("rdma/hca", 2)
    offered = [IDS[gpu] for gpu in (0, 1, 4, 5)]
    assert sorted(map(IDS.index, choices.choice(offered, (), 2))) == [0, 1]


def test_without_the_setting_an_annotation_has_no_effect(node: Node) -> None:
    choices = Choices(node, is_followed=False)
    node.pods.take("ADDED", pod("a", "numa-first"))
    choices.listed["a"] = {"work": {}}
    assert choices.ask("a", "work", 0, 1, 4, 5) == [0, 4]


def test_an_unknown_requester_is_placed_by_the_nodes_policy(node: Node) -> None:
    choices = Choices(node)
    node.pods.take("ADDED", pod("a", "numa-first"))
    offered = [IDS[gpu] for gpu in (0, 1, 4, 5)]
    assert sorted(map(IDS.index, choices.choice(offered, (), 2))) == [0, 4]


def test_containers_of_a_pod_make_one_set_and_pods_do_not(node: Node) -> None:
    two = [container(name, {GPU: "2"}) for name in ("first", "second")]
    together = Choices(node)
    node.pods.take("ADDED", pod("a", containers=two))
    together.listed["a"] = {"first": {}, "second": {}}
    assert together.ask("a", "first", 5, size=1) == [5]
    assert together.ask("a", "second", 0, 1, 2, 3, 4, 6, 7) == [6, 7]
    apart = Choices(node)
    node.pods.take("ADDED", pod("b"))
    node.pods.take("ADDED", pod("c"))
    apart.listed["b"] = {"work": {}}
    assert apart.ask("b", "work", 5, size=1) == [5]
    apart.listed["c"] = {"work": {}}
    assert apart.ask("c", "work", 0, 1, 2, 3, 4, 6, 7) == [4, 7]
