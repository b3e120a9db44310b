"""What the API server refuses is refused, with the place that it names.

``tests/lab/test_manifests_refused.py`` asks a real server, about many more manifests.
"""

import json
import re

import pytest

from nodetopo.errors import InputError
from nodetopo.probes.pods.manifest import pods_from_manifest
from tests.probes.pods.manifest_cases import (
    ANSWERS,
    CASES,
    GPU,
    Object,
    changed,
    container,
    controller,
    pod,
)

RECORDED = json.loads(ANSWERS.read_text("utf-8"))


def refusal(manifest: Object) -> str | None:
    try:
        pods_from_manifest(json.dumps(manifest))
    except InputError as error:
        return str(error)
    return None


def test_every_case_has_an_answer() -> None:
    assert RECORDED.keys() == CASES.keys()
    assert sum(answer is None for answer in RECORDED.values()) >= len(RECORDED) // 4


@pytest.mark.parametrize("name", CASES)
def test_a_manifest_is_refused_where_the_server_refuses_it(name: str) -> None:
    assert (refusal(CASES[name]) is None) == (RECORDED[name] is None), refusal(CASES[name])


ELSEWHERE = {
    "DaemonSet: no selector": "the server says that no selector does not match",
    "Job: a name of 64 characters": "the server names the label that it made of it",
    "a bad name to generate, masked": "the server names the name that it generated",
    "ReplicationController: a bad name to generate": "the server names the name that it generated",
    "a negative overhead": "the server checks an overhead as limits, and names these",
    "a resource with a long prefix": "the recorded field is cut",
}
"""Cases of which our message names another field, and why."""


@pytest.mark.parametrize("name", [name for name, answer in RECORDED.items() if answer])
def test_a_refusal_names_what_the_server_names_and_what_to_do(name: str) -> None:
    said = refusal(CASES[name])
    assert said is not None
    assert "\n" not in said
    assert len(said.partition(" — ")[2]) > 3
    named = re.search(r"^document 1[^:]*: (\S+): ", said)
    assert named
    ours, fields = _place(named[1]), {_place(cause) for cause in RECORDED[name]}
    fields.discard("")  # a type that cannot be decoded has no field in the server's answer
    is_named = any(ours.startswith(field) or field.startswith(ours) for field in fields)
    assert is_named or not fields or name in ELSEWHERE, (ours, fields)


def _place(cause: str) -> str:
    """Return a field as both sides write it, from the pod's spec on."""
    path = cause.removeprefix("its pods: ").partition(": ")[0]
    path = re.sub(r"\[([^]0-9][^]]*)\]", r".\1", path).replace("metadata.", "")
    path = re.sub(r"^.*\bspec(\.|$)", "", path)
    return re.sub(r"^resources\.(containers\[\d+\])\..*", r"\1", path)


def test_a_pod_that_the_server_has_may_have_ephemeral_containers() -> None:
    stored = changed(CASES["an ephemeral container"], {"metadata.uid": "1f0c"})
    assert refusal(stored) is None


def test_a_job_that_the_server_has_keeps_the_labels_that_it_was_given() -> None:
    given = {"controller-uid": "1f0c", "batch.kubernetes.io/controller-uid": "1f0c"}
    stored = changed(
        controller("Job"),
        {
            "metadata.uid": "1f0c",
            "spec.selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "1f0c"}},
            "spec.template.metadata.labels": {**given, "job-name": "c"},
        },
    )
    assert refusal(stored) is None
    assert refusal(changed(stored, {"metadata.uid": "2"})) is not None


def test_an_operator_may_complete_what_its_templates_lack() -> None:
    template = {"spec": {"containers": [{"name": "a", "volumeMounts": [{"name": "tasks"}]}]}}
    job: Object = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"tasks": [{"name": "w", "template": template}]},
    }
    assert refusal(job) is None
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["name"] = "A"
    assert "spec.tasks[0].template.spec.containers[0].name" in (refusal(job) or "")


def test_what_only_the_pods_of_a_controller_break_is_said_of_them() -> None:
    said = refusal(CASES["Deployment: limits of the whole pod that its pods exceed"])
    assert said == (
        "document 1 (Deployment c): spec.template.spec.resources.requests.cpu: the API server "
        "refuses '4': must be less than or equal to cpu limit of 2 (of its pods) "
        "— lower the request or raise the limit"
    )


def test_a_refused_item_of_a_list_is_named_with_its_place() -> None:
    whole = changed(pod(), {"spec.resources": {"limits": {"cpu": "2"}}})
    said = refusal({"kind": "List", "items": [pod(), whole]}) or ""
    assert said.startswith("document 1 (List): items[1].spec.resources.requests.cpu: ")


def test_long_values_are_cut() -> None:
    said = refusal(changed(pod(), {"metadata.name": "A" * 10_000})) or ""
    assert f"refuses '{'A' * 63}…'" in said
    assert len(said) < 400


def test_two_containers_with_all_of_a_pod_s_gpus_are_no_fault() -> None:
    both = changed(pod(), {"spec.containers": [container("a"), container("b")]})
    assert refusal(both) is None
    (found,) = pods_from_manifest(json.dumps(both))
    assert [(one.limits or {})[GPU] for one in found.containers] == [1, 1]
