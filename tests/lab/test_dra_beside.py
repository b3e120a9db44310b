"""Our DRA driver beside others that give out the same GPUs: device plugins, and another driver."""

from collections.abc import Iterator

import pytest

from tests.lab.claims import SLICES, Claims, pod_with, spec
from tests.lab.cluster import Cluster
from tests.lab.dra_node import (
    IDS,
    SNAPSHOT,
    cdi_of,
    dra_lab,
    empty,
    events,
    out_of_reach,
    published,
    singles_of,
    slices,
    start,
    start_served,
    taints,
)
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for
from tests.tools.cluster.export.dra_machines import slices as nvidia_slices

pytestmark = pytest.mark.lab

_NAME = "both"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    del namespaces
    with dra_lab(_NAME) as lab:
        yield lab


@pytest.fixture
def node(lab: Cluster) -> Iterator[Node]:
    """Return a node without slices and without an agent; the test starts one."""
    node = lab.nodes[_NAME]
    yield node
    theirs = [it for it in lab.api.get(SLICES)["items"] if it["spec"]["driver"] != "nodetopo.io"]
    for each in theirs:
        lab.api.delete(f"{SLICES}/{each['metadata']['name']}")
    node.agent.stop()
    start_served(node)
    empty(lab, node)
    node.agent.stop()
    for each in slices(lab):
        lab.api.delete(f"{SLICES}/{each['metadata']['name']}")


def test_nothing_is_published_before_it_is_known_which_gpus_pods_have(
    lab: Cluster, node: Node
) -> None:
    """A switch from the device plugin to DRA, while the kubelet does not answer."""
    start(node, "--device-list-strategy=envvar", is_on=False)
    node.wait_allocatable(GPU, 8)
    # The class of our driver takes the resource unless the node has it: the pod names its node.
    pod = guaranteed("old", node.name, {"cpu": 1, "memory": "64Mi", GPU: 4})
    del pod["spec"]["nodeSelector"]
    pod["spec"]["nodeName"] = node.name
    lab.pods.run(pod)
    held = set(node.given("old")["work"])
    node.agent.stop()

    answers = node.host / "answers.sock"
    start_served(node, f"--pod-resources-socket={answers}")
    claims = Claims(lab.api)
    claims.create("eight", spec(singles_of(8)))
    lab.pods.create(pod_with("eight", node.name, "eight"))
    wait_for(
        "it says why nothing is published",
        lambda: "GPUs in use not known" in node.agent.log_since_start(),
        evidence=node.logs,
    )
    wait_for(
        "its slices are known to be missing for that",
        lambda: "slices not published" in node.agent.log_since_start(),
        evidence=node.logs,
    )
    assert slices(lab) == []
    answers.symlink_to(node.pod_resources_socket)
    wait_for("slices are published", lambda: slices(lab), evidence=node.logs)
    assert out_of_reach(lab, "held") == held
    claims.create("four", spec(singles_of(4)))
    lab.pods.run(pod_with("four", node.name, "four"))
    assert set(cdi_of(node, "four")) == set(IDS) - held
    assert lab.pods.phase("eight") == "Pending"
    lab.pods.delete("old")
    wait_for("they are free again", lambda: not out_of_reach(lab, "held"), evidence=node.logs)


def test_gpus_that_another_driver_publishes_take_no_new_claims(lab: Cluster, node: Node) -> None:
    start_served(node, "--publish-events")
    wait_for("slices are published", lambda: slices(lab), evidence=node.logs)
    (whole,) = nvidia_slices(SNAPSHOT, _NAME)
    devices = [
        it for it in whole["spec"]["devices"] if it["name"] in {f"gpu-{n}" for n in range(4)}
    ]
    assert len(devices) == 4
    lab.api.create(SLICES, {**whole, "spec": {**whole["spec"], "devices": devices}})
    wait_for(
        "no claim can have their GPUs",
        lambda: out_of_reach(lab, "published-twice") == set(IDS[:4]),
        evidence=node.logs,
    )
    found = taints(lab, "published-twice")
    assert {it["value"] for it in found.values()} <= {"gpu.nvidia.com"}
    wait_for("an Event", lambda: "GpusPublishedTwice" in events(lab, node), evidence=node.logs)
    claims = Claims(lab.api)
    claims.create("eight", spec(singles_of(8)))
    lab.pods.create(pod_with("eight", node.name, "eight"))
    claims.create("four", spec(singles_of(4)))
    lab.pods.run(pod_with("four", node.name, "four"))
    assert set(cdi_of(node, "four")) == set(IDS[4:])
    assert lab.pods.phase("eight") == "Pending"

    lab.api.delete(f"{SLICES}/{whole['metadata']['name']}")
    wait_for("all are free", lambda: not out_of_reach(lab, "published-twice"), evidence=node.logs)
    wait_for("an Event", lambda: "GpusPublishedOnce" in events(lab, node), evidence=node.logs)
    lab.pods.delete("four")
    lab.pods.wait_phase("eight", "Running")
    assert len(published(lab)) >= 8
