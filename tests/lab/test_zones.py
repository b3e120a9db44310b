"""Zones and placements of a real kubelet, on a real API server with the schema of zones."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from nodetopo.components.zones.loop import ZonesLoop
from nodetopo.components.zones.node_resource_topology import fingerprint
from nodetopo.model.node import PodHolding
from tests.lab.api import ApiError, Object
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.schedulers import crds
from tests.lab.waiting import wait_for
from tests.lab.zoned import COLLECTION, ZonedNode, account

pytestmark = pytest.mark.lab

GIB = 1 << 30
FINGERPRINT = "nodeTopologyPodsFingerprint"


class Running(Struct, frozen=True):
    """A node and the loop that publishes its zones."""

    at: ZonedNode
    loop: ZonesLoop


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    """Return the documented account's, where the API server knows zones."""
    crds.install(cluster.api, "node-resource-topology")
    return account(cluster)


@pytest.fixture
def running(cluster: Cluster, h100: Node, kubeconfig: Path) -> Iterator[Running]:
    """Return the node, idle, with its zones published."""
    at = ZonedNode(cluster, h100, kubeconfig)
    found = Running(at, at.loop())
    found.at.until(found.loop, lambda: cluster.api.find(at.path) is not None)
    yield found
    cluster.api.delete(at.path)


def test_an_idle_node_has_all_that_its_kubelet_gives(running: Running) -> None:
    zones = running.at.object()["zones"]
    assert [(zone["name"], zone["type"], zone["costs"]) for zone in zones] == [
        ("node-0", "Node", [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 21}]),
        ("node-1", "Node", [{"name": "node-0", "value": 21}, {"name": "node-1", "value": 10}]),
    ]
    free, allowed, all_of_it = map(running.at.amounts, ("available", "allocatable", "capacity"))
    assert free == allowed
    # The kubelet keeps the first core, which has two CPUs, for the system.
    assert [zone["cpu"] for zone in allowed.values()] == [110, 112]
    assert [zone["cpu"] for zone in all_of_it.values()] == [112, 112]
    assert [zone[GPU] for zone in free.values()] == [4, 4]
    reserved = [all_of_it[name]["memory"] - allowed[name]["memory"] for name in free]
    assert [size // GIB for size in reserved] == [0, 0]
    assert reserved[0] - reserved[1] == 600 << 20  # the lab reserves that, of node 0


def test_the_kubelets_policies_are_told_and_whose_node_it_is(running: Running) -> None:
    told = running.at.attributes()
    assert (told["topologyManagerPolicy"], told["topologyManagerScope"]) == (
        "single-numa-node",
        "container",
    )
    (owner,) = running.at.object()["metadata"]["ownerReferences"]
    assert owner["uid"] == running.at.node.object()["metadata"]["uid"]


def test_what_a_pod_got_is_taken_from_its_zone_told_on_the_pod_and_given_back(
    running: Running,
) -> None:
    at, pods = running.at, running.at.cluster.pods
    idle = at.amounts()
    pods.run(guaranteed("job", at.node.name, {"cpu": 16, "memory": "10Gi", GPU: 3}))
    at.until(running.loop, lambda: at.placement("job") is not None and at.amounts() != idle)
    (found,) = json.loads(at.placement("job") or "")
    taken = {"cpu": "16", "memory": str(10 * GIB), GPU: "3"}
    assert found == {"zone": found["zone"], "amount": taken}
    busy = at.amounts()
    expected = {name: idle[found["zone"]][name] - int(amount) for name, amount in taken.items()}
    assert {name: busy[found["zone"]][name] for name in taken} == expected
    (other,) = idle.keys() - {found["zone"]}
    assert busy[other] == idle[other]
    pods.delete("job")
    at.until(running.loop, lambda: at.amounts() == idle)


def test_the_fingerprint_is_that_of_the_pods_which_a_scheduler_knows_to_run(
    running: Running,
) -> None:
    at, pods = running.at, running.at.cluster.pods
    for name in ("a", "b"):
        pods.run(guaranteed(name, at.node.name, {"cpu": "100m", "memory": "64Mi"}))

    def known() -> str:
        return fingerprint(
            PodHolding(namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"])
            for pod in pods.all()
            if pod["status"]["phase"] == "Running" and pod["spec"]["nodeName"] == at.node.name
        )

    at.until(running.loop, lambda: at.attributes()[FINGERPRINT] == known())
    both = at.attributes()[FINGERPRINT]
    pods.delete("a")
    at.until(running.loop, lambda: at.attributes()[FINGERPRINT] == known() != both)


def test_a_pod_that_only_shares_cpus_gets_its_memory_told_and_no_cpus(running: Running) -> None:
    at = running.at
    at.cluster.pods.run(guaranteed("small", at.node.name, {"cpu": "500m", "memory": "1Gi"}))
    at.until(running.loop, lambda: at.placement("small") is not None)
    (found,) = json.loads(at.placement("small") or "")
    assert found["amount"] == {"memory": str(GIB)}


def test_what_does_not_change_is_not_written_after_a_restart_either(running: Running) -> None:
    at = running.at
    at.cluster.pods.run(guaranteed("job", at.node.name, {"cpu": 2, "memory": "1Gi", GPU: 1}))
    at.until(running.loop, lambda: at.placement("job") is not None)
    at.until(running.loop, lambda: at.amounts() != at.amounts("allocatable"))
    before = (_version(at.object()), _written(at.cluster.pods.get("job")))
    again = at.loop()
    for _ in range(3):
        running.loop.step()
        again.step()
    assert (_version(at.object()), _written(at.cluster.pods.get("job"))) == before
    assert again.errors == 0


def test_a_restart_of_the_kubelet_frees_nothing_that_pods_have(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nodetopo.components.zones.loop.GAP_S", 0.0
    )  # whatever is seen is written at once
    monkeypatch.setattr(
        "nodetopo.components.zones.zones.ABSENCE_S", 600.0
    )  # however slow this machine is
    at = running.at
    at.cluster.pods.run(guaranteed("job", at.node.name, {"cpu": 2, "memory": "1Gi", GPU: 2}))
    at.until(running.loop, lambda: at.placement("job") is not None)
    at.until(running.loop, lambda: at.amounts() != at.amounts("allocatable"))
    before = _version(at.object())
    with stepped(running.loop):
        at.node.restart_kubelet()
        wait_for("the kubelet lists the pod again", lambda: at.node.given("job"))
        at.node.wait_allocatable(GPU, 8)
    assert _version(at.object()) == before


@contextmanager
def stepped(loop: ZonesLoop) -> Iterator[None]:
    """Have *loop* look all the time, meanwhile."""
    stopping = threading.Event()

    def look() -> None:
        while not stopping.wait(0.03):  # the kubelet allows 100 questions a second; these are two
            loop.step()
            loop._kubelet.close()  # a kept connection waits a second before it tries again

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield
        finally:
            stopping.set()
        looking.result()


def test_another_producers_object_stays_as_it_is(running: Running) -> None:
    at, api = running.at, running.at.cluster.api
    api.delete(at.path)
    theirs = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": at.node.name},
        "zones": [{"name": "node-0", "type": "Node"}],
        "attributes": [{"name": "topologyManagerPolicy", "value": "none"}],
    }
    before = _version(api.apply(at.path, theirs))
    loop = at.loop()
    loop.step()
    assert loop.left_to == ("lab",)
    assert _version(at.object()) == before


def test_the_schema_refuses_a_zone_without_a_type(running: Running) -> None:
    at = running.at
    broken = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "broken"},
        "zones": [{"name": "node-0"}],
    }
    with pytest.raises(ApiError, match=r"zones\[0\].type: Required value"):
        at.cluster.api.apply(f"{COLLECTION}/broken", broken)


