"""A node whose DRA driver stops publishing sets while pods have some."""

from collections.abc import Iterator

import pytest

from tests.lab.claims import Claims, pod_with, request, spec
from tests.lab.cluster import Cluster
from tests.lab.dra_node import (
    IDS,
    cdi_of,
    dra_lab,
    empty,
    singles_of,
    slices,
    start_served,
)
from tests.lab.machine_node import Node
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_NAME = "changed"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    del namespaces
    with dra_lab(_NAME) as lab:
        yield lab


@pytest.fixture
def node(lab: Cluster) -> Iterator[Node]:
    """Return a node with a pod ``pair`` that has two single GPUs by claim."""
    node = lab.nodes[_NAME]
    start_served(node)
    wait_for("slices are published", lambda: slices(lab), evidence=node.logs)
    Claims(lab.api).create("pair", spec(singles_of(2)))
    lab.pods.run(pod_with("pair", node.name, "pair"))
    yield node
    node.agent.stop()
    start_served(node)
    empty(lab, node)
    node.agent.stop()


def test_sets_are_claimed_by_name_after_the_form_has_changed(lab: Cluster, node: Node) -> None:
    node.agent.stop()
    start_served(node, "--dra-devices=sets")
    claims = Claims(lab.api)
    claims.create("set", spec(request(2)))
    wait_for(
        "sets are published",
        lambda: any(it["spec"].get("sharedCounters") for it in slices(lab)),
        evidence=node.logs,
    )
    lab.pods.run(pod_with("set", node.name, "set"))
    used = set(cdi_of(node, "set")) | set(cdi_of(node, "pair"))
    assert len(used) == 4
    node.agent.stop()
    start_served(node, "--dra-devices=gpus")
    wait_for(
        "sets are no longer published",
        lambda: not any(it["spec"].get("sharedCounters") for it in slices(lab)),
        evidence=node.logs,
    )
    claims.create("four", spec(singles_of(4)))
    lab.pods.run(pod_with("four", node.name, "four"))
    assert set(cdi_of(node, "four")) == set(IDS) - used
    claims.create("one", spec(singles_of(1)))
    lab.pods.create(pod_with("one", node.name, "one"))
    lab.pods.delete("set")
    lab.pods.wait_phase("one", "Running")
