"""Policy ``none`` on a hybrid cube mesh: the plugin alone decides which GPUs a pod gets."""

import pytest

from nodetopo.machines.bundled import machine
from tests.allocation.brute_force import BruteForce
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed

pytestmark = pytest.mark.lab

_V100 = machine("dgx-1v")
_TRUTH = BruteForce(_V100)


@pytest.mark.parametrize("sizes", [(2,), (4,), (1, 2, 4), (2, 4, 2), (1, 1, 2, 4), (4, 2, 2)])
def test_each_pod_gets_the_best_connected_set_of_those_left(
    cluster: Cluster, v100: Node, sizes: tuple[int, ...]
) -> None:
    free = frozenset(gpu.index for gpu in _V100.gpus)
    given, best = [], []
    for number, size in enumerate(sizes):
        cluster.pods.run(
            guaranteed(f"job-{number}", "v100", {"cpu": 1, "memory": "64Mi", GPU: size})
        )
        given.append(_indices(v100, f"job-{number}"))
        best.append(_best(free, size))
        free -= given[-1]

    assert given == best


def test_a_pod_gets_the_best_set_of_what_ended_pods_left_behind(
    cluster: Cluster, v100: Node
) -> None:
    for number in range(4):
        cluster.pods.run(guaranteed(f"old-{number}", "v100", {"cpu": 1, "memory": "64Mi", GPU: 2}))
    free = _indices(v100, "old-0") | _indices(v100, "old-3")
    cluster.pods.delete("old-0", "old-3")

    cluster.pods.run(guaranteed("new", "v100", {"cpu": 1, "memory": "64Mi", GPU: 2}))

    assert _indices(v100, "new") == _best(free, 2)


def _best(free: frozenset[int], size: int) -> frozenset[int]:
    """Return the best set by trying all; the last term of its key is its indices."""
    indices = _TRUTH.answer(free, (), size)
    assert isinstance(indices, tuple)
    return frozenset(indices)


def _indices(node: Node, pod: str) -> frozenset[int]:
    """Return the indices of the GPUs that the kubelet gave to *pod*."""
    ids = {
        name
        for entry in node.pod_resources()
        if entry.name == pod
        for container in entry.containers
        for devices in container.devices or ()
        for name in devices.ids
    }
    return frozenset(gpu.index for gpu in _V100.gpus if gpu.id in ids)
