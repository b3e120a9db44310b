"""QoS classes and defaulting against the real API server, on generated pods."""

from collections import Counter
from collections.abc import Iterator

import pytest
import yaml

from nodetopo.errors import InputError
from nodetopo.kubeapi.pods import pod_from_object, pods_from_manifest
from nodetopo.model.pod import Pod
from nodetopo.model.qos import PodLevel, QosClass, class_of, pod_level, qos_class
from nodetopo.probes.pods.defaults import AFTERWARDS_SINCE
from tests.lab import pod_shapes
from tests.lab.api import Api, ApiError, Object
from tests.lab.cluster import Cluster
from tests.lab.release import chosen

pytestmark = pytest.mark.lab

SHAPES = 900
SEED = 8
ENOUGH = 500
"""What of the shapes the server has to accept; it refuses those that break its own rules."""


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    """Return the API server with the namespaces of the shapes, deleted from it at the end."""
    names = [name for name in pod_shapes.RANGES if name != "default"]
    for name in names:
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        limits = pod_shapes.limit_range(name)
        assert limits is not None
        cluster.api.create(f"/api/v1/namespaces/{name}/limitranges", limits)
    yield cluster.api
    for name in names:
        cluster.api.delete(f"/api/v1/namespaces/{name}/limitranges/range")
        cluster.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def asked(api: Api) -> list[tuple[Object, Object | None]]:
    """Return each shape, with the pod that the server would create; None where it is invalid.

    Those that break a LimitRange are left out.
    """
    found: list[tuple[Object, Object | None]] = []
    for shape in pod_shapes.pods(SHAPES, SEED):
        namespace = shape["metadata"]["namespace"]
        try:
            path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
            found.append((shape, api.create(path, shape)))
        except ApiError as error:
            if error.code not in (403, 422):
                raise
            if error.code == 422:
                found.append((shape, None))
    return found


@pytest.fixture(scope="module")
def answers(asked: list[tuple[Object, Object | None]]) -> list[tuple[Object, Object]]:
    """Return those that it accepts."""
    return [(shape, answer) for shape, answer in asked if answer is not None]


@pytest.fixture(scope="module")
def refusals(asked: list[tuple[Object, Object | None]]) -> list[Object]:
    """Return those that it refuses."""
    return [shape for shape, answer in asked if answer is None]


@pytest.fixture(scope="module")
def level(api: Api) -> PodLevel:
    """Return when the server's release goes by pod-level resources."""
    found = pod_level(api.get("/version")["gitVersion"])
    assert found is not None
    return found


def _read(shape: Object) -> Pod:
    documents = [pod_shapes.limit_range(shape["metadata"]["namespace"]), shape]
    (pod,) = pods_from_manifest(yaml.safe_dump_all(documents), chosen().server)
    return pod


def _amounts(pod: Pod) -> object:
    containers = [(one.name, one.kind, one.requests, one.limits) for one in pod.containers]
    return containers, pod.requests, pod.limits


def test_the_server_accepts_enough_shapes_of_every_class(
    answers: list[tuple[Object, Object]],
) -> None:
    classes = Counter(answer["status"]["qosClass"] for _, answer in answers)
    assert len(answers) >= ENOUGH
    assert all(classes[name] >= ENOUGH // 10 for name in QosClass), classes
    # Up to 1.36 resources are completed after the class was fixed.
    is_changed = any(_read(shape).qos_class for shape, _ in answers)
    assert is_changed == (chosen().server < AFTERWARDS_SINCE)


def test_what_the_server_refuses_is_refused(refusals: list[Object]) -> None:
    assert refusals
    for shape in refusals:
        with pytest.raises(InputError):
            pytest.fail(f"we take {_read(shape)}, of {shape}")


def test_the_class_of_a_manifest_is_the_server_s(
    answers: list[tuple[Object, Object]], level: PodLevel
) -> None:
    wrong = [
        (shape["spec"], ours, answer["status"]["qosClass"])
        for shape, answer in answers
        if (ours := class_of(_read(shape), level)) != answer["status"]["qosClass"]
    ]
    assert wrong == []


def test_the_class_of_an_object_without_status_is_the_server_s(
    answers: list[tuple[Object, Object]], level: PodLevel
) -> None:
    wrong = [
        answer["spec"]
        for shape, answer in answers
        # Of the others the resources were completed after the class was fixed.
        if _read(shape).qos_class is None
        and qos_class(pod_from_object({**answer, "status": {}}), level)
        != answer["status"]["qosClass"]
    ]
    assert wrong == []


def test_a_manifest_is_completed_as_the_server_completes_it(
    answers: list[tuple[Object, Object]],
) -> None:
    wrong = [
        (shape["spec"], ours, theirs)
        for shape, answer in answers
        if (ours := _amounts(_read(shape))) != (theirs := _amounts(pod_from_object(answer)))
    ]
    assert wrong == []
