"""Pods that a real kubelet rejected, explained on the pod."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodetopo.components.audit.rejections_loop import RejectionsLoop
from nodetopo.kernel.events import PodEventPublisher
from tests.lab.audited import AuditedNode, account
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

REASON = "RejectionExplained"
MAY_BE_DOWN = "its device plugin may have been down"
WAS_DOWN = f"the device plugin of {GPU} was down when the kubelet rejected the pod"
EITHER = "its device plugin was down, or all devices were Unhealthy"


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    """Return the way in with the rights of the component."""
    return account(cluster, "rejections")


@pytest.fixture
def audited(cluster: Cluster, h100: Node, kubeconfig: Path) -> AuditedNode:
    """Return a node under ``single-numa-node``."""
    return AuditedNode(cluster, h100, kubeconfig)


@contextmanager
def running(*loops: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run *loops* as the daemon does."""
    stopping = threading.Event()
    threads = [threading.Thread(target=loop, args=(stopping,)) for loop in loops]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        stopping.set()
        for one in threads:
            one.join(30)


@contextmanager
def explaining(audited: AuditedNode) -> Iterator[tuple[RejectionsLoop, PodEventPublisher]]:
    """Run all the loops."""
    rejections, events = audited.rejections()
    with running(rejections.run, rejections.watch.run, events.run):
        yield rejections, events


def told_anew(audited: AuditedNode) -> tuple[list[str], int]:
    """Let an agent that starts anew explain the pod and write its one Event.

    Return the versions of all Events that tell it, and how many writes the API server took.
    """
    rejections, events = audited.rejections()
    with running(rejections.watch.run):

        def is_explained() -> bool:
            rejections.step()
            return rejections.explained == 1

        wait_for(
            "the pod is explained",
            is_explained,
            evidence=lambda: f"{rejections.watch.problem}; {rejections.given_up} given up",
        )

    def is_written() -> bool:
        events.write_next()
        return not events._queue._waiting

    wait_for("the Event is written or there already", is_written)
    assert events.dropped == 0
    found = [one["metadata"]["resourceVersion"] for one in audited.told("wide", REASON)]
    return found, events.posted


def test_a_pod_that_no_numa_node_can_hold_gets_the_reason_and_what_would_make_it_fit(
    audited: AuditedNode,
) -> None:
    with explaining(audited) as (rejections, _):
        audited.cluster.pods.create(
            guaranteed("wide", audited.node.name, {"cpu": 2, "memory": "1Gi", GPU: 6})
        )
        audited.cluster.pods.wait_phase("wide", "Failed")
        wait_for(
            "the pod is told why",
            lambda: audited.told("wide", REASON),
            evidence=lambda: f"{rejections.watch.problem} {rejections.given_up}",
        )
        (event,) = audited.told("wide", REASON)
        why, found, changes = event["message"].partition(" Any one of these would make it fit: ")
        assert why.startswith("TopologyAffinityError: ")
        assert GPU in why
        assert found
        assert "best-effort" in changes
        assert rejections.watch.problem is None


def test_a_restarted_agent_writes_no_second_event(audited: AuditedNode) -> None:
    audited.cluster.pods.create(
        guaranteed("wide", audited.node.name, {"cpu": 2, "memory": "1Gi", GPU: 6})
    )
    audited.cluster.pods.wait_phase("wide", "Failed")
    first, writes = told_anew(audited)
    assert (len(first), writes) == (1, 1)
    assert told_anew(audited) == (first, 0)


def test_a_pod_that_was_refused_for_another_reason_is_left_alone(audited: AuditedNode) -> None:
    pods = audited.cluster.pods
    stray = guaranteed("stray", "another-node", {"cpu": 1, "memory": "64Mi"})
    stray["spec"]["nodeName"] = audited.node.name  # past the scheduler
    pods.create(stray)
    pods.wait_phase("stray", "Failed")
    pods.create(guaranteed("wide", audited.node.name, {"cpu": 2, "memory": "1Gi", GPU: 6}))
    pods.wait_phase("wide", "Failed")
    with explaining(audited) as (rejections, _):
        wait_for("a pod is told why", lambda: audited.told("wide", REASON))
        assert (rejections.explained, rejections.given_up) == (1, 0)
    assert pods.get("stray")["status"]["reason"] == "NodeAffinity"
    assert audited.told("stray", REASON) == []


@pytest.mark.parametrize(
    ("machine", "reason", "cause"),
    [
        (
            "h100",
            "TopologyAffinityError",
            f"it was rejected before this agent offered {GPU}: {MAY_BE_DOWN}",
        ),
        (
            "v100",
            "UnexpectedAdmissionError",
            f"the kubelet had no healthy {GPU} when it rejected the pod: {EITHER}",
        ),
    ],
)
def test_a_pod_that_was_rejected_while_the_daemon_was_down_is_told_so(
    cluster: Cluster,
    kubeconfig: Path,
    request: pytest.FixtureRequest,
    *,
    machine: str,
    reason: str,
    cause: str,
) -> None:
    node: Node = request.getfixturevalue(machine)
    node.agent.kill()
    wait_for("the kubelet lost the plugin", lambda: not node.healthy(GPU), evidence=node.logs)
    early = guaranteed("early", node.name, {"cpu": 1, "memory": "64Mi", GPU: 2})
    early["spec"]["nodeName"] = node.name  # the scheduler can know already
    cluster.pods.create(early)
    cluster.pods.wait_phase("early", "Failed")
    assert cluster.pods.get("early")["status"]["reason"] == reason
    node.agent.start(("--explain-rejections", "--kubeconfig", str(kubeconfig)))
    told = AuditedNode(cluster, node, kubeconfig)
    wait_for("the pod is told why", lambda: told.told("early", REASON), evidence=node.logs)
    (event,) = told.told("early", REASON)
    # Which of the two is known depends on whether the daemon starts within the second of the
    # rejection, whose time has no fractions.
    assert event["message"] in {
        f"{reason}: by now the kubelet would admit it: {text}" for text in (cause, WAS_DOWN)
    }
    node.agent.kill()  # without the rights of the others
    node.agent.start()
