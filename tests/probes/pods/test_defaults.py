"""Requests and limits as the API server completes them; tests/lab/test_qos.py asks a real one."""

import pytest

from nodetopo.errors import InputError
from nodetopo.model.pod import Pod
from nodetopo.model.qos import PodLevel, QosClass, qos_class
from nodetopo.probes.pods.manifest import pods_from_manifest

GIB = 1 << 30


def read(text: str) -> Pod:
    (pod,) = pods_from_manifest(text)
    return pod


def test_pod_level_requests_come_from_the_containers_then_from_pod_level_limits() -> None:
    pod = read(
        """
kind: Pod
metadata: {name: p}
spec:
  resources: {limits: {cpu: 8, memory: 8Gi}}
  initContainers:
  - {name: early, image: x, resources: {requests: {cpu: 5}}}
  - {name: side, image: x, restartPolicy: Always, resources: {requests: {cpu: 1}}}
  - {name: late, image: x, resources: {requests: {cpu: 3}}}
  containers:
  - {name: a, image: x, resources: {requests: {cpu: 2}, limits: {nvidia.com/gpu: 1}}}
  - {name: b, image: x, resources: {requests: {cpu: 1}}}
"""
    )
    assert (pod.requests, pod.limits) == (
        {"cpu": 5000, "memory": 8 * GIB},
        {"cpu": 8000, "memory": 8 * GIB},
    )


def test_pod_level_limits_of_huge_pages_come_from_the_containers() -> None:
    pod = read(
        """
kind: Pod
metadata: {name: p}
spec:
  resources: {requests: {cpu: 4}}
  containers:
  - {name: a, image: x, resources: {requests: {cpu: 1}, limits: {hugepages-2Mi: 4Mi}}}
  - {name: b, image: x, resources: {limits: {hugepages-2Mi: 2Mi, memory: 1Gi}}}
"""
    )
    assert (pod.requests, pod.limits) == (
        {"cpu": 4000, "memory": GIB, "hugepages-2Mi": 6 << 20},
        {"hugepages-2Mi": 6 << 20},
    )


def test_pod_level_requests_without_limits_are_left_alone() -> None:
    pod = read(
        "{kind: Pod, metadata: {name: p}, spec: {resources: {requests: {cpu: 4}},"
        " containers: [{name: a, image: x, resources: {requests: {memory: 1Gi}}}]}}"
    )
    assert (pod.requests, pod.limits) == ({"cpu": 4000}, {})


RANGE = """
kind: LimitRange
metadata: {name: r, namespace: ml}
spec:
  limits:
  - type: Pod
    max: {cpu: 64}
  - type: Container
    default: {cpu: 2}
    defaultRequest: {memory: 1Gi}
    max: {memory: 4Gi, nvidia.com/gpu: 1}
    min: {ephemeral-storage: 9}
"""
BARE = (
    "---\n{kind: Pod, metadata: {name: p, namespace: ml},"
    " spec: {containers: [{name: c, image: x}]}}"
)


def test_a_limit_range_gives_what_a_container_does_not_state() -> None:
    (container,) = read(RANGE + BARE).containers
    assert (container.requests, container.limits) == (
        {"cpu": 2000, "memory": GIB, "ephemeral-storage": 9, "nvidia.com/gpu": 1},
        {"cpu": 2000, "memory": 4 * GIB, "nvidia.com/gpu": 1},
    )


def test_a_limit_range_comes_after_requests_from_limits() -> None:
    stated = "resources: {limits: {cpu: 8}, requests: {memory: 2Gi}}"
    (container,) = read(RANGE + BARE.replace("name: c", f"name: c, {stated}")).containers
    assert (container.requests or {})["cpu"] == 8000
    assert ((container.requests or {})["memory"], (container.limits or {})["memory"]) == (
        2 * GIB,
        4 * GIB,
    )


def test_a_limit_range_behind_the_pod_counts_too() -> None:
    assert read(BARE + "\n---" + RANGE).containers == read(RANGE + BARE).containers


def test_a_limit_range_of_another_namespace_does_not_count() -> None:
    (container,) = read(RANGE + BARE.replace("namespace: ml", "namespace: other")).containers
    assert (container.requests, container.limits) == ({}, {})


