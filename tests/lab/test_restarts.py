"""Deaths of the kubelet and of the agent, and what must survive them."""

import pytest
from msgspec.structs import replace

from nodetopo.components.labels.catalogue import labels
from nodetopo.machines.bundled import machine
from tests.lab.audit import moment
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

LABELS = labels(replace(machine("dgx-h100"), node="h100"))
_JOB: dict[str, str | int] = {"cpu": 2, "memory": "64Mi", GPU: 2}


def test_a_new_kubelet_gets_the_gpus_back(cluster: Cluster, h100: Node) -> None:
    _restart_kubelet(h100)

    h100.wait_allocatable(GPU, 8)
    # Until it has heard from the API server, a new kubelet counts the GPUs of pods that are
    # gone as taken (1.36 devicemanager, UpdateAllocatedDevices); once a pod runs, it has.
    cluster.pods.run(guaranteed("plain", "h100", {"cpu": 1, "memory": "64Mi"}))
    # All GPUs, taken, prove that the number is not the old kubelet's.
    for name in ("first", "second"):
        cluster.pods.run(guaranteed(name, "h100", {**_JOB, GPU: 4}))


def test_a_pod_runs_on_with_its_gpus_under_a_new_kubelet(cluster: Cluster, h100: Node) -> None:
    cluster.pods.run(guaranteed("job", "h100", _JOB))
    before = h100.pod_resources()

    _restart_kubelet(h100)

    after = wait_for("the new kubelet lists the pod", h100.pod_resources, evidence=h100.logs)
    assert (cluster.pods.phase("job"), after) == ("Running", before)


def test_a_new_agent_changes_no_label_and_no_running_pod(cluster: Cluster, h100: Node) -> None:
    h100.wait_labels(LABELS)
    running = cluster.pods.run(guaranteed("job", "h100", _JOB))["status"]["startTime"]
    before = (h100.labels(), h100.pod_resources())
    h100.agent.kill()
    end = moment()

    def asked(verb: str) -> int:
        return cluster.control_plane.agent_verbs("h100", end).count(verb)

    h100.agent.start()
    wait_for("the new agent has looked at the Node", lambda: asked("get"))
    # A label that is put back by the only write proves that the first look was over without one.
    without = {"metadata": {"labels": {"nvidia.com/gpu.count": None}}}
    cluster.api.merge("/api/v1/nodes/h100", without)
    h100.wait_labels(LABELS)
    wait_for("the write is in the audit log", lambda: asked("patch"))

    h100.wait_allocatable(GPU, 8)
    status = cluster.pods.get("job")["status"]
    assert asked("patch") == 1
    assert (h100.labels(), h100.pod_resources()) == before
    assert (status["phase"], status["startTime"]) == ("Running", running)


def test_a_new_agent_serves_the_next_pod(cluster: Cluster, h100: Node) -> None:
    cluster.pods.run(guaranteed("first", "h100", _JOB))

    h100.agent.kill()
    h100.agent.start()
    wait_for("the new agent registered", h100.agent.registrations, evidence=h100.logs)
    h100.wait_allocatable(GPU, 8)

    assert cluster.pods.run(guaranteed("second", "h100", _JOB))["status"]["phase"] == "Running"


def _restart_kubelet(node: Node) -> None:
    """Crash the kubelet, start it, and wait until the agent has registered again."""
    before = node.agent.registrations()
    node.kill_kubelet()
    node.start_kubelet()
    wait_for(
        "the agent registered with the new kubelet",
        lambda: node.agent.registrations() > before,
        evidence=node.logs,
    )
