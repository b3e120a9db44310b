"""Pods with claims whose driver is off, or has no NVML: they end all the same."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.claims import Claims, pod_with, spec
from tests.lab.cluster import Cluster
from tests.lab.dra_node import (
    IDS,
    cdi_of,
    dra_lab,
    empty,
    is_registered,
    prepared,
    singles_of,
    slices,
    start,
    start_served,
    wait_served,
)
from tests.lab.machine_node import Node
from tests.lab.pods import GPU
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_POD = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    del namespaces
    with dra_lab("off") as lab:
        yield lab


@pytest.fixture
def node(lab: Cluster) -> Iterator[Node]:
    """Return a node with a pod ``pair`` that has two GPUs by claim."""
    node = lab.nodes["off"]
    start_served(node)
    wait_for("slices are published", lambda: slices(lab), evidence=node.logs)
    Claims(lab.api).create_template("pair", spec(singles_of(2)))
    lab.pods.run(graceful("pair", node))
    yield node
    node.agent.stop()
    start_served(node)
    empty(lab, node)
    node.agent.stop()


def graceful(name: str, node: Node) -> dict[str, Any]:
    """Return a pod that stays in Terminating until the kubelet has given up its claims."""
    pod = pod_with(name, node.name, "pair", is_template=True)
    return {**pod, "spec": {**pod["spec"], "terminationGracePeriodSeconds": 1}}


def end(lab: Cluster, node: Node, name: str) -> None:
    """Delete a pod with its grace, and wait until it is gone."""
    lab.api.delete(f"{_POD}/{name}", grace_s=1)
    wait_for(f"{name} is gone", lambda: lab.api.find(f"{_POD}/{name}") is None, evidence=node.logs)


def test_a_driver_that_was_turned_off_gives_claims_up_and_publishes_nothing(
    lab: Cluster, node: Node
) -> None:
    held = set(cdi_of(node, "pair"))
    node.agent.stop()
    start(node, "--device-list-strategy=envvar", is_on=False)
    wait_served(node)
    wait_for("the slices are withdrawn", lambda: not slices(lab), evidence=node.logs)
    node.wait_allocatable(GPU, 6)
    assert node.healthy(GPU) == set(IDS) - held
    assert prepared(node) == held
    end(lab, node, "pair")
    wait_for(
        "the driver ends", lambda: "DRA driver ends" in node.agent.log_since_start(),
        evidence=node.logs,
    )  # fmt: skip
    node.wait_allocatable(GPU, 8)
    node.agent.stop()
    start(node, is_on=False)
    node.wait_allocatable(GPU, 8)
    assert not is_registered(node.agent), "there is nothing left to give up"


def test_a_pod_that_was_allocated_before_is_refused_clearly(lab: Cluster, node: Node) -> None:
    node.agent.stop()  # it is allocated, and not prepared
    lab.pods.create(graceful("late", node))
    wait_for("it is allocated", lambda: Claims(lab.api).of_pod("late"), evidence=node.logs)
    start(node, is_on=False)
    wait_served(node)
    wait_for(
        "it is refused",
        lambda: any(
            "dra is off on this node" in (it.get("message") or "") for it in lab.pods.events("late")
        ),
        evidence=lambda: f"{lab.pods.events('late')}\n{node.logs()}",
    )
    end(lab, node, "late")
    end(lab, node, "pair")


def test_claims_are_given_up_without_nvml(lab: Cluster, node: Node) -> None:
    """As after a boot before the driver is installed."""
    node.agent.stop()
    start_served(node, "--nvml-library=/nonexistent/libnvidia-ml.so.1")
    end(lab, node, "pair")
    assert not prepared(node)
