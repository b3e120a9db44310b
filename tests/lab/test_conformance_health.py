"""GPUs that break under the kubelet's eyes: what the node offers, and what pods are told.

The cases are those of Kubernetes' own end-to-end tests of device plugins (v1.36.3,
test/e2e_node/device_plugin_failures_test.go and device_plugin_failures_pod_status_test.go),
told anew about our daemon; see ``docs/internals/conformance.md``. Their plugin is told which
device is unhealthy; our daemon has to find out from the driver.
"""

import pytest

from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_NOTICED_S = 300.0
"""For a scan to see a fault, or its end and that it stays away; the scans are 5 s apart."""


def test_no_gpu_is_offered_while_all_are_lost_and_all_are_when_they_are_back(v100: Node) -> None:
    """It "will set allocatable to zero when a single device became unhealthy and then back …"."""
    _lose(v100, *range(8))
    _wait_offers(v100, 0)

    v100.agent.mend()

    _wait_offers(v100, 8)


def test_a_lost_gpu_stays_in_the_capacity_and_does_not_touch_the_pod_on_it(
    cluster: Cluster, v100: Node
) -> None:
    """It "will set allocatable to zero when a single device …, but capacity will stay at 1"."""
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 1}))
    before = v100.given("job")
    v100.wait_allocatable(GPU, 8)

    _lose(v100, _index(v100, "job"))
    _wait_offers(v100, 7)

    assert (cluster.pods.phase("job"), v100.given("job")) == ("Running", before)
    cluster.pods.delete("job")
    cluster.pods.run(guaranteed("rest", v100.name, {GPU: 7}))
    assert v100.given("rest")["work"] not in before.values()
    assert (v100.capacity(GPU), v100.allocatable(GPU)) == (8, 7)


def test_as_many_gpus_are_offered_as_are_not_lost(v100: Node) -> None:
    """It "will lower allocatable to a number of unhealthy devices and then back if they …"."""
    for lost in ((3,), (), (1, 3), (1,), ()):
        _lose(v100, *lost)
        _wait_offers(v100, 8 - len(lost))


def test_the_status_of_a_running_pod_says_that_its_gpu_became_unhealthy(
    cluster: Cluster, v100: Node
) -> None:
    """It "will report a Healthy and then Unhealthy single device in the pod status"."""
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 1}))
    _wait_told(cluster, v100, "job", "Healthy")

    _lose(v100, _index(v100, "job"))

    _wait_told(cluster, v100, "job", "Unhealthy")
    assert cluster.pods.phase("job") == "Running"
    v100.agent.mend()
    _wait_told(cluster, v100, "job", "Healthy")


def test_the_status_of_a_pod_that_cannot_start_says_that_its_gpu_became_unhealthy(
    cluster: Cluster, v100: Node
) -> None:
    """It "will report a Device Status for the failed pod in the pod status"."""
    cluster.pods.create(_without_image("job", v100))
    wait_for(
        "the container waits for an image that is not there",
        lambda: _waits_for(cluster, "job") == "ErrImageNeverPull",
        evidence=v100.logs,
    )
    _wait_told(cluster, v100, "job", "Healthy")

    _lose(v100, _index(v100, "job"))

    _wait_told(cluster, v100, "job", "Unhealthy")


def _lose(node: Node, *gpus: int) -> None:
    """Take exactly the GPUs with these indices off the bus."""
    node.agent.fail(*(f"lost {gpu}" for gpu in gpus))


def _index(node: Node, pod: str) -> int:
    """Return the index of the one GPU that the kubelet gave to *pod*: the UUIDs end with it."""
    ((uuid,),) = node.given(pod).values()
    return int(uuid.rpartition("-")[2])


def _wait_offers(node: Node, amount: int) -> None:
    node.wait_allocatable(GPU, amount, timeout_s=_NOTICED_S)
    assert node.capacity(GPU) == 8


def _wait_told(cluster: Cluster, node: Node, pod: str, health: str) -> None:
    """Wait until the pod's status says *health* of exactly the GPU that it was given."""
    ((uuid,),) = node.given(pod).values()
    expected = [{"name": GPU, "resources": [{"resourceID": uuid, "health": health}]}]

    def is_told() -> bool:
        (container,) = cluster.pods.get(pod)["status"]["containerStatuses"]
        return bool(container.get("allocatedResourcesStatus") == expected)

    wait_for(
        f"the status of pod {pod} says that {uuid} is {health}",
        is_told,
        timeout_s=_NOTICED_S,
        evidence=lambda: f"{cluster.pods.get(pod)['status']}\n{node.logs()}",
    )


def _without_image(name: str, node: Node) -> Object:
    pod = guaranteed(name, node.name, {GPU: 1})
    (container,) = pod["spec"]["containers"]
    container |= {"image": "registry.invalid/absent:1", "imagePullPolicy": "Never"}
    return pod


def _waits_for(cluster: Cluster, pod: str) -> str | None:
    (container, *_) = cluster.pods.get(pod)["status"].get("containerStatuses") or [{}]
    reason: str | None = container.get("state", {}).get("waiting", {}).get("reason")
    return reason
