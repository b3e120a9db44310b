"""Attributes of devices in the JSON of the Kubernetes API, derived from one snapshot.

Limits from k8s.io/api v0.36 ``resource/v1`` types.go: at most 32 attributes and capacities for each
device, values of 64 characters, names of 32. Attributes without a domain belong to our driver
(:data:`nodetopo.model.dra.DRIVER`); attributes shared by all drivers have one.

Single GPUs have every attribute. Sets have only the attributes that select a set: the others are
the same on every device of the node, cost bytes in each watch cache and CPU in each evaluation of a
selector, and are available on the single GPUs and in the node's labels.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.bandwidth import mesh_rings
from nodetopo.model.dra import NUMA_NODE, PCI_BUS_ID, PCIE_ROOT
from nodetopo.model.gpu import Gpu, MigInstance
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import nearest_hcas, nodes_alike, rails
from nodetopo.topology.complexes import ComplexKind, complexes
from nodetopo.topology.domains import clique, islands, unsettled_gpus
from nodetopo.topology.links import silent_gpus

Json: TypeAlias = dict[str, Any]

LONGEST_VALUE = 64
"""Characters of an attribute's text (``DeviceAttributeMaxValueLength``)."""

LONGEST_LIST = 16
"""Numbers of a list, so that a device keeps to the 48 values of all attributes together
(``ResourceSliceMaxAttributeValuesPerDevice``)."""

_UNITS = ("Mi", "Gi", "Ti", "Pi")
"""Suffixes of quantities, each 1024 times the one before (k8s.io/apimachinery ``resource``)."""

_VERSION = re.compile(r"[0-9]+", re.ASCII)


