"""Fingerprints of pods, against those of the library that the scheduler plugin uses."""

import pytest

from nodetopo.components.zones.node_resource_topology import fingerprint
from nodetopo.model.node import PodHolding
from nodetopo.model.numa import CpuSet

MANY = [(f"team-{n % 7}", f"a-rather-long-name-of-a-pod-that-a-job-made-{n}") for n in range(300)]
FEW = [("kube-system", "kube-proxy-x7k2p"), ("ml", "train-0"), ("ml", "train-1")]


def pods(names: list[tuple[str, str]]) -> list[PodHolding]:
    return [PodHolding(namespace=namespace, name=name) for namespace, name in names]


# Sign() of github.com/k8stopologyawareschedwg/podfingerprint v0.2.2.
@pytest.mark.parametrize(
    ("names", "sign"),
    [
        ([], "pfp0v001ef46db3751d8e999"),
        ([("default", "a")], "pfp0v00173ac1f6debaedf3d"),
        (FEW, "pfp0v00194bd8015db79c346"),
        ([("", "")], "pfp0v001c47d32effa0690e8"),
        (MANY, "pfp0v001b04ca64bc1ff556c"),
    ],
    ids=["none", "one", "few", "nameless", "many"],
)
def test_it_is_what_the_scheduler_computes(names: list[tuple[str, str]], sign: str) -> None:
    assert fingerprint(pods(names)) == sign


def test_the_order_of_the_pods_does_not_matter() -> None:
    assert fingerprint(pods(MANY[::-1])) == fingerprint(pods(MANY))


def test_what_a_pod_holds_does_not_matter() -> None:
    (plain,) = pods([("default", "a")])
    pinned = PodHolding(namespace="default", name="a", cpus=CpuSet.parse("0-3"))
    assert fingerprint([pinned]) == fingerprint([plain])
