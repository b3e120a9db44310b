"""Who holds which GPU, through restarts of containers, of the kubelet and of our daemon.

The cases are those of Kubernetes' own end-to-end tests of device plugins (v1.36.3,
test/e2e_node/device_plugin_test.go), told anew about our daemon; ``docs/internals/conformance.md``
lists them all. Theirs look into a container's files for its device; containers have no files
here, and it is what the kubelet told the runtime that counts.
"""

import pytest

from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed, restarting, with_containers
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab


def test_a_pod_that_asks_for_a_gpu_gets_exactly_one(cluster: Cluster, v100: Node) -> None:
    """It "Can schedule a pod that requires a device"."""
    cluster.pods.run(_pod("job"))

    (given,) = v100.pod_resources()
    (container,) = given.containers
    (devices,) = container.devices or ()
    assert (given.name, container.name, devices.resource) == ("job", "work", GPU)
    assert len(devices.ids) == 1


def test_the_container_is_created_with_the_cdi_device_of_its_gpu(
    cluster: Cluster, v100: Node
) -> None:
    """It "can make a CDI device accessible in a container"."""
    cluster.pods.run(_pod("job"))

    (created,) = v100.runtime.created("job")
    assert created.cdi == _cdi(v100, "job")


def test_a_container_that_restarts_keeps_its_gpu(cluster: Cluster, v100: Node) -> None:
    """It "Keeps device plugin assignments across pod restarts (no kubelet restart, …)"."""
    cluster.pods.run(restarting(_pod("first")))
    before = v100.given("first")

    _end_container(cluster, v100, "first", restarts=1)

    cluster.pods.run(_pod("second"))
    assert v100.given("first") == before
    assert set(_cdi(v100, "first")).isdisjoint(_cdi(v100, "second"))
    assert [one.cdi for one in v100.runtime.created("first")] == [_cdi(v100, "first")] * 2


def test_a_running_pod_keeps_its_gpu_over_a_kubelet_restart(cluster: Cluster, v100: Node) -> None:
    """It "Keeps device plugin assignments across kubelet restarts (no pod restart, …)"."""
    pod = cluster.pods.run(_pod("first"))
    before = v100.given("first")

    _restart_kubelet(v100)

    cluster.pods.run(_pod("second"))
    assert _identity(cluster.pods.get("first")) == _identity(pod)
    assert v100.given("first") == before
    assert set(_cdi(v100, "first")).isdisjoint(_cdi(v100, "second"))


def test_containers_that_restart_before_and_after_a_kubelet_restart_keep_their_gpu(
    cluster: Cluster, v100: Node
) -> None:
    """It "Keeps device plugin assignments across pod and kubelet restarts (…)"."""
    cluster.pods.run(restarting(_pod("job")))
    before = v100.given("job")

    _end_container(cluster, v100, "job", restarts=1)
    _restart_kubelet(v100)
    _end_container(cluster, v100, "job", restarts=2)

    assert v100.given("job") == before
    assert [one.cdi for one in v100.runtime.created("job")] == [_cdi(v100, "job")] * 3


def test_a_pod_that_succeeded_is_not_admitted_anew_when_the_plugin_is_gone(
    cluster: Cluster, v100: Node
) -> None:
    """It "will not attempt to admit the succeeded pod after the kubelet restart and …"."""
    cluster.pods.run(_pod("done"))
    v100.runtime.end_container(v100.runtime.created("done")[-1])
    cluster.pods.wait_phase("done", "Succeeded")

    v100.agent.stop()
    v100.wait_allocatable(GPU, 0)
    assert v100.capacity(GPU) == 8
    v100.restart_kubelet()

    # A newer pod runs, so the new kubelet has seen the older one and judged it.
    cluster.pods.run(guaranteed("plain", v100.name, {"cpu": 1, "memory": "64Mi"}))
    assert cluster.pods.phase("done") == "Succeeded"


def test_a_running_pod_keeps_its_gpu_when_the_daemon_restarts(cluster: Cluster, v100: Node) -> None:
    """It "Keeps device plugin assignments after the device plugin has restarted (…)"."""
    pod = cluster.pods.run(_pod("first"))
    before = v100.given("first")

    _restart_agent(v100)

    cluster.pods.run(_pod("second"))
    assert _identity(cluster.pods.get("first")) == _identity(pod)
    assert v100.given("first") == before
    assert set(_cdi(v100, "first")).isdisjoint(_cdi(v100, "second"))