class Attributes:
    """Returns the attributes of the devices of one snapshot."""

    def __init__(self, snapshot: Snapshot, allocator: Allocator, *, has_lists: bool) -> None:
        """Compute the data shared by all devices; *has_lists* as in :class:`Form`."""
        self._snapshot = snapshot
        self._allocator = allocator
        self._has_lists = has_lists
        self._position = {gpu.id: at for at, gpu in enumerate(snapshot.gpus)}
        self._unlinked = unsettled_gpus(snapshot) | silent_gpus(snapshot)
        known = tuple(gpu for gpu in snapshot.gpus if gpu.index not in self._unlinked)
        self._islands = islands(replace(snapshot, gpus=known))
        self._clique = clique(replace(snapshot, gpus=known))
        self._nearest = nearest_hcas(snapshot)
        self._rails = {gpu: rail.number for rail in rails(snapshot) for gpu in rail.gpus}
        self._alike = nodes_alike(snapshot)
        self._complexes = {
            gpu.index: group.data_direct.pci
            for group in complexes(snapshot).complexes
            if group.kind is ComplexKind.DATA_DIRECT and group.data_direct and group.doubt is None
            for gpu in group.gpus
        }

    def of_gpu(self, gpu: Gpu) -> Json:
        nearest = self._nearest.get(gpu.index)
        hcas = ",".join(hca.name for hca in nearest.hcas) if nearest else None
        direct = self._complexes.get(gpu.index)
        return _known(
            {
                "type": _text("gpu"),
                "gpus": _whole(1),
                "uuid": _text(gpu.uuid),
                "index": _whole(gpu.index),
                PCI_BUS_ID: _text(str(gpu.pci)),
                "rail": _whole(self._rails.get(gpu.index)),
                "nearestHcas": _text(hcas),
                "dataDirectComplex": _text(None if direct is None else str(direct)),
                **self._common(gpu),
                **self._places([gpu]),
                **self._links([gpu]),
            }
        )

    def of_set(self, gpus: Sequence[Gpu]) -> Json:
        nodes = {gpu.numa_node for gpu in gpus}
        sockets = {self._allocator.facts.sockets[self._position[gpu.id]] for gpu in gpus}
        are_known = all(kind == "socket" for kind, _ in sockets)
        return _known(
            {
                "type": _text("gpu-set"),
                "gpus": _whole(len(gpus)),
                "productName": _text(_same(gpu.product for gpu in gpus)),
                "numaNodes": _whole(None if None in nodes else len(nodes)),
                "sockets": _whole(len(sockets) if are_known else None),
                **self._places(gpus),
                **self._links(gpus),
            }
        )

    def of_mig(self, gpu: Gpu, instance: MigInstance) -> Json:
        return _known(
            {
                "type": _text("mig"),
                "gpus": _whole(0),
                "uuid": _text(instance.uuid),
                "parentUUID": _text(gpu.uuid),
                "profile": _text(instance.profile),
                PCI_BUS_ID: _text(str(gpu.pci)),
                **self._common(gpu),
                **self._places([gpu]),
            }
        )

    def of_admin(self, gpu: Gpu) -> Json:
        """Return the attributes of the device of *gpu* for administration.

        They are few: on a node without free GPUs the scheduler evaluates selectors on them alone.
        """
        return _known(
            {
                "type": _text("admin"),
                "gpus": _whole(0),
                "uuid": _text(gpu.uuid),
                "index": _whole(gpu.index),
            }
        )

    def _common(self, gpu: Gpu) -> Mapping[str, Json | None]:
        """Return product and versions."""
        return {
            "productName": _text(gpu.product),
            "architecture": _text(gpu.architecture),
            "cudaComputeCapability": _version(gpu.compute_capability),
            "driverVersion": _version(self._snapshot.driver_version),
            "cudaDriverVersion": _version(self._snapshot.cuda_version),
        }

    def _places(self, gpus: Sequence[Gpu]) -> Mapping[str, Json | None]:
        """Return the NUMA node and the PCIe root of *gpus*, where they share them."""
        return {
            NUMA_NODE: self._numa(gpus),
            PCIE_ROOT: _text(_same(gpu.path.root if gpu.path else None for gpu in gpus)),
        }

    def _numa(self, gpus: Sequence[Gpu]) -> Json | None:
        """Return the NUMA nodes of *gpus*: a list, or one number that all share.

        The list begins with the nodes that the GPUs are on; nodes of the same socket that are as
        near as any follow, so that other drivers' devices on those match (KEP-6072;
        k8s.io/dynamic-resource-allocation v0.37 ``deviceattribute``).
        """
        nodes = [gpu.numa_node for gpu in gpus if gpu.numa_node is not None]
        if not self._has_lists or len(nodes) < len(gpus):
            return _whole(_same(gpu.numa_node for gpu in gpus))
        near = [other for node in nodes for other in self._alike.get(node, ())]
        return {"ints": [*dict.fromkeys([*sorted(nodes), *near])][:LONGEST_LIST]}

    def _links(self, gpus: Sequence[Gpu]) -> Mapping[str, Json | None]:
        """Return how *gpus* are joined by NVLink: links, island, rings, multi-node partition.

        Empty while the links of any of them are unknown.
        """
        if self._islands is None or any(gpu.index in self._unlinked for gpu in gpus):
            return {}
        facts = self._allocator.facts
        members = [self._position[gpu.id] for gpu in gpus]
        island = None
        for number, indices in enumerate(self._islands):
            if len(indices) > 1 and {gpu.index for gpu in gpus} <= set(indices):
                island = number
        pairs = [facts.links[a][b] for at, a in enumerate(members) for b in members[at + 1 :]]
        rings = mesh_rings(facts, members) if len(members) > 2 and not facts.is_switched else 0
        bandwidth = self._allocator.bandwidth_gb_s([gpu.id for gpu in gpus])
        return {
            "bandwidthGBs": _whole(None if bandwidth is None else int(bandwidth)),
            "nvlinkIsland": _whole(island),
            "nvlinks": _whole(min(pairs, default=None)),
            "nvlinkRings": _whole(rings or None),
            "nvlinkPartition": _text(None if self._clique is None else str(self._clique)),
        }


def value(amount: int | str) -> Json:
    return {"value": str(amount)}


def mebibytes(amount: int) -> Json:
    """Return an amount as the API server stores it: with the largest unit that keeps it whole."""
    unit = 0
    while amount and amount % 1024 == 0 and unit < len(_UNITS) - 1:
        amount, unit = amount // 1024, unit + 1
    return value(f"{amount}{_UNITS[unit]}")


def _same(values: Iterable[Any]) -> Any:
    """Return the common value of *values*; ``None`` if they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _text(text: str | None) -> Json | None:
    return None if not text or len(text) > LONGEST_VALUE else {"string": text}


def _whole(number: int | None) -> Json | None:
    return None if number is None else {"int": number}


def _version(version: str | tuple[int, int] | None) -> Json | None:
    """Return a semantic version of three numbers, without the leading zeros of ``580.95.05``."""
    if version is None:
        return None
    numbers = (
        list(version)
        if isinstance(version, tuple)
        else [int(number) for number in _VERSION.findall(version)]
    )
    return {"version": ".".join(map(str, [*numbers, 0, 0][:3]))}


def _known(attributes: Mapping[str, Json | None]) -> Json:
    return {name: each for name, each in attributes.items() if each is not None}
