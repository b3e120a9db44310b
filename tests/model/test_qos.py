"""The QoS class against the kubelet's rules, corner cases included."""

import pytest
from msgspec.structs import replace

from nodetopo.model.pod import Container, ContainerKind, Pod
from nodetopo.model.qos import (
    PodLevel,
    QosClass,
    asks_as_a_pod,
    class_of,
    pod_level,
    qos_class,
    shortfalls,
)

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
    assert qos_class(described, PodLevel.STATED) is expected


APP_POD = pod(APP)
EMPTY = pod(APP, requests={}, limits={})
PAGES = pod(APP, requests={"hugepages-2Mi": 1}, limits={"hugepages-2Mi": 1})
WHOLE = pod(container({}, {}), requests=FULL, limits=FULL)


@pytest.mark.parametrize(
    ("described", "never", "stated", "asking"),
    [
        (APP_POD, QosClass.GUARANTEED, QosClass.GUARANTEED, QosClass.GUARANTEED),
        (EMPTY, QosClass.GUARANTEED, QosClass.BEST_EFFORT, QosClass.GUARANTEED),
        (PAGES, QosClass.GUARANTEED, QosClass.BEST_EFFORT, QosClass.BEST_EFFORT),
        (WHOLE, QosClass.BEST_EFFORT, QosClass.GUARANTEED, QosClass.GUARANTEED),
    ],
)
def test_releases_differ_in_when_pod_level_resources_count(
    described: Pod, never: QosClass, stated: QosClass, asking: QosClass
) -> None:
    assert [qos_class(described, level) for level in PodLevel] == [never, stated, asking]


def test_the_class_is_unknown_where_it_depends_on_an_unknown_release() -> None:
    found = [qos_class(described) for described in (APP_POD, EMPTY, PAGES, WHOLE)]
    assert found == [QosClass.GUARANTEED, None, QosClass.BEST_EFFORT, QosClass.GUARANTEED]


def test_the_class_in_the_status_wins() -> None:
    assert class_of(replace(APP_POD, qos_class="Burstable")) == "Burstable"


@pytest.mark.parametrize(
    ("version", "gates", "expected"),
    [
        ("v1.33.5", {}, PodLevel.NEVER),
        ("v1.34.0", {}, PodLevel.STATED),
        ("v1.36.3", None, PodLevel.STATED),
        ("v1.37.0", {}, PodLevel.ASKING),
        ("v1.33.5", {"PodLevelResources": True}, PodLevel.STATED),
        ("v1.37.0", {"PodLevelResources": False}, PodLevel.NEVER),
        ("v1.37.0", {"PodLevelResourcesFixKubeletQOSClass": False}, PodLevel.STATED),
        (None, {}, None),
        (None, {"PodLevelResources": True}, None),
        (None, {"PodLevelResources": False}, PodLevel.NEVER),
        (
            None,
            {"PodLevelResources": True, "PodLevelResourcesFixKubeletQOSClass": True},
            PodLevel.ASKING,
        ),
        ("none", None, None),
    ],
)
def test_a_release_and_its_gates_tell_when_pod_level_resources_count(
    version: str | None, gates: dict[str, bool] | None, expected: PodLevel | None
) -> None:
    assert pod_level(version, gates) is expected


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (APP_POD, False),
        (EMPTY, False),
        (PAGES, True),
        (WHOLE, True),
        (pod(limits={"nvidia.com/gpu": 1}), False),
    ],
)
def test_the_managers_go_by_cpu_memory_and_huge_pages(described: Pod, expected: bool) -> None:
    assert asks_as_a_pod(described) is expected


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
    assert shortfalls(described, PodLevel.STATED) == expected


def test_shortfalls_are_those_of_what_decides() -> None:
    assert shortfalls(EMPTY, PodLevel.ASKING) == ()
    assert shortfalls(EMPTY, PodLevel.STATED) == (
        "spec.resources: no cpu limit",
        "spec.resources: no memory limit",
    )
