"""Labels that controllers add, where required affinity and anti-affinity select by them."""

import json
from typing import Any

import pytest

from nodetopo.probes.pods.added_labels import added_labels
from nodetopo.probes.pods.manifest import Manifest, read_manifest

HOSTNAME = "kubernetes.io/hostname"
_JOB = "batch.kubernetes.io/job-name"


def _affinity(kind: str, key: str, *values: str) -> dict[str, Any]:
    operator: dict[str, Any] = {"operator": "In", "values": [*values]}
    selector = {
        "matchExpressions": [{"key": key, **(operator if values else {"operator": "Exists"})}]
    }
    term = {"topologyKey": HOSTNAME, "labelSelector": selector}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _template(affinity: dict[str, Any] | None, **labels: str) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {"containers": [container], "restartPolicy": "Never", "affinity": affinity or {}}
    return {"metadata": {"labels": labels}, "spec": spec}


def _job(name: str, affinity: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": 2, "template": _template(affinity)},
    }


def _pod(name: str, affinity: dict[str, Any] | None = None, **labels: str) -> dict[str, Any]:
    template = _template(affinity, **labels)
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        **template,
        "metadata": {"name": name, "labels": labels},
    }


def _job_set(name: str, affinity: dict[str, Any] | None = None) -> dict[str, Any]:
    job = {"name": "workers", "template": {"spec": {"template": _template(affinity)}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [job]},
    }


def _read(*documents: dict[str, Any]) -> Manifest:
    return read_manifest("\n---\n".join(map(json.dumps, documents)))


@pytest.mark.parametrize("key", [_JOB, "job-name"])
def test_jobs_have_the_label_with_their_name(key: str) -> None:
    spread = _affinity("podAntiAffinity", key, "a")
    found = _read(_job("a", spread), _job("b", spread))

    assert found.are_apart(0, 0)  # its own replicas
    assert found.are_apart(0, 1)  # b keeps off the node of a
    assert not found.are_apart(1, 1)
    assert [*found.questions] == []


def test_a_pod_of_no_controller_gets_no_label() -> None:
    found = _read(_job("a", _affinity("podAntiAffinity", _JOB)), _pod("p"))

    assert (found.are_apart(0, 0), found.are_apart(0, 1)) == (True, False)
    assert [*found.questions] == []


def test_a_value_that_the_manifest_does_not_say_is_an_open_question() -> None:
    found = _read(_job_set("train", _affinity("podAntiAffinity", "job-name", "train-workers-0")))

    assert not found.are_apart(0, 0)
    (question,) = found.questions
    assert question.startswith("default/train-workers: whether required anti-affinity keeps it off")
    assert question.endswith("a label that it selects by is added by a controller")


def test_a_stated_label_decides_even_if_another_is_open() -> None:
    term = _affinity("podAntiAffinity", "job-name", "a")
    rule = term["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    stated = {"key": "app", "operator": "In", "values": ["other"]}
    rule["labelSelector"]["matchExpressions"].append(stated)
    found = _read(_job_set("train", term))

    assert [*found.questions] == []
    assert not found.are_apart(0, 0)


@pytest.mark.parametrize(
    ("kind", "role", "key", "value"),
    [
        ("JobSet", "workers", "jobset.sigs.k8s.io/jobset-name", "n"),
        ("JobSet", "workers", "jobset.sigs.k8s.io/replicatedjob-name", "workers"),
        ("JobSet", "workers", "batch.kubernetes.io/job-name", None),
        ("LeaderWorkerSet", "", "leaderworkerset.sigs.k8s.io/name", "n"),
        ("LeaderWorkerSet", "leader", "leaderworkerset.sigs.k8s.io/worker-index", "0"),
        ("LeaderWorkerSet", "", "leaderworkerset.sigs.k8s.io/worker-index", None),
        ("PyTorchJob", "worker", "training.kubeflow.org/job-name", "n"),
        ("PyTorchJob", "worker", "training.kubeflow.org/replica-index", None),
        ("RayCluster", "head", "ray.io/cluster", "n"),
        ("RayJob", "head", "ray.io/cluster", None),
        ("CronJob", "", "job-name", None),
        ("StatefulSet", "", "apps.kubernetes.io/pod-index", None),
        ("Deployment", "", "pod-template-hash", None),
    ],
)
def test_a_label_is_known_where_the_manifest_decides_it(
    kind: str, role: str, key: str, value: str | None
) -> None:
    found = added_labels(kind, "n", role, is_volcano=False)

    assert found.may_have(key)
    assert found.known.get(key) == value
    assert not found.may_have("app")
    assert not added_labels("Pod", "n", "", is_volcano=False).may_have(key)


def test_volcanos_job_is_no_job_of_kubernetes() -> None:
    found = added_labels("Job", "n", "", is_volcano=True)

    assert found.known == {"volcano.sh/job-name": "n"}


def test_a_name_that_the_server_generates_decides_nothing() -> None:
    assert added_labels("Job", None, "", is_volcano=False).known == {}


# Affinity.


def test_affinity_names_the_pods_that_it_wants() -> None:
    beside = _affinity("podAffinity", "app", "cache")
    found = _read(_pod("p", beside), _pod("cache", app="cache"), _pod("other", app="x"))

    assert [found.mates(at) for at in range(3)] == [((1,),), (), ()]
    assert [*found.questions] == []


def test_affinity_to_its_own_kind_is_met_by_the_first() -> None:
    beside = _affinity("podAffinity", "app", "a")

    assert _read(_pod("p", beside, app="a"), _pod("q", app="a")).mates(0) == ()


def test_affinity_to_a_job_goes_by_the_label_that_its_controller_adds() -> None:
    found = _read(_pod("p", _affinity("podAffinity", _JOB, "a")), _job("a"))

    assert found.mates(0) == ((1,),)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (_pod("q"), "no pod of the manifest matches it, and labels of running pods are not read"),
        (_job_set("s"), "a label that it selects by is added by a controller"),
    ],
)
def test_affinity_to_a_pod_that_is_not_there_is_an_open_question(
    other: dict[str, Any], why: str
) -> None:
    found = _read(_pod("p", _affinity("podAffinity", "job-name", "a")), other)

    assert found.mates(0) == ()
    assert [*found.questions] == [
        f"default/p: whether required affinity lets it run on this node is not known: {why}"
    ]


def test_affinity_to_a_zone_asks_nothing_of_the_node() -> None:
    beside = _affinity("podAffinity", "app", "a")
    rules = beside["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    rules[0]["topologyKey"] = "topology.kubernetes.io/zone"

    assert [*_read(_pod("p", beside)).questions] == []
