"""``admit`` against whole kubelets: what it says of a pod is what then becomes of the pod."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.budget import cases
from tests.lab.admission_live import AskedNode
from tests.lab.cluster import Cluster
from tests.lab.kubelet import Policies
from tests.lab.pods import GPU
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_ROUNDS = cases(20, 60)
_NODES = {
    "asked-single": (
        "h100x8-nvswitch-2numa-8cx7",
        "dgx-h100",
        Policies(topology="single-numa-node", cpu_options={"full-pcpus-only": "true"}),
    ),
    "asked-pod": (
        "h100x8-nvswitch-2numa-8cx7",
        "dgx-h100",
        Policies(
            topology="restricted", scope="pod", cpu_options={"strict-cpu-reservation": "true"}
        ),
    ),
    "asked-spread": (
        "h100x8-nvswitch-2numa-8cx7",
        "dgx-h100",
        Policies(topology="restricted", cpu_options={"distribute-cpus-across-numa": "true"}),
    ),
    "asked-best": (
        "v100x8-cubemesh-2numa-4cx4",
        "dgx-1v",
        Policies(topology="best-effort", topology_options={"prefer-closest-numa-nodes": "true"}),
    ),
}


@pytest.fixture
def asked(cluster: Cluster) -> Iterator[list[AskedNode]]:
    """Return a node for each combination of settings, empty and offering all its GPUs."""
    with ExitStack() as stack:
        for name in _NODES:
            stack.callback(cluster.remove_node, name)
        stack.callback(cluster.pods.delete_all)
        nodes = cluster.add_nodes({name: (it[0], it[2]) for name, it in _NODES.items()})
        found = []
        for seed, node in enumerate(nodes):
            node.agent.start()
            found.append(AskedNode(cluster, node, _NODES[node.name][1], seed))
        for one in found:
            one.node.wait_allocatable(GPU, len(one.snapshot().gpus))
        yield found


def test_every_pod_becomes_what_admit_said_it_would(
    cluster: Cluster, asked: list[AskedNode]
) -> None:
    reasons: dict[str | None, int] = {}
    for _ in range(_ROUNDS):
        pods = [one.next_pod() for one in asked]
        _wait_forgotten(cluster, asked)
        ours = [one.predict(pod) for one, pod in zip(asked, pods, strict=True)]
        for pod in pods:
            cluster.pods.create(pod)
        for one, pod, answer in zip(asked, pods, ours, strict=True):
            found = one.verdict(pod["metadata"]["name"])
            assert found == answer, f"{pod['metadata']['name']}: {pod['spec']}"
            reasons[found.reason] = reasons.get(found.reason, 0) + 1
    assert sum(reasons.values()) == _ROUNDS * len(_NODES)
    assert {None, "TopologyAffinityError", "UnexpectedAdmissionError"} <= reasons.keys()


def _wait_forgotten(cluster: Cluster, asked: list[AskedNode]) -> None:
    """Wait until no kubelet lists a pod that is gone: each hears of it from the API server."""

    def still_listed() -> set[str]:
        listed = {pod.name for one in asked for pod in one.node.pod_resources()}
        return listed - {pod["metadata"]["name"] for pod in cluster.pods.all()}

    wait_for("the kubelets forget who is gone", lambda: not still_listed())
