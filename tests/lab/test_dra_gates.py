"""Our DRA driver where the API server drops fields, as Kubernetes 1.34 and 1.35 do by default."""

from collections.abc import Iterator

import pytest

from tests.lab.claims import Claims, pod_with, request, spec
from tests.lab.cluster import Cluster
from tests.lab.control_plane import Alpha
from tests.lab.dra_node import (
    IDS,
    cdi_of,
    dra_lab,
    events,
    prepared,
    published,
    singles,
    singles_of,
    slices,
    start_served,
    versions,
)
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.release import chosen
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_GATES = (
    "DRAPartitionableDevices",
    "DRADeviceTaints",
    "DRADeviceTaintRules",
    "DRAConsumableCapacity",
    "DRAListTypeAttributes",
)


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    del namespaces
    has_gates = not chosen().emulated  # else they are off already, or not known
    with dra_lab("old", Alpha(off=_GATES if has_gates else ())) as lab:
        yield lab


@pytest.fixture
def node(lab: Cluster) -> Node:
    """Return a node whose agent insists on sets, which this API server cannot keep apart."""
    node = lab.nodes["old"]
    start_served(node, "--dra-devices=sets", "--publish-events")
    wait_for("slices are published", lambda: slices(lab), evidence=node.logs)
    return node


def test_single_gpus_are_published_nothing_is_rewritten_and_unhealthy_ones_are_left_out(
    lab: Cluster, node: Node
) -> None:
    assert published(lab).keys() == singles(lab, IDS), "no sets that overlap"
    wait_for("an Event", lambda: "SliceFieldsDropped" in events(lab, node), evidence=node.logs)

    claims = Claims(lab.api)
    claims.create("four", spec(singles_of(4)))
    lab.pods.run(pod_with("four", node.name, "four"))
    used = cdi_of(node, "four")
    claims.create("pair", spec(request(2)))
    lab.pods.create(pod_with("pair", node.name, "pair"))
    claims.create("rest", spec(singles_of(4)))
    lab.pods.run(pod_with("rest", node.name, "rest"))
    assert set(cdi_of(node, "rest")) == set(IDS) - set(used)
    assert lab.pods.phase("pair") == "Pending", "the scheduler has no set to allocate"
    lab.pods.delete("rest")
    wait_for("it is given up", lambda: prepared(node) == set(used), evidence=node.logs)

    spare = next(gpu for gpu in IDS if gpu not in used)
    node.agent.xid(IDS.index(spare), 79)
    wait_for("it is left out", lambda: len(published(lab)) == 7, evidence=node.logs)
    assert not singles(lab, [spare])

    before = versions(lab)
    lab.pods.run(guaranteed("plain", node.name, {"cpu": 1, "memory": "64Mi"}))
    lab.pods.delete("plain")
    assert versions(lab) == before, "nothing is written back that the server dropped"


def test_the_extended_resource_needs_its_own_gate_alone(lab: Cluster, node: Node) -> None:
    lab.pods.delete_all()
    two = guaranteed("two", node.name, {"cpu": 1, "memory": "64Mi", GPU: 2})
    if chosen().emulated:  # DRAExtendedResource is off, too
        lab.pods.create(two)
        wait_for(
            "the scheduler has none",
            lambda: any(f"Insufficient {GPU}" in it["message"] for it in lab.pods.events("two")),
            evidence=node.logs,
        )
    else:
        lab.pods.run(two)
        assert len(cdi_of(node, "two")) == 2
