"""Pods read from manifests: kinds, defaulting, and what is refused."""

import pytest

from nodetopo.errors import InputError
from nodetopo.model.pod import ContainerKind
from nodetopo.probes.pods.manifest import pods_from_manifest
from tests.probes.pods.pod_facts import plain_container, plain_pod

GIB = 1 << 30
POD = """
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: ml}
spec:
  initContainers:
  - name: fetch
    image: x
    resources: {requests: {cpu: 500m}}
  - name: proxy
    image: x
    restartPolicy: Always
    resources: {limits: {cpu: 1, memory: 64Mi}}
  containers:
  - name: app
    image: x
    resources:
      requests: {memory: 1Gi}
      limits: {cpu: "16", memory: 64Gi, nvidia.com/gpu: 4}
"""


SPEC = '{"containers": [{"name": "c", "image": "x"}]}'
RANGE = "{kind: LimitRange, metadata: {name: r}, spec: {limits: []}}"
NO_USE = "the manifest cannot be used"
BOMB = "a: &a [x]\n" + "\n".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 20)}]" for n in range(12)
)


def pod_with(resources: str) -> str:
    return (
        "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: x, resources: "
        + resources
        + "}]}}"
    )


def test_a_pod_is_read_with_its_requests_defaulted_from_limits() -> None:
    proxy = {"cpu": 1000, "memory": 64 << 20}
    limits = {"cpu": 16_000, "memory": 64 * GIB, "nvidia.com/gpu": 4}
    assert pods_from_manifest(POD) == (
        plain_pod(
            namespace="ml",
            name="train",
            containers=(
                plain_container(
                    name="fetch", image="x", kind=ContainerKind.INIT, requests={"cpu": 500}
                ),
                plain_container(
                    name="proxy",
                    image="x",
                    kind=ContainerKind.SIDECAR,
                    requests=proxy,
                    limits=proxy,
                ),
                plain_container(image="x", requests={**limits, "memory": GIB}, limits=limits),
            ),
        ),
    )


def test_documents_and_lists_are_read_in_order_and_a_service_is_passed_over() -> None:
    text = (
        "---\n{kind: Service, metadata: {name: s}}\n---\n---\n"
        "{kind: List, items: [{kind: Pod, metadata: {name: a}, spec: SPEC},"
        " {kind: Pod, metadata: {generateName: b-}, spec: SPEC}]}\n---\n"
        "{kind: Pod, metadata: {name: c}, spec: SPEC}\n"
    )
    assert [pod.name for pod in pods_from_manifest(text.replace("SPEC", SPEC))] == ["a", "b-*", "c"]


