"""A small cluster of GB200 trays and DGX machines, labelled by our own code.

Twelve Node objects without kubelets: a scheduler decides by the objects alone. The names are
dealt out so that a scheduler which goes by them mixes the NVLink partitions, and in each of the
two that hold four trays two are nearly empty: a scheduler that spreads load takes those, and so
does not fill a partition by chance.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.labels.outputs.output import DesiredLabels
from nodetopo.kubeapi.apply import connection
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Gpu
from nodetopo.model.snapshot import Snapshot
from tests.lab.api import Api, Object
from tests.lab.cluster import Cluster
from tests.lab.pods import GPU
from tests.lab.waiting import wait_for

_RACK_A, _RACK_B = (f"6b0e1b2c-0000-4000-8000-00000000007{digit}" for digit in "2a")
_ROOMY, _NARROW = {"cpu": "64", "memory": "64Gi"}, {"cpu": "8", "memory": "8Gi"}
_NODES = "/api/v1/nodes"

HOSTNAME = "kubernetes.io/hostname"
CLIQUE = "nvidia.com/gpu.clique"
DOMAIN, PARTITION = "gpu.topology/nvlink-domain", "gpu.topology/nvlink-partition"
INTERCONNECT = "gpu.topology/interconnect"


class Machine(Struct, frozen=True, kw_only=True):
    """What a node is.

    Attributes:
        model: a bundled machine.
        fabric: cluster UUID and clique of all GPUs; ``None`` leaves the machine as it is.
        is_roomy: whether much of its CPU and memory is free.
    """

    model: str
    fabric: tuple[str, int] | None = None
    is_roomy: bool = False

    def snapshot(self, node: str) -> Snapshot:
        """Return what the agent would have read on *node*."""
        bundled = machine(self.model)
        return replace(bundled, node=node, gpus=tuple(map(self._placed, bundled.gpus)))

    def _placed(self, gpu: Gpu) -> Gpu:
        if self.fabric is None or gpu.fabric is None:
            return gpu
        cluster, clique = self.fabric
        return replace(gpu, fabric=replace(gpu.fabric, cluster_uuid=cluster, clique_id=clique))


def _tray(cluster: str, clique: int, *, is_roomy: bool = False) -> Machine:
    return Machine(model="gb200-nvl72", fabric=(cluster, clique), is_roomy=is_roomy)


MACHINES: Mapping[str, Machine] = MappingProxyType(
    {
        "n00": _tray(_RACK_A, 2),
        "n01": _tray(_RACK_A, 1, is_roomy=True),
        "n02": Machine(model="dgx-h100"),
        "n03": _tray(_RACK_A, 1),
        "n04": _tray(_RACK_A, 2, is_roomy=True),
        "n05": _tray(_RACK_A, 1),
        "n06": Machine(model="dgx-h100"),
        "n07": _tray(_RACK_A, 1, is_roomy=True),
        "n08": _tray(_RACK_B, 7),
        "n09": _tray(_RACK_A, 2, is_roomy=True),
        "n10": _tray(_RACK_B, 7),
        "n11": _tray(_RACK_A, 2),
    }
)
"""By node: two partitions of four trays in one rack, one of two trays in another, two DGX."""

ROOMY = frozenset(name for name, one in MACHINES.items() if one.is_roomy)


def build(cluster: Cluster) -> None:
    """Add the nodes, with no label but their names."""
    for name, one in MACHINES.items():
        gpus = len(machine(one.model).gpus)
        _add(cluster.api, name, (_ROOMY if one.is_roomy else _NARROW) | {GPU: str(gpus)})


def publish(cluster: Cluster) -> None:
    """Have each node's agent publish its labels, with the rights of ``deploy/daemonset``.

    The scheduler has heard of it then.
    """
    changed = None
    for name, publisher in _publishers(cluster, MACHINES):
        desired = DesiredLabels(labels=labels(MACHINES[name].snapshot(name)))
        changed = name if publisher.publish(desired, complete=True) else changed
    _wait_heard(cluster, changed, "Exists")


def withdraw(cluster: Cluster, nodes: Iterable[str] = tuple(MACHINES)) -> None:
    """Have the agents of *nodes* take their labels away; the scheduler has heard of it then."""
    changed = None
    for name, publisher in _publishers(cluster, nodes):
        changed = name if publisher.remove() else changed
    _wait_heard(cluster, changed, "DoesNotExist")


def values(api: Api, key: str) -> dict[str, str]:
    """Return the value of label *key* by node, as the API server has it."""
    found = api.get(_NODES)["items"]
    return {
        one["metadata"]["name"]: one["metadata"]["labels"][key]
        for one in found
        if key in one["metadata"]["labels"]
    }


def _wait_heard(cluster: Cluster, last: str | None, state: str) -> None:
    """Wait until the scheduler knows that the node changed *last*, if any, is in that *state*.

    It places a pod that wants such a node then. Nodes reach it in the order of their changes, but
    in none with pods.
    """
    if last is None:
        return
    name = f"probe-{last}"
    cluster.pods.create(_probe(name, last, state))
    wait_for(f"pod {name} has a node", lambda: "nodeName" in cluster.pods.get(name)["spec"])
    cluster.pods.delete(name)


def _probe(name: str, node: str, state: str) -> Object:
    wanted = [
        {"key": HOSTNAME, "operator": "In", "values": [node]},
        {"key": PARTITION, "operator": state},
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            "containers": [{"name": "none", "image": "registry.invalid/none:1"}],
            "automountServiceAccountToken": False,
        },
    }


def _publishers(cluster: Cluster, nodes: Iterable[str]) -> Iterator[tuple[str, NodeLabelPublisher]]:
    """Yield each of *nodes* with what its agent writes by; they share a connection."""
    shared = connection(cluster.control_plane.agent_kubeconfig())
    for name in nodes:
        yield name, NodeLabelPublisher(None, name, connect=shared)


def _add(api: Api, name: str, amounts: Mapping[str, str]) -> None:
    metadata = {"name": name, "labels": {HOSTNAME: name, "kubernetes.io/os": "linux"}}
    api.create(_NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    held = {**amounts, "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Lab"}
    status = {"capacity": held, "allocatable": held, "conditions": [ready]}
    api.merge(f"{_NODES}/{name}/status", {"status": status})
