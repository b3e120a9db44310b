"""What other objects than Nodes cost the API server: ``python -m tests.bench.fleet_objects``.

Real etcd and a real API server with the policies of ``own-node``, and an agent's token for each
node. Each row is one thing that happens once on every node: its requests, the bytes that are
stored, and CPU of both programs. The objects are those that the daemon writes of a DGX H100. A
table in Markdown goes to stdout.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from nodetopo.components.dra.devices import Conditions
from nodetopo.components.dra.form import Form
from nodetopo.components.dra.pool import Pool
from nodetopo.components.dra.slices import changes
from nodetopo.components.zones.node_resource_topology import attributes, content
from nodetopo.components.zones.publish import NodeZonesPublisher
from nodetopo.components.zones.zones import zones
from nodetopo.kernel.events import (
    EventPublisher,
    NodeEvent,
    PodEvent,
    PodEventPublisher,
    Waiting,
    utc_now,
)
from nodetopo.kubeapi.apply import FIELD_MANAGER
from nodetopo.machines.bundled import machine
from nodetopo.model.dra import SLICES
from nodetopo.model.node import NodeOffer, PlacedDevice, PodHolding
from nodetopo.model.numa import CpuSet
from tests.bench.dra_ways import NODE, claimed, json_bytes
from tests.bench.fleet_connection import Connection
from tests.bench.fleet_phases import IDLE_S
from tests.bench.fleet_server import Cost, Server
from tests.bench.fleet_simulation import Fleet, by_verb
from tests.lab.schedulers import crds
from tests.tools.cluster.export.drivers import nvidia_gpus, ours

HEAD = (
    "| what happens, once on each node | requests | KB stored | API server, ms of CPU "
    "| etcd, ms of CPU | KB logged by etcd |\n|---|--:|--:|--:|--:|--:|"
)

_MACHINE = machine("dgx-h100")
_COMPONENTS = ("own-node", "flow-schema", "dra", "zones", "rejections")
_ZONES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
_EVENTS = "/api/v1/namespaces/default/events?fieldSelector=reason"

Act = Callable[[Connection, str], object]
"""Does, as the agent of the node, what a row is about."""


class Row(Struct, frozen=True, kw_only=True):
    """One thing that happens on every node.

    Attributes:
        stored: path of what it leaves, with ``{node}``.
        is_new: whether objects of the kind are deleted before.
        is_ours: whether an agent does it, rather than an administrator.
    """

    title: str
    act: Act
    stored: str
    is_new: bool = False
    is_ours: bool = True


def rows() -> Iterator[Row]:
    """Yield the rows, in an order in which each finds what it needs."""
    slices = f"{SLICES}?fieldSelector=spec.nodeName={{node}}"
    theirs = [nvidia_gpus(_MACHINE, NODE, "main")]
    yield Row(
        title="slices of NVIDIA's driver, first written",
        act=_all(theirs),
        stored=slices,
        is_ours=False,
    )
    for name, form in (("single GPUs", Form(has_sets=False)), ("sets", Form(has_sets=True))):
        first = ours(_MACHINE, NODE, has_sets=form.has_sets)
        yield Row(
            title=f"slices of {name}, first written", act=_all(first), stored=slices, is_new=True
        )
        yield Row(
            title=f"slices of {name}, a claim of 4 GPUs is prepared",
            act=_all(_after_claim(form, first)),
            stored=slices,
        )
    at = f"{_ZONES}/{{node}}"
    yield Row(title="zones, first written", act=_zones(()), stored=at)
    yield Row(title="zones, a pod gets 4 GPUs", act=_zones(_pod()), stored=at)
    yield Row(title="Event about the node", act=_event, stored=f"{_EVENTS}=GpuUnhealthy")
    yield Row(
        title="Event about a rejected pod",
        act=_rejection,
        stored=f"{_EVENTS}=RejectionExplained",
    )


def table(server: Server, fleet: Fleet) -> Iterator[str]:
    """Yield the lines; *fleet* has no running agents."""
    yield HEAD
    idle = _idle(server)
    nodes = tuple(fleet.tokens)
    for each in rows():
        if each.is_new:
            server.api.delete(SLICES)
        fleet.counted()
        before, began = server.cost(), time.monotonic()
        for node in nodes:
            connection = fleet.kept(node)
            if not each.is_ours:
                connection.speak_as(server.api.token)
            each.act(connection, node)
        took_s = time.monotonic() - began
        cost = server.cost().since(before).less(idle, took_s).part(1 / len(nodes))
        asked = sum(by_verb(fleet.counted()).values()) / len(nodes)
        stored = _stored(server, each.stored, nodes)
        yield (
            f"| {each.title} | {asked:.1f} | {stored / 1000:.1f} | {cost.api_s * 1000:.1f} "
            f"| {max(0.0, cost.etcd_s) * 1000:.1f} | {cost.logged / 1000:.1f} |"
        )


def _all(slices: Sequence[Mapping[str, Any]]) -> Act:
    def act(connection: Connection, node: str) -> None:
        for each in slices:
            body = json.loads(json.dumps(each).replace(NODE, node))
            path = f"{SLICES}/{body['metadata']['name']}"
            answer = connection.apply(path, {"fieldManager": FIELD_MANAGER, "force": "true"}, body)
            assert answer.status in (200, 201), answer

    return act


def _after_claim(form: Form, first: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the slices that are written when the best four GPUs are prepared."""
    pool = Pool.of(_MACHINE, _MACHINE.gpus, form=form)
    ids = [gpu.id for gpu in _MACHINE.gpus]
    used = pool.allocator.allocate(available=ids, size=4).chosen
    groups = pool.groups(used, Conditions(), claimed(pool, used))
    observed = {each["metadata"]["name"]: each for each in first}
    return changes(NODE, None, pool.counter_sets, groups, observed).applied