@pytest.mark.parametrize(
    ("written", "amounts"),
    [
        ("{cpu: 1500m, memory: 1G}", {"cpu": 1500, "memory": 10**9}),
        ("{cpu: 0.5}", {"cpu": 500}),
        ("{cpu: 2}", {"cpu": 2000}),
        ("{cpu: 100u}", {"cpu": 1}),
        ("{memory: 1e3}", {"memory": 1000}),
        ("{hugepages-2Mi: 4Mi, cpu: 1}", {"hugepages-2Mi": 4 << 20, "cpu": 1000}),
        ("{nvidia.com/gpu: }", {"nvidia.com/gpu": 0}),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(
    written: str, amounts: dict[str, int]
) -> None:
    (pod,) = pods_from_manifest(pod_with(f"{{limits: {written}}}"))
    assert pod.containers[0].limits == amounts


def test_the_items_of_a_typed_list_need_not_say_their_kind() -> None:
    text = (
        "{kind: PodList, items: [{metadata: {name: a}, spec: SPEC, status: {qosClass: Burstable}}]}"
    )
    (pod,) = pods_from_manifest(text.replace("SPEC", SPEC))
    assert (pod.name, pod.qos_class) == ("a", "Burstable")


def test_json_is_a_manifest_too() -> None:
    (pod,) = pods_from_manifest(
        '{\t"kind": "Pod", "metadata": {"name": "a"}, "spec": ' + SPEC + "}"
    )
    assert pod.name == "a"


def test_empty_pod_level_resources_are_kept_apart_from_none() -> None:
    (pod,) = pods_from_manifest(
        "{kind: Pod, metadata: {name: p}, spec: {resources: {}, containers: [{name: c, image: x}]}}"
    )
    assert (pod.requests, pod.limits) == ({}, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no pod in the manifest, it is empty — give one of: Pod, "),
        ("kind: Service", "no pod in the manifest, only Service — give one of: Pod, "),
        ("a: [", f"{NO_USE}: not YAML: did not find expected node content in line 2 — correct it"),
        ("!!python/object:os.system x", f"{NO_USE}: not YAML: could not determine a constructor "),
        ('a: !!int ""', f"{NO_USE}: not YAML: not a whole number in line 1 — "),
        ("[" * 50_000, f"{NO_USE}: nested more than "),
        (BOMB, f"{NO_USE}: "),
        ("&a {kind: List, items: [*a]}", f"{NO_USE}: "),
        ("- x", "document 1: expected an object, found list — "),
        ("{}", "document 1: kind: missing, or not a text — "),
        ("kind: [Pod]", "document 1: kind: missing, or not a text — "),
        (
            "kind: Service\n---\nkind: Deploymnet",
            "document 2 (Deploymnet): kind: unknown kind 'Deploymnet' — did you mean 'Deployment'?",
        ),
        (
            "kind: raycluster",
            "document 1 (raycluster): kind: unknown kind 'raycluster' — did you mean 'RayCluster'?",
        ),
        (
            "kind: Role\n---\nkind: Service\n---\nkind: Role\n---\nkind: A\n---\nkind: B",
            "no pod in the manifest, only Role, Service, A, … — give one of: Pod, ",
        ),
        (RANGE, "no pod in the manifest, only LimitRange — give one of: Pod, "),
        (
            f"{{kind: Pod, metadata: {{name: {'n' * 100}}}}}",
            f"document 1 (Pod {'n' * 63}): spec: missing, or not an object — ",
        ),
        (f"kind: {'x' * 100}", f"no pod in the manifest, only {'x' * 63} — give one of: Pod, "),
        (
            "{kind: Fleet, spec: {head: {containers: []}}}",
            "document 1 (Fleet): kind: cannot read the pods of kind Fleet — give the pods ",
        ),
        ("kind: Pod", "document 1 (Pod): spec: missing, or not an object — "),
        (
            "{kind: Pod, spec: {}}",
            "document 1 (Pod): metadata.name: the API server refuses this: Required value — ",
        ),
        (
            "{kind: Job, metadata: {name: j}, spec: {}}",
            "document 1 (Job j): spec.template: missing, or not an object — ",
        ),
        (
            "{kind: PodTemplate, metadata: {name: j}, template: {spec: {containers: 3}}}",
            "document 1 (PodTemplate j): template.spec.containers: expected a list, found int — ",
        ),
        (
            pod_with("{limits: {cpu: lots}}"),
            "document 1 (Pod p): spec.containers[0].resources.limits.cpu: not a quantity: 'lots'",
        ),
        (
            pod_with("{limits: {cpu: -1}}"),
            "document 1 (Pod p): spec.containers[0].resources.limits.cpu: the API server ",
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
        (
            "{kind: PodList, items: [{kind: Job, metadata: {name: j}, spec: {template: {}}}]}",
            "document 1 (PodList): items[0].spec.template.spec: missing, or not an object — ",
        ),
        (
            "kind: TrainJob",
            "no pod in the manifest, only TrainJob — a TrainJob does not hold its pods: give the ",
        ),
        (
            "{kind: List, items: [" + "{kind: Pod, metadata: {name: p}, spec: SPEC}," * 1001 + "]}",
            "document 1 (List): items[1000]: more than 1000 pods — split the manifest",
        ),
        ("#" * (1 << 20) + "#", "the manifest is larger than 1 MiB — split it"),
    ],
    ids=range(31),
)
def test_a_manifest_that_cannot_be_used_names_the_document_and_the_field(
    text: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        pods_from_manifest(text.replace("SPEC", SPEC))
    assert str(caught.value).startswith(message)


AMOUNT = "spec.containers[0].resources.limits"
NODES = "{kind: Job, metadata: {name: j}, spec: {parallelism: $NUM_NODES, template: {spec: SPEC}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NODES, "(Job j): spec.parallelism: this is the placeholder $NUM_NODES — replace it"),
        (
            pod_with("{limits: {nvidia.com/gpu: <gpus per node>}}"),
            f"(Pod p): {AMOUNT}.nvidia.com/gpu: this is the placeholder <gpus per node> — replace",
        ),
        (
            pod_with('{limits: {memory: "${MEMORY}Gi"}}'),
            f"(Pod p): {AMOUNT}.memory: this has the placeholder ${{MEMORY}} — replace it",
        ),
        (
            "{kind: Pod, metadata: {name: $USER-job}, spec: SPEC}",
            "metadata.name: this has the placeholder $USER — replace it",
        ),
        (
            "kind: Pod\nspec:\n  containers: {{ .Values.containers }}\n",
            "in line 3; line 3 has the placeholder {{ .Values.containers }} — replace it, or",
        ),
        ("{{- if .Values.on }}\nkind: Pod\n{{- end }}\n", "line 1 has the placeholder {{- if .Val"),
    ],
)
def test_a_placeholder_is_called_that(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        pods_from_manifest(text.replace("SPEC", SPEC))
    assert message in str(caught.value)


def test_a_placeholder_that_kubernetes_takes_is_no_error() -> None:
    command = '"$(NAME)", "${HOME}", "<a>", "{{ .x }}"'
    text = pod_with("{}").replace("image: x", f"image: x, command: [{command}]")
    assert len(pods_from_manifest(text)) == 1
