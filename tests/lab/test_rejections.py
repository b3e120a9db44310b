"""Pods that a real kubelet rejected, explained on the pod."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.publish.event_writer import POLL_S
from agent.publish.pod_events import PodEventPublisher
from agent.rejections import Rejections
from tests.lab.audited import AuditedNode, account
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

REASON = "RejectionExplained"


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    """Return the way in with the rights of the component."""
    return account(cluster, "rejections")


@pytest.fixture
def audited(cluster: Cluster, h100: Node, kubeconfig: Path) -> AuditedNode:
    """Return a node under ``single-numa-node``."""
    return AuditedNode(cluster, h100, kubeconfig)


@contextmanager
def explaining(audited: AuditedNode) -> Iterator[tuple[Rejections, PodEventPublisher]]:
    """Run the loops as the daemon does."""
    rejections, events = audited.rejections()
    stopping = threading.Event()
    loops = [
        threading.Thread(target=run, args=(stopping,))
        for run in (rejections.run, rejections.watch.run, events.run)
    ]
    for loop in loops:
        loop.start()
    try:
        yield rejections, events
    finally:
        stopping.set()
        for loop in loops:
            loop.join(30)


def told_anew(audited: AuditedNode) -> list[str]:
    """Let an agent that starts anew explain the pod; return the versions of its Events."""
    with explaining(audited) as (rejections, events):

        def is_over() -> bool:
            return rejections.explained == 1 and bool(audited.told("wide", REASON))

        evidence = f"{rejections.watch.problem}; {events.dropped} dropped"
        wait_for("the pod is explained", is_over, evidence=lambda: evidence)
        threading.Event().wait(3 * POLL_S)  # a second write would come by now
    return [one["metadata"]["resourceVersion"] for one in audited.told("wide", REASON)]


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
    before = told_anew(audited)
    assert told_anew(audited) == before


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
