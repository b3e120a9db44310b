"""Pods whose CPUs and memory the kubelet gives out as a whole (gate PodLevelResourceManagers)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetopo.components.audit.alignment.record import Alignment, Part
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import pool
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.probes.kubelet.state import cpu_state
from tests.lab.audited import AuditedNode, account
from tests.lab.cluster import Cluster
from tests.lab.kubelet import Policies
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, with_containers

pytestmark = pytest.mark.lab

CPUS, OWN = 16, 4
"""Of the pod, and of the container that has some exclusively."""


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    """Return the way in with the rights of the component."""
    return account(cluster, "pod-events")


GATES = {"PodLevelResourceManagers": True}
GATES_1_36 = {"InPlacePodLevelResourcesVerticalScaling": False}
"""That kubelet resizes such a pod once it runs, and panics here, where pods have no cgroups
(kuberuntime_manager.go, doPodResizeAction)."""


@pytest.fixture(scope="module")
def whole(cluster: Cluster) -> Iterator[Node]:
    """Return a node whose kubelet aligns pods as a whole, from 1.37 on."""
    gates = GATES if cluster.release.kubelet >= (1, 37) else GATES_1_36
    policies = Policies(scope="pod", gates=gates)
    node = cluster.add_node("whole", "h100x8-nvswitch-2numa-8cx7", policies=policies)
    node.agent.start()
    node.wait_allocatable(GPU, 8)
    yield node
    cluster.pods.delete_all()
    cluster.remove_node("whole")


def test_a_container_that_shares_its_pod_s_cpus_is_where_the_pod_is(
    cluster: Cluster, whole: Node, kubeconfig: Path
) -> None:
    pod = with_containers("job", whole.name, [{"cpu": OWN, "memory": "1Gi"}, {GPU: 4}])
    amounts = {"cpu": str(CPUS), "memory": "4Gi"}
    pod["spec"]["resources"] = {"requests": amounts, "limits": amounts}
    uid = cluster.pods.run(pod)["metadata"]["uid"]

    (found,) = whole.pod_resources()
    own, shares = found.containers
    kept = whole.kubelet_dir.joinpath("cpu_manager_state").read_text("utf-8")
    entries = (cpu_state(json.loads(kept)).entries or {}).get(uid)
    (held,) = PodResources(whole.pod_resources_socket).held()
    row = AuditedNode(cluster, whole, kubeconfig).rows()["job"]
    assert (row.container, row.has_own_cpus) == (shares.name, False)
    if cluster.release.kubelet < (1, 37):
        assert (found.cpus, own.cpus, shares.cpus, entries) == (None, CpuSet(), CpuSet(), None)
        assert held.cpus == CpuSet()
        assert {one.part: one.causes[0].code for one in row.apart}[Part.CPUS] == "QOS-003"
        return
    assert entries is not None
    assert (len(found.cpus or ()), len(own.cpus or ()), len(held.cpus)) == (CPUS, OWN, CPUS)
    assert (shares.cpus, pool(found)) == (CpuSet(), entries[shares.name])
    assert sum(one.size_bytes for one in found.memory or () if one.kind == "memory") == 4 << 30
    assert row.cpus == pool(found)
    assert (row.gpu_nodes, row.cpu_nodes, row.memory_nodes) == ((0,), (0,), (0,))
    assert row.verdict is Alignment.ALIGNED
