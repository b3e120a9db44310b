"""Time-slicing in NVIDIA's file: what its device plugin takes is taken, the rest refused."""

import pytest

from nodetopo.errors import InputError
from nodetopo.kernel.settings.policies import TimeSlicing
from tests.kernel.settings.resolving import resolve, said


def sliced(text: str) -> TimeSlicing | None:
    """Return the time-slicing of a file whose ``timeSlicing`` is *text*."""
    slicing: TimeSlicing | None = resolve(f"sharing: {{timeSlicing: {text}}}").settings.time_slicing
    return slicing


def test_time_slicing_of_the_documentation_is_taken() -> None:
    found = resolve(
        """
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: 10
    - name: mig-1g.5gb
      replicas: 2
flags: {migStrategy: mixed}
"""
    )
    assert found.settings.time_slicing == TimeSlicing(
        replicas={"nvidia.com/gpu": 10, "nvidia.com/mig-1g.5gb": 2},
        is_renamed=True,
        fails_requests_greater_than_one=True,
    )
    assert found.settings.mig_strategy == "mixed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{resources: [{name: gpu, replicas: 4.0}]}", {"nvidia.com/gpu": 4}),
        ("{resources: [{name: gpu, replicas: 1_000}]}", {"nvidia.com/gpu": 1000}),
        (
            "{resources: [{name: gpu, replicas: 4}, {name: nvidia.com/gpu, replicas: 3}]}",
            {"nvidia.com/gpu": 4},
        ),
        ("{renameByDefault: null, resources: [{name: gpu, replicas: 2}]}", {"nvidia.com/gpu": 2}),
    ],
)
def test_replicas_are_read_as_nvidias_are(text: str, expected: dict[str, int]) -> None:
    assert sliced(text) == TimeSlicing(replicas=expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("devices: all", ""),
        ("devices: 2", "devices is ignored, as by NVIDIA's device plugin"),
        ("devices: [0, '0:1', MIG-b1028956-cfa2-0990-bf4a-5da9abb51763]", "devices is ignored"),
        ("devices: []", "devices is ignored"),
        ("rename: nvidia.com/gpu.shared", "it is offered as nvidia.com/gpu"),
        ("count: 3", "count: unknown key, ignored: known are name, devices, replicas, rename"),
        ("Replicas: 3", "did you mean 'replicas'?"),
    ],
)
def test_what_nvidias_ignores_of_a_shared_resource_is_said(text: str, words: str) -> None:
    found = said(f"sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: 2, {text}}}]}}}}")
    assert words in found
    assert bool(found) is bool(words)


def test_the_name_that_renaming_gives_needs_no_remark() -> None:
    head = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2, "
    assert said(f"{head} rename: gpu.shared}}]}}}}") == ""
    assert "it is offered as nvidia.com/gpu.shared" in said(f"{head} rename: other}}]}}}}")


def test_a_resource_listed_twice_is_said() -> None:
    text = (
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}, {name: gpu, replicas: 3}]}}"
    )
    assert "resources[1]: nvidia.com/gpu is listed twice; the higher number" in said(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("null", "n.yaml:1:24: sharing.timeSlicing: no resources are listed"),
        ("{}", "no resources are listed"),
        ("{resources: []}", "sharing.timeSlicing.resources: no resources are listed"),
        ("{resources: null}", "no resources are listed"),
        ("{resources: {name: gpu}}", "expected a list, found a mapping"),
        ("{resources: [null]}", "resources[0]: expected a mapping, found nothing"),
        ("{resources: [{replicas: 2}]}", "resources[0]: no `name` is set"),
        ("{resources: [{name: gpu}]}", "resources[0]: no `replicas` are set"),
        ("{resources: [{name: 5, replicas: 2}]}", "name: expected a name such as nvidia.com/gpu"),
        ("{resources: [{name: GPU, replicas: 2}]}", "a name of lower-case letters"),
        ("{resources: [{name: example.com/gpu, replicas: 2}]}", "a name of lower-case letters"),
        ("{resources: [{name: mig-1g.5gb+me, replicas: 2}]}", "a name of lower-case letters"),
        (f"{{resources: [{{name: {'a' * 53}, replicas: 2}}]}}", "longer than 63 characters"),
        ("{resources: [{name: gpu, replicas: '4'}]}", "a number of replicas, found the text '4'"),
        ("{resources: [{name: gpu, replicas: 2.5}]}", "a number of replicas, found 2.5"),
        ("{resources: [{name: gpu, replicas: true}]}", "a number of replicas, found true"),
        (
            "{resources: [{name: gpu, replicas: 1}]}",
            "replicas: expected 2 or more replicas, found 1",
        ),
        ("{resources: [{name: gpu, replicas: null}]}", "a number of replicas, found nothing"),
        ("{resources: [{name: gpu, replicas: 2, devices: some}]}", "found the text 'some'"),
        ("{resources: [{name: gpu, replicas: 2, devices: 0}]}", "how many devices"),
        ("{resources: [{name: gpu, replicas: 2, devices: true}]}", "how many devices"),
        (
            "{resources: [{name: gpu, replicas: 2, devices: [GPU-1]}]}",
            "devices[0]: expected an index",
        ),
        ("{resources: [{name: gpu, replicas: 2, devices: [-1]}]}", "expected an index"),
        ("{resources: [{name: gpu, replicas: 2, rename: A}]}", "rename: expected a name of"),
        ("{renameByDefault: 1, resources: [{name: gpu, replicas: 2}]}", "expected true or false"),
    ],
)
def test_time_slicing_that_nvidias_refuses_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        sliced(text)
    assert words in str(raised.value)
