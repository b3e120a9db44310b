"""Bundled clusters: bundled machines at places of a network, with claims and jobs on them.

Everything is computed when it is asked for: the labels by the code that labels real nodes, the
Topology objects by the exports. A cluster answers as :class:`nodetopo.cli.cluster_api.ClusterApi`
does, and asks nobody.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.errors import InputError, closest
from nodetopo.formats.fields import Object
from nodetopo.machines.bundled import machine
from nodetopo.model import dra
from nodetopo.model.dra import API, NUMA_NODE, NVIDIA_DRIVER, PCI_BUS_ID, PCIE_ROOT
from nodetopo.model.gpu import Fabric, FabricState
from nodetopo.model.kubernetes import GPU_RESOURCE
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.cleanup import ClusterObjects
from nodetopo.tools.cluster.export.formats import ExportOptions, export
from nodetopo.tools.cluster.kinds import WORKLOAD, ObjectKind, kind_of, selector
from nodetopo.tools.cluster.node import ClusterNode, cluster_node

Labeller: TypeAlias = Callable[[Snapshot, Mapping[str, str]], Mapping[str, str]]
"""Returns the labels of a machine at tiers of the network, value by tier."""

CLAIMS = f"{API}/resourceclaims"

NAMESPACE = "simulated"
"""Of the claims and the jobs."""

_OWNER, _KUBELET = "nodetopo", "kubelet"
"""Field managers of the labels: ours, and the kubelet's of the well-known ones."""

RUNAI_ID = "00000000-0000-4000-8000-000000000000"
"""Run:ai's UUID of every bundled cluster."""

_ALLOCATED_AT = "2026-11-01T00:00:00Z"


class Rack(Struct, frozen=True, kw_only=True):
    """Nodes of one machine at one place."""

    machine: str  # a bundled one
    nodes: tuple[str, ...]  # names
    tiers: Mapping[str, str]  # the place in the network, value by tier; tier-0 is the narrowest
    fabric: str | None = None  # UUID of the NVLink fabric that joins the nodes; None if none does
    unjoined: frozenset[str] = frozenset()  # nodes whose GPUs have not joined the fabric


class Layout(Struct, frozen=True, kw_only=True):
    """A bundled cluster."""

    about: str  # for a list of clusters
    racks: tuple[Rack, ...]
    gang: int  # pods of its largest job, one per node, which must stay within one narrow place
    scattered: tuple[int, ...]  # GPUs of the claim that got a poor set, by index


def _trays(rack: int, unjoined: Iterable[int] = ()) -> Rack:
    name = f"rack-{rack}-tray-{{:02}}".format
    return Rack(
        machine="gb200-nvl72",
        nodes=tuple(map(name, range(1, 19))),
        tiers={"tier-0": f"rack-{rack}", "tier-1": "spine-1"},
        fabric=f"0000b272-0000-4000-8000-0000000000{rack:02}",
        unjoined=frozenset(map(name, unjoined)),
    )


def _leaf(leaf: int) -> Rack:
    return Rack(
        machine="hgx-h200",
        nodes=tuple(f"hgx-{number:02}" for number in range(4 * leaf - 3, 4 * leaf + 1)),
        tiers={"tier-0": f"leaf-{leaf}", "tier-1": f"spine-{(leaf + 1) // 2}"},
    )


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "nvl72": Layout(
            about="a GB200 NVL72 rack of 18 trays, ready for jobs",
            racks=(_trays(1),),
            gang=18,
            scattered=(0, 2),
        ),
        "nvl72-two-racks": Layout(
            about="two GB200 NVL72 racks; a tray is outside the NVLink fabric, a job is too large",
            racks=(_trays(1), _trays(2, unjoined=(7,))),
            gang=20,
            scattered=(0, 2),
        ),
        "hgx-rails": Layout(
            about="16 HGX H200 nodes on 4 leaf switches and 2 spines",
            racks=tuple(_leaf(leaf) for leaf in range(1, 5)),
            gang=4,
            scattered=(0, 1, 4, 5),
        ),
    }
)
"""The bundled clusters by name."""