def test_a_running_pod_keeps_its_gpu_when_the_kubelet_and_then_the_daemon_restart(
    cluster: Cluster, v100: Node
) -> None:
    """It "Keeps device plugin assignments after kubelet restart and device plugin restart"."""
    pod = cluster.pods.run(_pod("job"))
    before = v100.given("job")

    v100.restart_kubelet()
    _restart_agent(v100)

    assert _identity(cluster.pods.get("job")) == _identity(pod)
    assert v100.given("job") == before


def test_gpus_of_pods_deleted_while_the_kubelet_is_down_are_free_again(
    cluster: Cluster, v100: Node
) -> None:
    """It "[OrphanedPods] Ensures pods consuming devices deleted while kubelet is down …"."""
    cluster.pods.run(_pod("orphan", gpus=4))
    v100.kill_kubelet()
    cluster.pods.delete("orphan")

    before = v100.agent.registrations()
    v100.start_kubelet()
    _wait_registered(v100, before)

    v100.wait_allocatable(GPU, 8)
    wait_for("the kubelet forgets the pod", lambda: not v100.given("orphan"), evidence=v100.logs)
    for name in ("first", "second"):
        cluster.pods.run(_pod(name, gpus=4))


def test_a_sidecar_has_the_gpu_of_the_init_container_before_it_and_the_work_has_another(
    cluster: Cluster, v100: Node
) -> None:
    """It "Can schedule a pod with a restartable init container"."""
    pod = with_containers("team", v100.name, [{GPU: 1}], init=[{GPU: 1}, {GPU: 1}])
    pod["spec"]["initContainers"][1]["restartPolicy"] = "Always"
    cluster.pods.create(pod)
    # Made is not started: one that ends in between is started all the same.
    wait_for(
        "the init container runs",
        lambda: _is_init_running(cluster.pods.get("team")),
        evidence=v100.logs,
    )
    (init,) = v100.runtime.created("team")
    v100.runtime.end_container(init)
    cluster.pods.wait_phase("team", "Running")

    init, sidecar, work = v100.runtime.created("team")
    assert (init.container, sidecar.container, work.container) == ("init", "init-1", "work")
    assert init.cdi == sidecar.cdi
    assert len({*sidecar.cdi, *work.cdi}) == 2
    given = v100.given("team")
    assert {name: len(ids) for name, ids in given.items()} == {"init-1": 1, "work": 1}


def _pod(name: str, gpus: int = 1) -> Object:
    return guaranteed(name, "v100", {GPU: gpus})


def _cdi(node: Node, pod: str) -> tuple[str, ...]:
    """Return the CDI names of the GPUs that the kubelet lists for the pod's one container."""
    (ids,) = node.given(pod).values()
    return tuple(sorted(f"nvidia.com/gpu={name}" for name in ids))


def _is_init_running(pod: Object) -> bool:
    (first, *_) = pod["status"].get("initContainerStatuses") or [{}]
    return "running" in first.get("state", {})


def _identity(pod: Object) -> tuple[str, str, str, int]:
    (container,) = pod["status"]["containerStatuses"]
    return (
        pod["metadata"]["uid"],
        pod["status"]["phase"],
        container["containerID"],
        container["restartCount"],
    )


def _end_container(cluster: Cluster, node: Node, pod: str, *, restarts: int) -> None:
    node.runtime.end_container(node.runtime.created(pod)[-1])
    cluster.pods.wait_restarted(pod, restarts)


def _restart_kubelet(node: Node) -> None:
    before = node.agent.registrations()
    node.restart_kubelet()
    _wait_registered(node, before)
    node.wait_allocatable(GPU, 8)


def _restart_agent(node: Node) -> None:
    node.agent.stop()
    node.wait_allocatable(GPU, 0)
    node.agent.start()
    node.wait_allocatable(GPU, 8)


def _wait_registered(node: Node, before: int) -> None:
    wait_for(
        "the daemon registered with the new kubelet",
        lambda: node.agent.registrations() > before,
        evidence=node.logs,
    )