def _version(found: Object) -> str:
    version: str = found["metadata"]["resourceVersion"]
    return version


def _written(pod: Object) -> tuple[object, ...]:
    """Return what was written to *pod*, but for its status, which the kubelet may still report."""
    metadata = pod["metadata"]
    writes = [one for one in metadata["managedFields"] if one.get("subresource") != "status"]
    return metadata["annotations"], writes, pod["spec"]


def test_the_daemon_publishes_zones_and_placements_where_it_is_asked_to(
    cluster: Cluster, h100: Node, kubeconfig: Path
) -> None:
    at = ZonedNode(cluster, h100, kubeconfig)
    h100.agent.stop()
    asked = ["--publish-zones", "--annotate-pods", "--no-publish-labels"]
    h100.agent.start([*asked, f"--kubeconfig={kubeconfig}"])
    try:
        wait_for("the zones are there", lambda: cluster.api.find(at.path))
        h100.wait_allocatable(GPU, 8)
        cluster.pods.run(guaranteed("zoned", h100.name, {GPU: 2}))
        wait_for("the placement is on the pod", lambda: at.placement("zoned"))
        wait_for("its GPUs are taken", lambda: _free_gpus(at) == 6)
    finally:
        h100.agent.kill()
        h100.agent.start()
        cluster.api.delete(at.path)


def _free_gpus(at: ZonedNode) -> int:
    return sum(zone.get(GPU, 0) for zone in at.amounts().values())