def test_a_limit_range_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        read("{kind: LimitRange, metadata: {name: r}, spec: {limits: [{type: Container, max: 3}]}}")
    assert str(caught.value) == (
        "document 1 (LimitRange r): spec.limits[0].max: expected an object, found int"
        " — correct the manifest"
    )


def test_a_class_fixed_before_the_last_completion_is_kept() -> None:
    spec = "{limits: [{type: Container, defaultRequest: {cpu: 1}}]}"
    given = f"{{kind: LimitRange, metadata: {{name: r, namespace: ml}}, spec: {spec}}}\n"
    whole = "resources: {limits: {memory: 0}}, containers:"
    pod = read(given + BARE.replace("containers:", whole))
    assert pod.requests == {"memory": 0, "cpu": 1000}
    assert pod.qos_class == "BestEffort"


AFTERWARDS = (1, 37)


def of_both_releases(text: str) -> tuple[Pod, Pod]:
    (before,), (after,) = (pods_from_manifest(text, each) for each in ((1, 36), AFTERWARDS))
    return before, after


def test_from_1_37_pod_level_requests_need_no_pod_level_limits() -> None:
    before, after = of_both_releases(
        "{kind: Pod, metadata: {name: p}, spec: {resources: {requests: {cpu: 4}},"
        " containers: [{name: a, image: x, resources: {requests: {memory: 1Gi}}}]}}"
    )
    assert before.requests == {"cpu": 4000}
    assert (after.requests, after.limits) == ({"cpu": 4000, "memory": GIB}, {})


def test_from_1_37_pod_level_limits_come_from_requests_and_containers() -> None:
    before, after = of_both_releases(
        """
kind: Pod
metadata: {name: p}
spec:
  resources: {requests: {cpu: 8, memory: 1Gi}}
  containers:
  - name: a
    image: x
    resources: {requests: {memory: 512Mi}, limits: {cpu: 2, memory: 2Gi, hugepages-2Mi: 4Mi}}
  - name: b
    image: x
    resources: {requests: {memory: 512Mi}, limits: {cpu: 2, memory: 2Gi}}
"""
    )
    assert before.limits == {"hugepages-2Mi": 4 << 20}
    assert after.limits == {"cpu": 8000, "memory": 4 * GIB, "hugepages-2Mi": 4 << 20}


def test_from_1_37_a_container_without_a_limit_leaves_the_pod_without() -> None:
    _, after = of_both_releases(
        "{kind: Pod, metadata: {name: p}, spec: {resources: {requests: {cpu: 8}},"
        " initContainers: [{name: i, image: x}],"
        " containers: [{name: a, image: x, resources: {limits: {cpu: 2}}}]}}"
    )
    assert (after.requests, after.limits) == ({"cpu": 8000}, {})


def test_from_1_37_limit_ranges_count_for_the_whole_pod_before_its_class_is_fixed() -> None:
    whole = "resources: {requests: {cpu: 2, memory: 4Gi}}, containers:"
    before, after = of_both_releases(RANGE + BARE.replace("containers:", whole))
    assert (before.limits, before.qos_class) == ({}, None)
    assert (after.limits, after.qos_class) == ({"cpu": 2000, "memory": 4 * GIB}, None)
    assert qos_class(before, PodLevel.STATED) is QosClass.BURSTABLE
    assert qos_class(after, PodLevel.ASKING) is QosClass.GUARANTEED


def test_from_1_37_huge_pages_of_a_pod_are_completed_from_its_containers() -> None:
    text = (
        "{kind: Pod, metadata: {name: p}, spec: {resources: {requests: {hugepages-2Mi: 4Mi}},"
        " containers: [{name: a, image: x, resources: {limits: {hugepages-2Mi: 4Mi,"
        " memory: 1Gi}}}]}}"
    )
    with pytest.raises(InputError, match="Limit must be set"):
        read(text)
    (pod,) = pods_from_manifest(text, AFTERWARDS)
    assert pod.requests == pod.limits == {"hugepages-2Mi": 4 << 20, "memory": GIB}