def layout(name: str) -> tuple[str, Layout]:
    """Return the bundled cluster *name*, in whatever case it is written, with its own name."""
    wanted = name.strip().lower()
    if wanted not in LAYOUTS:
        close = closest(wanted, LAYOUTS)
        hint = f"did you mean {close!r}? " if close else ""
        raise InputError(f"unknown cluster {name!r}", f"{hint}bundled are: {', '.join(LAYOUTS)}")
    return wanted, LAYOUTS[wanted]


class SimulatedCluster(Struct, frozen=True, kw_only=True, dict=True):
    """The API server of a bundled cluster; *prefix* is our labels' prefix."""

    name: str
    layout: Layout
    label: Labeller
    prefix: str

    def nodes(self, selector_text: str) -> tuple[ClusterNode, ...]:
        """Return the Nodes that the selector chooses."""
        everyone = (cluster_node(item["metadata"]) for item in self._nodes)
        return selector(selector_text).select(everyone)

    def objects(self, kinds: Iterable[ObjectKind]) -> ClusterObjects:
        """Return the objects of *kinds*: Topologies of KAI and Kueue, and a job."""
        wanted = set(kinds)
        found = tuple((kind, item) for kind, item in self._jobs() if kind in wanted)
        return ClusterObjects(found=found, problems={})

    def listed(self, path: str) -> tuple[Object, ...]:
        match path:
            case dra.SLICES:
                return self.slices()
            case "/api/v1/nodes":
                return self._nodes
            case _ if path == CLAIMS:
                return self._claims()
        raise ValueError(path)

    def slices(self) -> tuple[Object, ...]:
        """Return the ResourceSlices of NVIDIA's driver, one of each node."""
        return tuple(_slice(node, snapshot) for node, snapshot, _ in self._machines)

    def serves(self, _version: str, _plural: str) -> bool:
        """Return true: every API is served."""
        return True

    def version(self) -> Mapping[str, Any]:
        return {"major": "1", "minor": "37"}

    @cached_property
    def _machines(self) -> tuple[tuple[str, Snapshot, Rack], ...]:
        places = [(rack, node) for rack in self.layout.racks for node in rack.nodes]
        return tuple(
            (node, _placed(machine(rack.machine), rack, node, number), rack)
            for number, (rack, node) in enumerate(places, 1)
        )

    @cached_property
    def _nodes(self) -> tuple[Object, ...]:
        """The Node objects. Trays of one fabric in one state have the same labels of ours."""
        made: dict[tuple[str | None, str], Mapping[str, str]] = {}
        items = []
        for node, snapshot, rack in self._machines:
            key = (rack.fabric, node if rack.fabric is None or node in rack.unjoined else "")
            if key not in made:
                made[key] = self.label(snapshot, rack.tiers)
            items.append(_node(node, made[key]))
        return tuple(items)

    def _jobs(self) -> Iterator[tuple[ObjectKind, Object]]:
        """Yield the objects of schedulers, as they were made when every node was in its fabric."""
        unjoined = {node for rack in self.layout.racks for node in rack.unjoined}
        nodes = [node for node in self.nodes("") if node.name not in unjoined]
        options = ExportOptions(prefix=self.prefix, name=self.name)
        for scheduler in ("kai", "kueue"):
            for item in export(scheduler, nodes, options).objects:
                if kind := kind_of(str(item["apiVersion"]), str(item["kind"])):
                    yield kind, item
        (group,) = export("kubernetes", nodes, options).objects
        level = group["spec"]["schedulingConstraints"]["topology"][0]["key"]
        gpus = len(self._machines[0][1].gpus)
        yield WORKLOAD, _workload("training", self.layout.gang, gpus, level)

    def _claims(self) -> tuple[Object, ...]:
        """Return three claims: of a scattered set, of near GPUs, and one that no node can meet."""
        (first, machine_of_first, _), (second, _, _) = self._machines[:2]
        scattered = self.layout.scattered
        return (
            _claim("scattered", len(scattered), first, scattered),
            _claim("near", len(scattered), second, range(len(scattered))),
            _claim("too-large", 2 * len(machine_of_first.gpus)),
        )


