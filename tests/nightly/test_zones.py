"""Our zones under the real NodeResourceTopologyMatch: filtered by, and trusted by fingerprint."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count

import pytest

from nodetopo.components.zones.node_resource_topology import attributes, content
from nodetopo.components.zones.publish import NodeZonesPublisher
from nodetopo.components.zones.zones import zones
from nodetopo.kubeapi.apply import connection
from nodetopo.machines.bundled import machine
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.node import NodeOffer, PlacedDevice, PodHolding
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedMemory
from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.pods import GPU, guaranteed
from tests.lab.processes import Processes
from tests.lab.schedulers import crds
from tests.lab.waiting import wait_for
from tests.nightly import zones_scheduler

pytestmark = pytest.mark.nightly

NUMA_NODES = machine("dgx-h100").numa_nodes or ()
POLICIES = KubeletSettings(
    source="test",
    topology_manager_policy="single-numa-node",
    topology_manager_scope="container",
)
OFFER = NodeOffer(
    devices=tuple(
        PlacedDevice(resource=GPU, id=f"GPU-{number}", numa_nodes=(number // 4,))
        for number in range(8)
    ),
    cpus=CpuSet.of(cpu for node in NUMA_NODES for cpu in node.cpus),
    memory=tuple(
        AssignedMemory(kind="memory", size_bytes=64 << 30, numa_nodes=(number,))
        for number in (0, 1)
    ),
)
FOUR: Mapping[str, str | int] = {"cpu": 4, "memory": "4Gi", GPU: 4}
ALL = tuple(range(8))
SPLIT, ROW = (0, 1, 4, 5), (0, 1, 2, 3)
"""Four GPUs, two of each zone and all of one: what is left is the like."""

TRIES = 4


@dataclasses.dataclass
class Desk:
    """Two nodes, their zones, and the scheduler.

    The first has more CPUs free, for schedulers that look at no zones. The scheduler knows of the
    objects that were there when it started.
    """

    cluster: Cluster
    processes: Processes

    def publish(self, node: str, *pods: PodHolding, says: Sequence[PodHolding]) -> None:
        """Publish the zones of *node*, which gave *pods* of it; the fingerprint is of *says*."""
        publisher = NodeZonesPublisher(connection(self.cluster.kubeconfig), node)
        told = attributes(POLICIES, says)
        assert publisher.publish(content(zones(NUMA_NODES, OFFER, pods), told))

    def start_scheduler(self) -> None:
        """Start the scheduler, which this cluster then has until its end."""
        zones_scheduler.start(self.cluster.kubeconfig, self.processes, self.cluster.run_dir)

    def ask(self, name: str, scheduler: str = zones_scheduler.NAME) -> str | None:
        """Create a pod of four GPUs; return its node, ``None`` if the scheduler has none for it.

        It has ``cannot align container`` to say then.
        """
        pod = guaranteed(name, "", FOUR)
        spec = {**pod["spec"], "nodeSelector": {}, "schedulerName": scheduler}
        self.cluster.pods.create({**pod, "spec": spec})
        found = wait_for(f"a verdict on pod {name}", lambda: self._decided(name))
        node: str | None = found["spec"].get("nodeName")
        (condition,) = found["status"]["conditions"]
        assert node is not None or "cannot align container" in condition["message"]
        return node

    def run(self, name: str) -> None:
        """Have the kubelet, which there is none of, say that the pod runs."""
        path = f"/api/v1/namespaces/default/pods/{name}/status"
        self.cluster.api.merge(path, {"status": {"phase": "Running"}})

    def _decided(self, name: str) -> Object | None:
        found = self.cluster.pods.get(name)
        return found if found["status"].get("conditions") else None


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Return a cluster of its own with two nodes, without the scheduler."""
    cluster = Cluster()
    home = cluster.run_dir / "zones"
    home.mkdir()
    processes = Processes(home)
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        stack.callback(processes.stop_all)
        cluster.start()
        crds.install(cluster.api, "node-resource-topology")
        for name, cpus in (("a", "112"), ("b", "56")):
            _add(cluster, name, cpus)
        yield Desk(cluster, processes)


def _add(cluster: Cluster, name: str, cpus: str) -> None:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    cluster.api.create("/api/v1/nodes", body)
    amounts = {"cpu": cpus, "memory": "128Gi", "pods": "110", GPU: "8"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    cluster.api.merge(f"/api/v1/nodes/{name}/status", {"status": status})


def _pod(name: str, gpus: Sequence[int]) -> PodHolding:
    devices = tuple(OFFER.devices[number] for number in gpus)
    return PodHolding(namespace="default", name=name, devices=devices)


def test_four_gpus_go_where_one_zone_has_four_and_without_zones_elsewhere(desk: Desk) -> None:
    desk.publish("a", _pod("x", SPLIT), says=())
    desk.publish("b", _pod("x", ROW), says=())
    desk.start_scheduler()
    assert desk.ask("control", "default-scheduler") == "a"
    desk.cluster.pods.delete("control")
    assert desk.ask("job") == "b"


def test_where_no_zone_has_four_they_wait(desk: Desk) -> None:
    for node in ("a", "b"):
        desk.publish(node, _pod("x", SPLIT), says=())
    desk.start_scheduler()
    assert desk.ask("job") is None


def test_what_it_placed_counts_in_every_zone_until_our_fingerprint_names_it(desk: Desk) -> None:
    desk.publish("a", _pod("x", ALL), says=())
    desk.publish("b", says=())
    desk.start_scheduler()
    assert desk.ask("first") == "b"
    desk.run("first")
    assert desk.ask("too-early") is None
    first = _pod("first", ROW)
    desk.publish("b", first, says=[_pod("another", ())])
    assert [desk.ask(f"mistrusted-{number}") for number in range(TRIES)] == [None] * TRIES
    desk.publish("b", first, says=[first])
    tries = count()
    wait_for("the zones are trusted", lambda: desk.ask(f"later-{next(tries)}") == "b")
