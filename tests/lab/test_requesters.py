"""Whose a call is, on a real kubelet: pods of every shape, restarts, and other readers."""

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from nodetopo.components.rdma.resources import key_of
from nodetopo.errors import UnreadableError
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.rdma.pairing import Pairing
from tests.lab.joint_pairs import GPU, HCA, machine
from tests.lab.static_pods import StaticPods, container, static_pods
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

SNAPSHOT = machine()
GPUS = {gpu.id: at for at, gpu in enumerate(SNAPSHOT.gpus)}
HCAS = {str(hca.pci): at for at, hca in enumerate(SNAPSHOT.hcas or ())}


@pytest.fixture
def node(namespaces: None) -> Iterator[StaticPods]:
    """Return a DGX H100 with exclusive HCAs, and a kubelet of its own."""
    del namespaces
    with static_pods() as found:
        yield found


def given(pod: Pod, name: str = "work") -> tuple[list[int], list[int]]:
    """Return the positions of the GPUs and HCAs of a container."""
    (own,) = [each for each in pod.containers if each.name == name]
    ids = {devices.resource: devices.ids for devices in own.devices or ()}
    return (
        sorted(GPUS[each] for each in ids.get(GPU, ())),
        sorted(HCAS[key_of(each)] for each in ids.get(HCA, ())),
    )


def are_near(pod: Pod, name: str = "work") -> bool:
    """Return whether each GPU of a container has one of its HCAs behind its switches."""
    pairs = Pairing(snapshot=SNAPSHOT).matched(*given(pod, name))
    return bool(pairs) and all(
        pair.closeness is not None and pair.closeness <= Closeness.PXB for pair in pairs
    )


def asked(node: StaticPods) -> list[tuple[str | None, str | None]]:
    """Return the pod and container of each call, as they were found."""
    found = [(call.requester.pod, call.requester) for call in node.calls if call.requester]
    return [
        (None if pod is None else pod[1].removesuffix("-lone"), one.container) for pod, one in found
    ]


def test_pods_of_one_kind_between_pods_of_both_mislead_nobody(node: StaticPods) -> None:
    node.run("gpus", {"work": {GPU: 2}})
    node.run("hcas", {"work": {HCA: 2}})
    pods = [node.run(name, {"work": {GPU: 1, HCA: 1}}) for name in ("a", "b", "c")]
    assert all(map(are_near, pods)), [given(pod) for pod in pods]
    expected = ["gpus", "hcas", "a", "a", "b", "b", "c", "c"]
    assert asked(node) == [(name, "work") for name in expected]
    assert node.requesters.lookups == Counter(known=8)


def test_containers_and_sidecars_get_their_own_pairs(node: StaticPods) -> None:
    both = {GPU: 1, HCA: 1}
    pod = node.run(
        "pod",
        {"work": both, "second": both},
        initContainers=[container("sidecar", both, restartPolicy="Always")],
    )
    for name in ("sidecar", "work", "second"):
        assert are_near(pod, name), given(pod, name)
    calls = [call.requester for call in node.calls]
    assert None not in calls
    assert [one.container for one in calls if one][1::2] == ["sidecar", "work", "second"]


@pytest.mark.parametrize("left", [{GPU: 1, HCA: 1}, {HCA: 1}, {GPU: 1}], ids=str)
def test_what_an_init_container_leaves_is_known(node: StaticPods, left: dict[str, int]) -> None:
    pod = node.run("pod", {"work": {GPU: 2, HCA: 2}}, initContainers=[container("init", left)])
    assert are_near(pod), given(pod)
    assert {name for name, _ in asked(node)} == {"pod"}


def test_a_helper_with_hcas_leaves_the_trainer_its_own(node: StaticPods) -> None:
    pod = node.run("pod", {"helper": {HCA: 4}, "work": {GPU: 4, HCA: 4}})
    assert are_near(pod), given(pod)
    assert asked(node)[1:] == [("pod", "work"), ("pod", "work")]


@pytest.mark.parametrize("wanted", [{GPU: 2}, {HCA: 2}, {GPU: 2, HCA: 2}], ids=str)
def test_a_pod_that_comes_back_under_its_name_is_found_each_time(
    node: StaticPods, wanted: dict[str, int]
) -> None:
    for _ in range(3):
        node.run("web-0", {"work": wanted})
        node.remove("web-0")
    assert asked(node) == [("web-0", "work")] * (3 * len(wanted))
    assert node.requesters.lookups == Counter(known=3 * len(wanted))


def test_pods_that_come_at_once_get_their_own_pairs(node: StaticPods) -> None:
    names = [f"gang-{number}" for number in range(4)]
    for name in names:
        node.add(name, {"work": {GPU: 2, HCA: 2}})
    pods = [node.wait(name, {"work": {GPU: 2, HCA: 2}}) for name in names]
    assert all(map(are_near, pods)), [given(pod) for pod in pods]
    assert all(call.requester is not None for call in node.calls)


def test_a_kubelet_that_starts_again_is_understood(node: StaticPods) -> None:
    node.run("before", {"work": {GPU: 3}})
    node.start_again()
    wait_for("the kubelet lists the pod again", lambda: [pod.name for pod in node.pods()])
    pod = node.run("after", {"work": {GPU: 2, HCA: 2}})
    assert are_near(pod), given(pod)
    assert asked(node)[-2:] == [("after", "work"), ("after", "work")]


def test_a_reader_that_uses_up_the_sockets_rate_costs_nothing_but_the_certainty(
    node: StaticPods,
) -> None:
    stopping = threading.Event()
    refused = threading.Event()

    def read() -> None:
        kubelet = PodResources(node.socket, timeout_s=30.0, gate=None)
        while not stopping.is_set():
            try:
                kubelet.assigned()
            except UnreadableError as error:
                if "RESOURCE_EXHAUSTED" in str(error):
                    refused.set()
        kubelet.close()

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        assert refused.wait(120)
        pods = [node.run_beside(name, {"work": {GPU: 2, HCA: 2}}) for name in ("a", "b")]
    finally:
        stopping.set()
        for reader in readers:
            reader.join(60)
    assert all(map(are_near, pods)), [given(pod) for pod in pods]
    assert node.requesters.lookups.total() == len(node.calls) == 4