def _placed(snapshot: Snapshot, rack: Rack, node: str, number: int) -> Snapshot:
    """Return *snapshot* as *node* of *rack*, the *number*-th of the cluster, with its own UUIDs."""
    gpus = []
    for gpu in snapshot.gpus:
        fabric = gpu.fabric
        if node in rack.unjoined:
            fabric = Fabric(state=FabricState.IN_PROGRESS)
        elif fabric is not None and rack.fabric is not None:
            fabric = replace(fabric, cluster_uuid=rack.fabric)
        uuid = None if gpu.uuid is None else f"{gpu.uuid[:-8]}{number:04x}{gpu.uuid[-4:]}"
        gpus.append(replace(gpu, uuid=uuid, fabric=fabric))
    return replace(snapshot, node=node, gpus=tuple(gpus))


def _node(name: str, own: Mapping[str, str]) -> Object:
    well_known = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": "zone-1",
    }
    managed = [
        {
            "manager": manager,
            "operation": "Apply",
            "fieldsV1": {"f:metadata": {"f:labels": {f"f:{key}": {} for key in labels}}},
        }
        for manager, labels in ((_OWNER, own), (_KUBELET, well_known))
    ]
    metadata = {"name": name, "labels": {**well_known, **own}, "managedFields": managed}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _workload(name: str, pods: int, gpus: int, level: str) -> Object:
    """Return a job of Kueue, of *pods* with *gpus* each within one place of *level*."""
    limits = {GPU_RESOURCE: gpus}
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
    pod_set = {
        "name": "main",
        "count": pods,
        "template": template,
        "topologyRequest": {"required": level},
    }
    return {
        "apiVersion": f"{WORKLOAD.group}/{WORKLOAD.versions[0]}",
        "kind": WORKLOAD.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"active": True, "podSets": [pod_set]},
    }


def _slice(node: str, snapshot: Snapshot) -> Object:
    """Return the slice of NVIDIA's driver (dra-driver-nvidia-gpu main, August 2026)."""
    devices = []
    for gpu in snapshot.gpus:
        attributes: dict[str, Any] = {
            "type": {"string": "gpu"},
            "uuid": {"string": gpu.uuid},
            "productName": {"string": gpu.product},
            PCI_BUS_ID: {"string": str(gpu.pci)},
        }
        if gpu.path is not None:
            attributes[PCIE_ROOT] = {"string": gpu.path.root}
        if gpu.numa_node is not None:
            attributes[NUMA_NODE] = {"int": gpu.numa_node}
        capacity = {"memory": {"value": f"{gpu.memory_mib}Mi"}}
        devices.append({"name": f"gpu-{gpu.index}", "attributes": attributes, "capacity": capacity})
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{NVIDIA_DRIVER}"},
        "spec": {
            "driver": NVIDIA_DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _claim(name: str, count: int, node: str | None = None, gpus: Sequence[int] = ()) -> Object:
    """Return a claim of *count* GPUs that has *gpus* of *node*; without a node it waits."""
    exactly = {
        "deviceClassName": NVIDIA_DRIVER,
        "allocationMode": "ExactCount",
        "count": count,
    }
    status: dict[str, Any] = {}
    if node is not None:
        results = [
            {"request": "gpus", "driver": NVIDIA_DRIVER, "pool": node, "device": f"gpu-{index}"}
            for index in gpus
        ]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        status["allocation"] = {
            "allocationTimestamp": _ALLOCATED_AT,
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        "status": status,
    }