def _zones(held: Sequence[PodHolding]) -> Act:
    offer = NodeOffer(
        devices=tuple(_placed(at) for at in range(len(_MACHINE.gpus))),
        cpus=CpuSet(frozenset(cpu for node in _MACHINE.numa_nodes or () for cpu in node.cpus.cpus)),
    )
    found = zones(_MACHINE.numa_nodes or (), offer, held)
    wanted = content(found, attributes(_MACHINE.kubelet, held))

    def act(connection: Connection, node: str) -> None:
        assert NodeZonesPublisher(lambda: connection, node).publish(wanted)

    return act


def _pod() -> Sequence[PodHolding]:
    devices = tuple(_placed(at) for at in range(4))
    return (PodHolding(namespace="default", name="four", devices=devices),)


def _placed(at: int) -> PlacedDevice:
    gpu = _MACHINE.gpus[at]
    nodes = () if gpu.numa_node is None else (gpu.numa_node,)
    return PlacedDevice(resource="nvidia.com/gpu", id=gpu.id, numa_nodes=nodes)


def _event(connection: Connection, node: str) -> None:
    event = NodeEvent(
        reason="GpuUnhealthy", message="GPU 3 reported XID 79", is_warning=True, key="gpu-3"
    )
    _post(EventPublisher(None, node), connection, event)


def _rejection(connection: Connection, node: str) -> None:
    event = PodEvent(
        reason="RejectionExplained",
        message="4 GPUs and 60 CPUs do not fit one NUMA node: node 0 has 52 CPUs free",
        is_warning=True,
        key=node,
        namespace="default",
        pod=f"job-{node}",
        uid=node,
    )
    _post(PodEventPublisher(None, node), connection, event)


def _post(
    writer: EventPublisher | PodEventPublisher, connection: Connection, event: NodeEvent
) -> None:
    answer = writer.write(connection, Waiting(event=event, count=1, since=0.0, at=utc_now()))
    assert answer.status in (200, 201), answer


def _idle(server: Server) -> Cost:
    before = server.cost()
    time.sleep(IDLE_S)
    return server.cost().since(before).part(1 / IDLE_S)


def _stored(server: Server, path: str, nodes: Sequence[str]) -> float:
    """Return the bytes of what *path* has, for each node."""
    first = nodes[0]
    found = server.api.get(path.format(node=first))
    items = found.get("items", [found])
    share = 1 if "{node}" in path else len(nodes)  # Events of all nodes are in one place
    return json_bytes(items) / share


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agents", type=int, default=500)
    args = parser.parse_args(arguments)
    server = Server(_COMPONENTS)
    try:
        server.start()
        crds.install(server.api, "node-resource-topology")
        fleet = Fleet(server, args.agents)
        for line in table(server, fleet):
            print(line, flush=True)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
