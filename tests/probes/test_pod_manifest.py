"""Pods read from manifests: kinds, defaulting, and what is refused."""

import pytest

from agent.errors import InputError
from agent.model.pod import Container, ContainerKind, Pod
from agent.probes.pods import pods_from_manifest

GIB = 1 << 30
POD = """
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: ml}
spec:
  initContainers:
  - name: fetch
    resources: {requests: {cpu: 500m}}
  - name: proxy
    restartPolicy: Always
    resources: {limits: {cpu: 1, memory: 64Mi}}
  containers:
  - name: app
    resources:
      requests: {memory: 1Gi}
      limits: {cpu: "16", memory: 64Gi, nvidia.com/gpu: 4}
"""
TEMPLATE = "{spec: {containers: [{name: app}]}}"


def pod_with(resources: str) -> str:
    return (
        "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, resources: "
        + resources
        + "}]}}"
    )


def test_a_pod_is_read_with_its_requests_defaulted_from_limits() -> None:
    proxy = {"cpu": 1000, "memory": 64 << 20}
    limits = {"cpu": 16_000, "memory": 64 * GIB, "nvidia.com/gpu": 4}
    assert pods_from_manifest(POD) == (
        Pod(
            namespace="ml",
            name="train",
            containers=(
                Container(name="fetch", kind=ContainerKind.INIT, requests={"cpu": 500}, limits={}),
                Container(name="proxy", kind=ContainerKind.SIDECAR, requests=proxy, limits=proxy),
                Container(name="app", requests={**limits, "memory": GIB}, limits=limits),
            ),
        ),
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(f"kind: PodTemplate\ntemplate: {TEMPLATE}", id="PodTemplate"),
        *(
            pytest.param(f"kind: {kind}\nspec: {{template: {TEMPLATE}}}", id=kind)
            for kind in (
                "Deployment",
                "StatefulSet",
                "DaemonSet",
                "ReplicaSet",
                "ReplicationController",
                "Job",
            )
        ),
        pytest.param(
            f"kind: CronJob\nspec: {{jobTemplate: {{spec: {{template: {TEMPLATE}}}}}}}",
            id="CronJob",
        ),
    ],
)
def test_the_template_of_a_controller_is_a_pod_named_after_it(spec: str) -> None:
    container = Container(name="app", requests={}, limits={})
    assert pods_from_manifest(f"metadata: {{name: x}}\n{spec}") == (
        Pod(namespace="default", name="x", containers=(container,)),
    )


def test_documents_and_lists_are_read_in_order_and_a_service_is_passed_over() -> None:
    text = (
        "---\n{kind: Service, metadata: {name: s}}\n---\n---\n"
        "{kind: List, items: [{kind: Pod, metadata: {name: a}, spec: {}},"
        " {kind: Pod, metadata: {generateName: b-}, spec: {}}]}\n---\n"
        "{kind: Pod, metadata: {name: c}, spec: {}}\n"
    )
    assert [pod.name for pod in pods_from_manifest(text)] == ["a", "b-*", "c"]


@pytest.mark.parametrize(
    ("written", "amounts"),
    [
        ("{cpu: 1500m, memory: 1G}", {"cpu": 1500, "memory": 10**9}),
        ("{cpu: 0.5}", {"cpu": 500}),
        ("{cpu: 2}", {"cpu": 2000}),
        ("{cpu: 100u}", {"cpu": 1}),
        ("{memory: 1e3}", {"memory": 1000}),
        ("{hugepages-2Mi: 4Mi}", {"hugepages-2Mi": 4 << 20}),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(
    written: str, amounts: dict[str, int]
) -> None:
    (pod,) = pods_from_manifest(pod_with(f"{{limits: {written}}}"))
    assert pod.containers[0].limits == amounts


def test_pod_level_requests_come_from_the_containers_then_from_pod_level_limits() -> None:
    text = """
kind: Pod
metadata: {name: p}
spec:
  resources: {limits: {cpu: 8, memory: 8Gi}}
  initContainers:
  - {name: early, resources: {requests: {cpu: 5}}}
  - {name: side, restartPolicy: Always, resources: {requests: {cpu: 1}}}
  - {name: late, resources: {requests: {cpu: 3}}}
  containers:
  - {name: a, resources: {requests: {cpu: 2, nvidia.com/gpu: 1}}}
  - {name: b, resources: {requests: {cpu: 1}}}
"""
    (pod,) = pods_from_manifest(text)
    assert (pod.requests, pod.limits) == (
        {"cpu": 5000, "memory": 8 * GIB},
        {"cpu": 8000, "memory": 8 * GIB},
    )


def test_empty_pod_level_resources_are_kept_apart_from_none() -> None:
    (pod,) = pods_from_manifest("{kind: Pod, metadata: {name: p}, spec: {resources: {}}}")
    assert (pod.requests, pod.limits) == ({}, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no pod in the manifest — give one of: Pod, "),
        ("kind: Service", "no pod in the manifest — give one of: Pod, "),
        ("a: [", "not YAML: expected the node content, but found '<stream end>' in line 1 — "),
        ("!!python/object:os.system x", "not YAML: could not determine a constructor "),
        ('a: !!int ""', "not YAML: IndexError — "),
        ("[" * 50_000, "not YAML: RecursionError — "),
        ("- x", "document 1: expected an object, found list — "),
        ("{}", "document 1: kind: missing, or not a text — "),
        ("kind: [Pod]", "document 1: kind: missing, or not a text — "),
        (
            "kind: Service\n---\nkind: Deploymnet",
            "document 2 (Deploymnet): kind: unknown kind 'Deploymnet' — did you mean 'Deployment'?",
        ),
        (
            "{kind: RayCluster, spec: {head: {containers: []}}}",
            "document 1 (RayCluster): kind: cannot read the pods of a RayCluster — give the pods ",
        ),
        ("kind: Pod", "document 1 (Pod): spec: missing, or not an object — "),
        ("{kind: Pod, spec: {}}", "document 1 (Pod): metadata.name: missing — "),
        (
            "{kind: Job, metadata: {name: j}, spec: {}}",
            "document 1 (Job j): spec.template: missing, or not an object — ",
        ),
        (
            "{kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: 3}}}}",
            "document 1 (Job j): spec.template.spec.containers: expected a list, found int — ",
        ),
        (
            pod_with("{limits: {cpu: lots}}"),
            "document 1 (Pod p): spec.containers[0].resources.limits.cpu: not a quantity: 'lots'",
        ),
        (
            pod_with("{limits: {cpu: -1}}"),
            "document 1 (Pod p): spec.containers[0].resources.limits.cpu: a negative amount: -1",
        ),
        (
            pod_with("{limits: {cpu: true}}"),
            "document 1 (Pod p): spec.containers[0].resources.limits.cpu: expected a quantity, ",
        ),
        (
            pod_with("{limits: 4}"),
            "document 1 (Pod p): spec.containers[0].resources.limits: expected an object, ",
        ),
        (
            "{kind: Pod, metadata: {name: p}, spec: {containers: [{image: x}]}}",
            "document 1 (Pod p): spec.containers[0].name: missing — ",
        ),
        ("&a {kind: List, items: [*a]}", "document 1 (List): nested too deeply — "),
        ("#" * (1 << 20) + "#", "the manifest is larger than 1 MiB — split it"),
    ],
    ids=range(22),
)
def test_a_manifest_that_cannot_be_used_names_the_document_and_the_field(
    text: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        pods_from_manifest(text)
    assert str(caught.value).startswith(message)
