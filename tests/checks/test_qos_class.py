"""The QoS class against the kubelet's rules, corner cases included."""

import pytest

from agent.checks.qos_class import QosClass, qos_class, shortfalls
from agent.model.pod import Container, ContainerKind, Pod

FULL = {"cpu": 1000, "memory": 1 << 30}
APP = Container(name="app", requests=FULL, limits=FULL)


def container(requests: dict[str, int], limits: dict[str, int]) -> Container:
    return Container(name="app", requests=requests, limits=limits)


def pod(
    *containers: Container,
    requests: dict[str, int] | None = None,
    limits: dict[str, int] | None = None,
) -> Pod:
    return Pod(namespace="a", name="b", containers=containers, requests=requests, limits=limits)


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        pytest.param(pod(APP), QosClass.GUARANTEED, id="requests equal limits"),
        pytest.param(pod(), QosClass.BEST_EFFORT, id="no container"),
        pytest.param(pod(container({}, {})), QosClass.BEST_EFFORT, id="nothing asked"),
        pytest.param(
            pod(container({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1})),
            QosClass.BEST_EFFORT,
            id="only a GPU",
        ),
        pytest.param(
            pod(container({"hugepages-2Mi": 1, "ephemeral-storage": 1}, {})),
            QosClass.BEST_EFFORT,
            id="only what does not count",
        ),
        pytest.param(pod(container({"cpu": 0}, {"cpu": 0})), QosClass.BEST_EFFORT, id="zeros"),
        pytest.param(pod(container(FULL, {})), QosClass.BURSTABLE, id="requests only"),
        pytest.param(pod(container({}, FULL)), QosClass.BURSTABLE, id="limits not defaulted"),
        pytest.param(
            pod(container({**FULL, "memory": 0}, FULL)),
            QosClass.BURSTABLE,
            id="memory request zero",
        ),
        pytest.param(
            pod(container({"cpu": 1}, {"cpu": 1})), QosClass.BURSTABLE, id="CPU without memory"
        ),
        pytest.param(
            pod(container({**FULL, "cpu": 1}, FULL)), QosClass.BURSTABLE, id="CPU differs"
        ),
        pytest.param(
            pod(Container(name="i", kind=ContainerKind.INIT, requests={}, limits={}), APP),
            QosClass.BURSTABLE,
            id="init container without resources",
        ),
        pytest.param(
            pod(Container(name="s", kind=ContainerKind.SIDECAR, requests=FULL, limits=FULL), APP),
            QosClass.GUARANTEED,
            id="sidecar with resources",
        ),
        pytest.param(
            pod(container({}, {}), requests=FULL, limits=FULL),
            QosClass.GUARANTEED,
            id="pod-level resources over an empty container",
        ),
        pytest.param(
            pod(APP, requests={"cpu": 1000}, limits={"cpu": 1000}),
            QosClass.BURSTABLE,
            id="pod-level CPU only",
        ),
        pytest.param(
            pod(APP, requests={}, limits={}), QosClass.BEST_EFFORT, id="empty pod-level resources"
        ),
        pytest.param(
            pod(APP, limits={"hugepages-2Mi": 1}), QosClass.BEST_EFFORT, id="pod-level huge pages"
        ),
        pytest.param(pod(Container(name="app")), None, id="spec not known"),
        pytest.param(pod(APP, Container(name="other")), None, id="spec of one not known"),
    ],
)
def test_the_class_is_the_kubelets(described: Pod, expected: QosClass | None) -> None:
    assert qos_class(described) is expected


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (pod(APP), ()),
        (
            pod(container({"cpu": 1}, {"cpu": 2})),
            ("app: cpu request and limit differ", "app: no memory limit"),
        ),
        (
            pod(requests={"memory": 1}, limits=FULL),
            (
                "spec.resources: cpu request and limit differ",
                "spec.resources: memory request and limit differ",
            ),
        ),
        (pod(Container(name="app")), ()),
    ],
)
def test_shortfalls_name_the_container_and_the_resource(
    described: Pod,
    expected: tuple[str, ...],
) -> None:
    assert shortfalls(described) == expected
