"""An upgrade of a node's agent: for some seconds two processes serve our DRA driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.claims import Claims, pod_with, request, spec
from tests.lab.cluster import Cluster
from tests.lab.dra_node import (
    cdi_of,
    dra_lab,
    empty,
    paths,
    prepared,
    settle,
    singles_of,
    start_served,
    versions,
    wait_served,
    wait_sets,
)
from tests.lab.machine_node import Node
from tests.lab.node_agent import NodeAgent
from tests.lab.pods import guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_ROLLOUTS = 3


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    del namespaces
    with dra_lab("up") as lab:
        yield lab


@pytest.fixture
def node(lab: Cluster) -> Iterator[Node]:
    """Return a node whose agent publishes sets."""
    node = lab.nodes["up"]
    start_served(node, "--dra-devices=sets")
    wait_sets(lab, node, are_there=True)
    yield node
    node.agent.end()
    start_served(node)
    empty(lab, node)
    node.agent.stop()


def newer(node: Node, home: Path, *flags: str) -> NodeAgent:
    """Start another daemon of *node* with the same state; return it once it serves."""
    home.mkdir()
    agent = node.another_agent(home.name, home)
    state = f"--health-file={node.agent.state / 'health.json'}"
    agent.start([*paths(node), "--dra", state, *flags])
    wait_served(node, agent)
    return agent


def pass_time(lab: Cluster, node: Node) -> None:
    """Let daemons and kubelet do what takes them some steps."""
    lab.pods.run(guaranteed("plain", node.name, {"cpu": 1, "memory": "64Mi"}))
    lab.pods.delete("plain")


def test_only_the_newest_process_writes_slices(lab: Cluster, node: Node, tmp_path: Path) -> None:
    Claims(lab.api).create_template("one", spec(singles_of(1)))
    Claims(lab.api).create_template("pair", spec(request(2)))
    lab.pods.run(pod_with("first", node.name, "one", is_template=True))
    new = newer(node, tmp_path / "second", "--dra-devices=gpus")
    wait_sets(lab, node, are_there=False)
    lab.pods.run(pod_with("second", node.name, "one", is_template=True))
    assert cdi_of(node, "first") != cdi_of(node, "second")
    wait_for("it is settled", lambda: len(prepared(node)) == 2, evidence=node.logs)
    settle(lab, node)
    before = versions(lab)
    pass_time(lab, node)
    assert versions(lab) == before, "neither writes what the other wrote"

    lab.pods.delete("first")
    wait_for("it is given up", lambda: len(prepared(node)) == 1, evidence=node.logs)
    new.kill()
    wait_sets(lab, node, are_there=True)
    lab.pods.run(pod_with("third", node.name, "pair", is_template=True))
    assert not set(cdi_of(node, "third")) & set(cdi_of(node, "second"))

    new = newer(node, tmp_path / "third", "--dra-devices=gpus")
    wait_sets(lab, node, are_there=False)
    settle(lab, node)
    before = versions(lab)
    node.agent.kill()
    pass_time(lab, node)
    assert versions(lab) == before
    lab.pods.delete("third")
    wait_for("it is given up", lambda: len(prepared(node)) == 1, evidence=node.logs)
    new.end()


def test_pods_start_and_end_all_through_rollouts(lab: Cluster, node: Node, tmp_path: Path) -> None:
    Claims(lab.api).create_template("one", spec(singles_of(1)))
    agent = node.agent
    for number in range(_ROLLOUTS):
        lab.pods.create(pod_with(f"before-{number}", node.name, "one", is_template=True))
        after = newer(node, tmp_path / f"rollout-{number}", "--dra-devices=sets")
        lab.pods.create(pod_with(f"during-{number}", node.name, "one", is_template=True))
        agent.stop()
        agent = after
        for name in (f"before-{number}", f"during-{number}"):
            lab.pods.wait_phase(name, "Running")
        given = [cdi_of(node, f"{when}-{number}") for when in ("before", "during")]
        assert len({*given[0], *given[1]}) == 2
        lab.pods.delete(f"before-{number}", f"during-{number}")
    wait_for("all are given up", lambda: not prepared(node), evidence=node.logs)
    agent.end()
