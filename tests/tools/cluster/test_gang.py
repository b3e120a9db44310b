"""Gangs that a person names, and what their pods ask for."""

from typing import Any

import pytest

from nodetopo.errors import InputError
from nodetopo.tools.cluster.cluster import Gang, group
from nodetopo.tools.cluster.demands import pod_gpus


def test_a_group_is_of_nodes_or_of_pods_with_gpus() -> None:
    assert group("18@a/b") == Gang(
        name="--group 18@a/b", size=18, key="a/b", gpus=None, has_whole_nodes=True
    )
    assert group("64x2@a/b") == Gang(name="--group 64x2@a/b", size=64, key="a/b", gpus=2)


@pytest.mark.parametrize("text", ["", "18", "0@a", "18@", "x@a", "18x0@a", "-1@a", "18@a b"])
def test_what_is_no_group_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a group"):
        group(text)


def container(**kinds: object) -> dict[str, Any]:
    return {"resources": {kind: {"nvidia.com/gpu": amount} for kind, amount in kinds.items()}}


CLAIMS = [{"name": "gpus"}]


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        ({"containers": [container(limits="4")]}, 4),
        ({"containers": [container(requests=4)]}, 4),
        ({"containers": [container(limits="4", requests="4"), container(limits=2), {}]}, 6),
        ({"containers": [container(limits=1)], "initContainers": [container(limits=8)]}, 8),
        ({"containers": [container(limits=3)], "initContainers": [container(limits=2)]}, 3),
        ({"containers": [{}]}, 0),
        ({"containers": [{}], "resourceClaims": CLAIMS}, None),
        ({"containers": [container(limits=2)], "resourceClaims": CLAIMS}, 2),
        ({"containers": [container(limits="many")]}, None),
        ({"containers": []}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_pod_asks_for_what_the_scheduler_would_count(spec: object, gpus: int | None) -> None:
    assert pod_gpus({"spec": spec}) == gpus
