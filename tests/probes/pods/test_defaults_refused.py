"""Resources that the API server refuses, so that there is nothing to audit or to admit."""

import pytest

from agent.errors import InputError
from agent.model.pod import Pod
from agent.probes.pods.manifest import pods_from_manifest

RANGE = """
kind: LimitRange
metadata: {name: r}
spec: {limits: [{type: Container, default: {cpu: 2, nvidia.com/gpu: 1}}]}
---
"""


def read(resources: str, *, before: str = "", containers: str = "containers") -> Pod:
    """Return the pod whose container has *resources*, behind the document *before*."""
    listed = f"{containers}: [{{name: c, resources: {resources}}}]"
    (pod,) = pods_from_manifest(f"{before}{{kind: Pod, metadata: {{name: p}}, spec: {{{listed}}}}}")
    return pod


@pytest.mark.parametrize("written", ["0.5", "1500m", '"500m"', "1e-1"])
@pytest.mark.parametrize("part", ["requests", "limits"])
def test_a_part_of_a_device_is_refused(part: str, written: str) -> None:
    with pytest.raises(InputError) as caught:
        read(f"{{{part}: {{nvidia.com/gpu: {written}}}}}", containers="initContainers")
    stated = written.strip('"').replace("1e-1", "0.1")
    assert str(caught.value) == (
        f"document 1 (Pod p): spec.initContainers[0].resources.{part}.nvidia.com/gpu: "
        f"the API server takes whole numbers of devices, not {stated}"
        " — ask for whole devices; a part of a GPU is a MIG device or a shared replica"
    )


def test_a_part_of_a_device_is_refused_in_a_template_too() -> None:
    spec = "{containers: [{name: c, resources: {limits: {a.b/c: 0.5}}}]}"
    job = f"{{kind: Job, metadata: {{name: j}}, spec: {{template: {{spec: {spec}}}}}}}"
    with pytest.raises(
        InputError, match=r"spec\.template\.spec\.containers\[0\]\.resources\.limits"
    ):
        pods_from_manifest(job)


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        (
            "{requests: {a.b/gpu: 2}}",
            "requests.a.b/gpu without a limit — set limits.a.b/gpu to the same amount",
        ),
        (
            "{requests: {a.b/gpu: 1}, limits: {a.b/gpu: 2}}",
            "requests.a.b/gpu that differs from limits.a.b/gpu — make the two equal",
        ),
        (
            "{requests: {hugepages-2Mi: 2Mi, cpu: 1}}",
            "requests.hugepages-2Mi without a limit — set limits.hugepages-2Mi to the same amount",
        ),
        (
            "{requests: {cpu: 8}, limits: {cpu: 4}}",
            "requests.cpu above limits.cpu — lower the request or raise the limit",
        ),
    ],
)
def test_a_request_that_does_not_go_with_its_limit_is_refused(resources: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read(resources)
    assert str(caught.value) == f"default/p container c: the API server refuses {problem}"


def test_limits_of_a_limit_range_count() -> None:
    pod = read("{requests: {nvidia.com/gpu: 1}}", before=RANGE)
    assert [one.limits for one in pod.containers] == [{"cpu": 2000, "nvidia.com/gpu": 1}]
    with pytest.raises(InputError, match=r"requests\.cpu above limits\.cpu"):
        read("{requests: {cpu: 3}}", before=RANGE)


@pytest.mark.parametrize("name", ["gpu", "nvidia-gpu", "gpus", "pods"])
def test_a_resource_that_no_container_can_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="the API server knows no such resource of a container"):
        read(f"{{limits: {{{name}: 1}}}}")


def test_what_the_server_takes_is_read() -> None:
    pod = read(
        "{requests: {cpu: 500m, memory: 0.5, ephemeral-storage: 1Gi},"
        " limits: {cpu: 1.5, hugepages-1Gi: 1Gi, kubernetes.io/odd: 0.5, nvidia.com/gpu: 1.0}}"
    )
    assert [(one.limits or {})["nvidia.com/gpu"] for one in pod.containers] == [1]
