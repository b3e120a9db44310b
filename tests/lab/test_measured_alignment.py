"""Pods that a real kubelet placed, aligned and not: what is measured is what was arranged."""

import json
from pathlib import Path

import pytest

from nodetopo.components.audit.alignment.loop import MeasuredPods
from nodetopo.components.audit.alignment.record import Alignment, NvlinkSpan, Part, PodAlignment
from tests.lab.audited import AuditedNode, account
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    """Return the way in with the rights of the component."""
    return account(cluster, "pod-events")


@pytest.fixture
def aligning(cluster: Cluster, h100: Node, kubeconfig: Path) -> AuditedNode:
    """Return a node whose managers align all."""
    return AuditedNode(cluster, h100, kubeconfig)


@pytest.fixture
def careless(cluster: Cluster, v100: Node, kubeconfig: Path) -> AuditedNode:
    """Return a node whose Topology Manager has the policy ``none``."""
    return AuditedNode(cluster, v100, kubeconfig)


def nodes(row: PodAlignment) -> tuple[object, object, object]:
    return row.gpu_nodes, row.cpu_nodes, row.memory_nodes


def codes(row: PodAlignment) -> dict[Part, str]:
    return {one.part: one.causes[0].code for one in row.apart}


def test_pods_under_single_numa_node_are_aligned_each_on_its_node(aligning: AuditedNode) -> None:
    for name in ("first", "second"):
        aligning.cluster.pods.run(
            guaranteed(name, aligning.node.name, {"cpu": 16, "memory": "1Gi", GPU: 4})
        )
    rows = aligning.rows()
    assert {name: nodes(row) for name, row in rows.items()} == {
        "first": ((0,), (0,), (0,)),
        "second": ((1,), (1,), (1,)),
    }
    assert {(row.verdict, row.nvlink) for row in rows.values()} == {
        (Alignment.ALIGNED, NvlinkSpan.ALL)
    }
    assert aligning.rows_without_api().keys() == rows.keys()


def test_the_daemon_knows_a_pod_by_the_uid_that_the_api_server_gave_it(
    aligning: AuditedNode,
) -> None:
    pod = aligning.cluster.pods.run(
        guaranteed("job", aligning.node.name, {"cpu": 2, "memory": "1Gi", GPU: 1})
    )
    assert aligning.rows_without_api()["job"].uid == pod["metadata"]["uid"]


def test_a_burstable_pod_shares_its_cpus_on_the_best_of_nodes(aligning: AuditedNode) -> None:
    pod = guaranteed("loose", aligning.node.name, {"cpu": 4, "memory": "1Gi", GPU: 2})
    resources = pod["spec"]["containers"][0]["resources"]
    resources["limits"] = {**resources["limits"], "cpu": "8"}
    aligning.cluster.pods.run(pod)
    row = aligning.rows()["loose"]
    assert (row.gpu_nodes, row.cpu_nodes, row.has_own_cpus) == ((0,), (0, 1), False)
    assert codes(row) == {Part.CPUS: "QOS-001", Part.MEMORY: "QOS-001"}
    assert codes(aligning.rows_without_api()["loose"])[Part.CPUS] == "shared-cpus"


def test_a_fraction_of_a_cpu_costs_a_guaranteed_pod_its_own_cpus(aligning: AuditedNode) -> None:
    aligning.cluster.pods.run(
        guaranteed("fraction", aligning.node.name, {"cpu": "2500m", "memory": "1Gi", GPU: 1})
    )
    row = aligning.rows()["fraction"]
    assert (row.verdict, row.cpu_nodes, row.memory_nodes) == (
        Alignment.MISALIGNED,
        (0, 1),
        row.gpu_nodes,
    )
    assert codes(row) == {Part.CPUS: "QOS-002"}


def test_without_a_policy_the_second_job_gets_gpus_and_cpus_of_different_nodes(
    careless: AuditedNode,
) -> None:
    # Four GPUs that NVLink joins best are on one socket; CPUs are taken from the first that fits.
    for name in ("first", "second"):
        careless.cluster.pods.run(
            guaranteed(name, careless.node.name, {"cpu": 4, "memory": "1Gi", GPU: 4})
        )
    rows = careless.rows()
    assert nodes(rows["first"]) == ((0,), (0,), (0,))
    assert nodes(rows["second"]) == ((1,), (0,), (0,))
    assert rows["first"].verdict is Alignment.ALIGNED
    assert codes(rows["second"]) == {Part.CPUS: "KUB-003", Part.MEMORY: "KUB-003"}


def test_a_whole_machine_with_few_cpus_has_them_on_one_node(careless: AuditedNode) -> None:
    careless.cluster.pods.run(
        guaranteed("all", careless.node.name, {"cpu": 4, "memory": "1Gi", GPU: 8})
    )
    row = careless.rows()["all"]
    assert nodes(row) == ((0, 1), (0,), (0,))
    assert codes(row) == {Part.CPUS: "KUB-003", Part.MEMORY: "KUB-003"}


def test_the_loop_counts_pods_and_tells_of_a_misaligned_one_on_the_pod_once(
    careless: AuditedNode,
) -> None:
    for name in ("first", "second"):
        careless.cluster.pods.run(
            guaranteed(name, careless.node.name, {"cpu": 4, "memory": "1Gi", GPU: 4})
        )
    for _restart in range(2):
        loop, events = careless.auditing()
        for _look in range(3):
            loop.step()
        assert loop.found == MeasuredPods(
            verdicts={"aligned": 1, "misaligned": 1, "unknown": 0}, reasons={"KUB-003": 1}
        )
        for _turn in range(3):
            events.write_next()
        assert events.dropped == 0
    (event,) = careless.told("second", "PodMisaligned")
    assert (event["count"], event["source"]["host"]) == (1, careless.node.name)
    assert "(KUB-003)" in event["message"]
    assert careless.told("first", "PodMisaligned") == []


def test_what_is_measured_has_room_in_an_event(careless: AuditedNode) -> None:
    careless.cluster.pods.run(
        guaranteed("all", careless.node.name, {"cpu": 4, "memory": "1Gi", GPU: 8})
    )
    loop, events = careless.auditing()
    for _look in range(2):
        loop.step()
    events.write_next()
    (event,) = careless.told("all", "PodMisaligned")
    assert "more since" not in event["message"]
    assert json.dumps(event["message"]).count("KUB-003") == 2
