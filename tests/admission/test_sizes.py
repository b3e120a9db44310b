"""Which sizes fit now: the same answers as `admit` gives for such pods, and none without inputs."""

import pytest
from msgspec.structs import replace

from nodetopo.admission.admit import admit
from nodetopo.admission.sizes import admitted_sizes
from nodetopo.machines.bundled import machine
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from tests.admission.held_gpus import GPU, pod, with_kubelet


def held(*counts: int, name: str = "dgx-h100") -> Snapshot:
    """Return a machine on which a pod holds each number of GPUs, the first ones first."""
    node = machine(name)
    ids = iter([gpu.id for gpu in node.gpus])
    pods = [pod(f"p{at}", [next(ids) for _ in range(count)]) for at, count in enumerate(counts)]
    return with_kubelet(node, pods)


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("counts", [(), (1,), (3, 2), (4, 4)])
def test_each_size_is_answered_as_a_manifest_would_be(policy: str, counts: tuple[int, ...]) -> None:
    node = held(*counts)
    assert node.kubelet is not None
    node = replace(node, kubelet=replace(node.kubelet, topology_manager_policy=policy))
    for answer in admitted_sizes(node, GPU, range(1, 10)):
        amounts = {GPU: answer.size}
        asked = Pod(
            namespace="default",
            name="asked",
            containers=(Container(name="main", requests=amounts, limits=amounts),),
        )
        (expected,) = admit(node, [asked]).pods
        assert (answer.admitted, answer.reason) == (expected.admitted, expected.reason)
        assert answer.missing == ()


def test_the_nodes_of_the_merged_hint_are_named() -> None:
    answers = admitted_sizes(held(3), GPU, (1, 2, 5))
    assert [one.numa_nodes for one in answers] == [(0,), (1,), None]


@pytest.mark.parametrize(
    "lacking",
    [{"kubelet": None}, {"offer": None}, {"pods": None, "kubelet_state": None}],
    ids=["settings", "offer", "pods"],
)
def test_without_an_input_no_size_is_answered(lacking: dict[str, None]) -> None:
    answers = admitted_sizes(replace(held(), **lacking), GPU, (1, 2))
    assert [one.admitted for one in answers] == [None, None]
    assert all(one.missing for one in answers)


def test_a_resource_that_the_kubelet_does_not_have_is_not_answered() -> None:
    (answer,) = admitted_sizes(held(), "nvidia.com/mig-1g.10gb", (1,))
    assert answer.admitted is None
    assert answer.missing


def test_no_sizes_are_no_answers() -> None:
    assert admitted_sizes(held(), GPU, ()) == ()
