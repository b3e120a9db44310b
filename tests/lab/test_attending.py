"""The daemon itself, told to follow pods: its metric, its log, and its Events on them."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetopo.components.audit.alignment.loop import LOOK_S
from tests.lab.audited import AuditedNode, account
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.lab

SECRET = "hunter2-of-the-lab"
TOLD_S = 2 * LOOK_S + PATIENCE_S


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    """Return the way in with the rights of the component, which include the other's."""
    return account(cluster, "rejections")


@pytest.fixture
def attended(cluster: Cluster, h100: Node, kubeconfig: Path) -> Iterator[AuditedNode]:
    """Return a node whose daemon ends with the test: the next one wants the usual one."""
    yield AuditedNode(cluster, h100, kubeconfig)
    h100.agent.stop()


def attend(attended: AuditedNode) -> None:
    """Start the daemon anew, told to measure, to tell, and to explain."""
    agent = attended.node.agent
    agent.stop()
    agent.start(
        [
            "--measure-pods",
            "--publish-pod-events",
            "--explain-rejections",
            f"--kubeconfig={attended.kubeconfig}",
            "--log-format=json",
        ]
    )
    wait_for("the daemon is registered", agent.registrations, evidence=attended.node.logs)
    attended.node.wait_allocatable(GPU, 8)


def metrics(node: Node) -> str:
    """Return what the daemon's page of metrics says now."""
    lines = (json.loads(line) for line in node.agent.log_since_start().splitlines() if line)
    url = next(line["url"] for line in lines if line["event"] == "metrics served")
    with urllib.request.urlopen(url, timeout=120) as answer:
        text: str = answer.read().decode()
    return text


def test_the_daemon_counts_tells_and_explains_and_repeats_no_secret(attended: AuditedNode) -> None:
    cluster, node = attended.cluster, attended.node
    loose = guaranteed("loose", node.name, {"cpu": 4, "memory": "1Gi", GPU: 2})
    (container,) = loose["spec"]["containers"]
    container["resources"]["limits"] = {**container["resources"]["limits"], "cpu": "8"}
    container["env"] = [{"name": "PASSWORD", "value": SECRET}]
    wide = guaranteed("wide", node.name, {"cpu": 2, "memory": "1Gi", GPU: 6})
    wide["spec"]["containers"][0]["env"] = [{"name": "NCCL_API_KEY", "value": SECRET}]
    cluster.pods.run(loose)  # is there at the daemon's first look, and told of at the second
    attend(attended)
    cluster.pods.create(wide)
    cluster.pods.wait_phase("wide", "Failed")

    def told() -> bool:
        node.agent.check_running()
        reasons = {"loose": "PodMisaligned", "wide": "RejectionExplained"}
        return all(attended.told(pod, reason) for pod, reason in reasons.items())

    wait_for("both pods are told", told, timeout_s=TOLD_S, evidence=node.logs)

    # The node is judged by a loop of its own.
    wait_for(
        "the node is judged",
        lambda: "node audited" in node.agent.log_since_start(),
        evidence=node.logs,
    )
    page = metrics(node).splitlines()
    assert 'nodetopo_pods_misaligned{reason="shared-cpus"} 1.0' in page
    assert 'nodetopo_pods_measured{verdict="misaligned"} 1.0' in page
    assert 'nodetopo_pods_measured{verdict="aligned"} 0.0' in page
    assert 'nodetopo_rejections_total{outcome="explained"} 1.0' in page
    assert "nodetopo_pod_measurement_errors_total 0.0" in page

    (misaligned,) = attended.told("loose", "PodMisaligned")
    (explained,) = attended.told("wide", "RejectionExplained")
    assert "cpus shared CPUs" in misaligned["message"]
    assert explained["message"].startswith("TopologyAffinityError: ")
    assert {one["source"]["host"] for one in (misaligned, explained)} == {node.name}

    assert any(line.startswith('nodetopo_checks{report="audit",verdict="pass"}') for line in page)
    assert any(line.startswith('nodetopo_check_broken{code="KUB-') for line in page)

    log = node.agent.log_since_start()
    assert "pod misaligned" in log
    assert "rejection explained" in log
    assert SECRET not in log + json.dumps([misaligned, explained])
