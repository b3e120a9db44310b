"""Requests and limits that the API server refuses, and how the message helps."""

import pytest

from nodetopo.errors import InputError
from nodetopo.model.pod import Pod
from nodetopo.probes.pods.manifest import pods_from_manifest

RANGE = """
kind: LimitRange
metadata: {name: r}
spec: {limits: [{type: Container, default: {cpu: 2, nvidia.com/gpu: 1}}]}
---
"""


def read(resources: str, *, before: str = "", whole: str = "{}") -> Pod:
    """Return the pod whose container has *resources*, behind the document *before*."""
    spec = f"containers: [{{name: c, image: x, resources: {resources}}}], resources: {whole}"
    (pod,) = pods_from_manifest(f"{before}{{kind: Pod, metadata: {{name: p}}, spec: {{{spec}}}}}")
    return pod


@pytest.mark.parametrize("written", ["0.5", "1500m", '"500m"', "1e-1"])
@pytest.mark.parametrize("part", ["requests", "limits"])
def test_a_part_of_a_device_is_refused(part: str, written: str) -> None:
    with pytest.raises(InputError) as caught:
        read(f"{{{part}: {{nvidia.com/gpu: {written}}}}}")
    stated = {"0.5": "500m", "1e-1": "100m"}.get(written, written.strip('"'))
    assert str(caught.value) == (
        f"document 1 (Pod p): spec.containers[0].resources.{part}.nvidia.com/gpu: "
        f"the API server refuses '{stated}': must be an integer"
        " — ask for whole devices; a part of a GPU is a MIG device or a shared replica"
    )


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        (
            "{requests: {a.b/gpu: 2}}",
            (
                "limits.a.b/gpu: the API server refuses this: Required value: Limit must be set "
                "for non overcommitable resources — set limits.a.b/gpu to the same amount as the "
                "request"
            ),
        ),
        (
            "{requests: {a.b/gpu: 1}, limits: {a.b/gpu: 2}}",
            (
                "requests.a.b/gpu: the API server refuses '1': must be equal to a.b/gpu limit of 2 "
                "— make the two equal"
            ),
        ),
        (
            "{requests: {memory: 8589934592}, limits: {memory: 4Gi}}",
            (
                "requests.memory: the API server refuses '8Gi': must be less than or equal to "
                "memory limit of 4Gi — lower the request or raise the limit"
            ),
        ),
        (
            "{limits: {hugepages-2Mi: 3Mi, cpu: 1}}",
            (
                "limits.hugepages-2Mi: the API server refuses '3Mi': is not positive integer "
                "multiple of hugepages-2Mi — ask for whole pages of 2Mi"
            ),
        ),
        (
            "{limits: {nvidia.com/gpu: -1}}",
            (
                "limits.nvidia.com/gpu: the API server refuses '-1': must be greater than or equal "
                "to 0 — ask for none, or for a positive amount"
            ),
        ),
        (
            "{limits: {gpus: 1}}",
            (
                "limits.gpus: the API server refuses 'gpus': must be a standard resource for "
                "containers — names of devices have a prefix, such as nvidia.com/gpu"
            ),
        ),
    ],
)
def test_the_message_says_where_what_the_server_says_and_what_to_do(
    resources: str, problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(resources)
    assert str(caught.value) == f"document 1 (Pod p): spec.containers[0].resources.{problem}"


def test_less_for_the_whole_pod_than_for_its_containers_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        read("{limits: {memory: 8Gi}}", whole="{requests: {memory: 6Gi}}")
    assert str(caught.value) == (
        "document 1 (Pod p): spec.resources.requests.memory: the API server refuses '6Gi': must be "
        "greater than or equal to aggregate container requests of 8Gi "
        "— raise it, or lower those of the containers"
    )


def test_limits_of_a_limit_range_count() -> None:
    pod = read("{requests: {nvidia.com/gpu: 1}}", before=RANGE)
    assert [one.limits for one in pod.containers] == [{"cpu": 2000, "nvidia.com/gpu": 1}]
    with pytest.raises(InputError, match=r"document 2 .*requests\.cpu: the API server refuses '3'"):
        read("{requests: {cpu: 3}}", before=RANGE)


def test_what_the_server_takes_is_read() -> None:
    pod = read(
        "{requests: {cpu: 500m, memory: 0.5, ephemeral-storage: 1Gi},"
        " limits: {cpu: 1.5, hugepages-1Gi: 1Gi, kubernetes.io/odd: 0.5, nvidia.com/gpu: 1.0}}"
    )
    assert [(one.limits or {})["nvidia.com/gpu"] for one in pod.containers] == [1]
