"""Devices of a ResourceSlice: GPUs, sets of GPUs and MIG devices, as JSON of the Kubernetes API.

Fields and limits are those of k8s.io/api v0.36 ``resource/v1`` types.go: at most 32 attributes and
capacities for each device, values of 64 characters, names of 32. Attributes without a domain
belong to our driver (:data:`agent.model.dra.DRIVER`); those that all drivers share have theirs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from agent.allocation.allocator import Allocator
from agent.allocation.bandwidth import mesh_rings
from agent.dra.sets import GpuSet
from agent.health.status import HealthView
from agent.model.dra import DRIVER, NUMA_NODE, PCI_BUS_ID, PCIE_ROOT
from agent.model.gpu import Gpu, MigInstance
from agent.model.pci import PciAddress
from agent.model.snapshot import Snapshot
from agent.topology.affinity import nearest_hcas, rails
from agent.topology.domains import clique, islands

Json: TypeAlias = dict[str, Any]

LONGEST_VALUE = 64
"""Characters of an attribute's text (``DeviceAttributeMaxValueLength``)."""

GPUS = "gpus"
"""The counter set of whole GPUs. Every GPU has a counter of 1, which each device with it consumes;
``count`` counts them all, for quota by number of GPUs."""

COUNT = "count"

MOST_GPUS = 31
"""Of one pool: of the 32 counters of a set (``ResourceSliceMaxCountersPerCounterSet``) one is
:data:`COUNT`."""

UNHEALTHY = f"{DRIVER}/unhealthy"
"""The key of the taint of devices with a GPU that is not healthy; its value is the reason."""

HELD = f"{DRIVER}/held"
"""The key of the taint of devices with a GPU that a pod has by a device plugin."""

_UNITS = ("Mi", "Gi", "Ti", "Pi")
"""Suffixes of quantities, each 1024 times the one before (k8s.io/apimachinery ``resource``)."""

_VERSION = re.compile(r"[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What is true of GPUs at the moment, all by id.

    Attributes:
        health: verdicts; a GPU that is missing is sound as far as is known.
        since: when a GPU's taint began, RFC 3339; for each unhealthy or held GPU.
        held: GPUs that pods have by a device plugin.
        evicts: whether pods with an unhealthy GPU are evicted.
    """

    health: HealthView = field(default_factory=lambda: MappingProxyType({}))
    since: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    held: frozenset[str] = frozenset()
    evicts: bool = False


def set_devices(
    sets: Iterable[GpuSet], snapshot: Snapshot, allocator: Allocator, now: Conditions
) -> dict[str, Json]:
    """Return the device of each of *sets*, single GPUs among them, by name."""
    view = _View(snapshot, allocator)
    return {each.name: _set_device(each, view, now) for each in sets}


def mig_devices(snapshot: Snapshot, gpus: Iterable[Gpu], now: Conditions) -> dict[str, Json]:
    """Return a device for each MIG device of *gpus*, by name.

    Its counters are the compute slices and the memory of its GPU that it occupies. A GPU in MIG
    mode is no device itself: a container could not compute on it.
    """
    found = {}
    for gpu in gpus:
        for instance in gpu.mig.instances if gpu.mig and gpu.mig.is_enabled else ():
            name = mig_name(gpu, instance)
            if name is not None:
                found[name] = _mig_device(name, gpu, instance, snapshot, now)
    return found


def counter_sets(sets: Iterable[GpuSet], snapshot: Snapshot) -> list[Json]:
    """Return the shared counters that the devices consume: of whole GPUs, then of MIG GPUs."""
    by_id = {gpu.id: gpu for gpu in snapshot.gpus}
    singles = [by_id[each.gpus[0]] for each in sets if each.is_single]
    found: list[Json] = []
    if singles:
        counters = {counter(gpu): _value(1) for gpu in singles}
        found.append({"name": GPUS, "counters": {COUNT: _value(len(singles)), **counters}})
    for gpu in snapshot.gpus:
        instances = gpu.mig.instances if gpu.mig and gpu.mig.is_enabled else ()
        if gpu.pci is not None and any(mig_name(gpu, it) for it in instances):
            used = [_occupied(gpu, it) for it in instances]
            names = dict.fromkeys(name for each in used for name in each)
            totals = {name: sum(each.get(name, 0) for each in used) for name in names}
            counters = {name: _value(total) for name, total in totals.items()}
            found.append({"name": _mig_set(gpu.pci), "counters": counters})
    return found


def counter(gpu: Gpu) -> str:
    """Return the name of the counter of a whole GPU, after its PCI address."""
    assert gpu.pci is not None, "a GPU without an address is not published"
    return f"gpu-{_dashed(gpu.pci)}"


def mig_name(gpu: Gpu, instance: MigInstance) -> str | None:
    """Return the device name of a MIG device; ``None`` where its place on the GPU is unknown."""
    place = instance.gpu_instance, instance.compute_instance
    if gpu.pci is None or gpu.uuid is None or None in place:
        return None
    return f"mig-{_dashed(gpu.pci)}-{instance.gpu_instance}-{instance.compute_instance}"


class _View:
    """What attributes are derived from, worked out once for all devices."""

    def __init__(self, snapshot: Snapshot, allocator: Allocator) -> None:
        self.snapshot = snapshot
        self.allocator = allocator
        self.facts = allocator.facts
        self.gpus = {gpu.id: gpu for gpu in snapshot.gpus}
        self.position = {gpu.id: at for at, gpu in enumerate(snapshot.gpus)}
        self.islands = islands(snapshot)
        self.clique = clique(snapshot)
        self.nearest = nearest_hcas(snapshot)
        self.rails = {gpu: it.number for it in rails(snapshot) for gpu in it.gpus}


def _set_device(each: GpuSet, view: _View, now: Conditions) -> Json:
    gpus = [view.gpus[name] for name in each.gpus]
    members = [view.position[name] for name in each.gpus]
    attributes = {
        "type": _text("gpu" if each.is_single else "gpu-set"),
        "gpus": {"int": each.size},
        **_common(gpus, view.snapshot),
        **_places(gpus, view),
        **_links(members, gpus, view),
    }
    if each.size == 1:
        (gpu,) = gpus
        attributes["uuid"] = _text(gpu.uuid)
        attributes["index"] = {"int": gpu.index}
        attributes[PCI_BUS_ID] = _text(str(gpu.pci))
        if (rail := view.rails.get(gpu.index)) is not None:
            attributes["rail"] = {"int": rail}
    device: Json = {"name": each.name, "attributes": _known(attributes)}
    memory = [gpu.memory_mib for gpu in gpus]
    if None not in memory:
        device["capacity"] = {"memory": _mebibytes(sum(it or 0 for it in memory))}
    counters = {COUNT: _value(each.size), **{counter(gpu): _value(1) for gpu in gpus}}
    device["consumesCounters"] = [{"counterSet": GPUS, "counters": counters}]
    return _tainted(device, each.gpus, now)


def _mig_device(
    name: str, gpu: Gpu, instance: MigInstance, snapshot: Snapshot, now: Conditions
) -> Json:
    assert gpu.pci is not None, "see mig_name"
    device: Json = {
        "name": name,
        "attributes": _known(
            {
                "type": _text("mig"),
                "gpus": {"int": 0},
                **_common([gpu], snapshot),
                "uuid": _text(instance.uuid),
                "parentUUID": _text(gpu.uuid),
                "profile": _text(instance.profile),
                NUMA_NODE: _whole(gpu.numa_node),
                PCIE_ROOT: _text(gpu.path.root if gpu.path else None),
                PCI_BUS_ID: _text(str(gpu.pci)),
            }
        ),
    }
    if instance.memory_mib is not None:
        device["capacity"] = {"memory": _mebibytes(instance.memory_mib)}
    consumed = {key: _value(amount) for key, amount in _occupied(gpu, instance).items()}
    device["consumesCounters"] = [{"counterSet": _mig_set(gpu.pci), "counters": consumed}]
    return _tainted(device, (gpu.id,), now)


def _common(gpus: Sequence[Gpu], snapshot: Snapshot) -> Json:
    """Return what all of *gpus* have in common of product and driver."""
    return {
        "productName": _text(_same(gpu.product for gpu in gpus)),
        "architecture": _text(_same(gpu.architecture for gpu in gpus)),
        "cudaComputeCapability": _version(_same(gpu.compute_capability for gpu in gpus)),
        "driverVersion": _version(snapshot.driver_version),
        "cudaDriverVersion": _version(snapshot.cuda_version),
    }


def _places(gpus: Sequence[Gpu], view: _View) -> Json:
    """Return where *gpus* are: on one NUMA node or several, and near which HCAs."""
    nodes = {gpu.numa_node for gpu in gpus}
    roots = {gpu.path.root if gpu.path else None for gpu in gpus}
    sockets = {view.facts.sockets[view.position[gpu.id]] for gpu in gpus}
    nearest = [view.nearest[gpu.index] for gpu in gpus if gpu.index in view.nearest]
    names = dict.fromkeys(hca.name for it in nearest for hca in it.hcas)
    is_known = len(nearest) == len(gpus)
    return {
        NUMA_NODE: _whole(_same(nodes)),
        PCIE_ROOT: _text(_same(roots)),
        "numaNodes": None if None in nodes else {"int": len(nodes)},
        "sockets": {"int": len(sockets)} if _all_known(sockets) else None,
        "nearestHcas": _text(",".join(names)) if is_known and names else None,
    }


def _links(members: Sequence[int], gpus: Sequence[Gpu], view: _View) -> Json:
    """Return how *gpus* are joined by NVLink: links, island, rings, multi-node partition."""
    facts = view.facts
    island = None
    for number, indices in enumerate(view.islands or ()):
        if len(indices) > 1 and {gpu.index for gpu in gpus} <= set(indices):
            island = number
    pairs = [facts.links[a][b] for at, a in enumerate(members) for b in members[at + 1 :]]
    rings = mesh_rings(facts, members) if len(members) > 2 and not facts.is_switched else 0
    bandwidth = view.allocator.bandwidth_gb_s([gpu.id for gpu in gpus])
    return {
        "bandwidthGBs": _whole(None if bandwidth is None else int(bandwidth)),
        "nvlinkIsland": _whole(island),
        "nvlinks": {"int": min(pairs)} if pairs and view.islands is not None else None,
        "nvlinkRings": _whole(rings or None),
        "nvlinkPartition": _text(None if view.clique is None else str(view.clique)),
    }


def _tainted(device: Json, gpus: Iterable[str], now: Conditions) -> Json:
    """Return *device* with the taints of its GPUs, one of each kind at most."""
    taints: dict[str, Json] = {}
    for gpu in gpus:
        verdict = now.health.get(gpu)
        since = {"timeAdded": now.since[gpu]} if gpu in now.since else {}
        if verdict is not None and not verdict.is_healthy and UNHEALTHY not in taints:
            effect = "NoExecute" if now.evicts else "NoSchedule"
            value = verdict.reason or "Unknown"
            taints[UNHEALTHY] = {"key": UNHEALTHY, "value": value, "effect": effect, **since}
        if gpu in now.held and HELD not in taints:
            value, effect = "device-plugin", "NoSchedule"
            taints[HELD] = {"key": HELD, "value": value, "effect": effect, **since}
    return {**device, "taints": list(taints.values())} if taints else device


def _occupied(gpu: Gpu, instance: MigInstance) -> dict[str, int]:
    """Return the counters of its GPU that a MIG device consumes, and how much of each."""
    assert gpu.pci is not None, "see mig_name"
    name = f"gpu-{_dashed(gpu.pci)}"
    slices = re.match(r"(?:[0-9]+c\.)?([0-9]+)g\.", instance.profile or "", re.ASCII)
    amounts = {
        f"{name}-slices": int(slices[1]) if slices else 0,
        f"{name}-memory-mib": instance.memory_mib or 0,
    }
    return {key: amount for key, amount in amounts.items() if amount}


def _mig_set(address: PciAddress) -> str:
    return f"mig-{_dashed(address)}"


def _dashed(address: PciAddress) -> str:
    return str(address).replace(":", "-").replace(".", "-")


def _same(values: Iterable[Any]) -> Any:
    """Return the one value that all *values* are; ``None`` where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _all_known(sockets: Iterable[tuple[str, int]]) -> bool:
    return all(kind == "socket" for kind, _ in sockets)


def _text(value: str | None) -> Json | None:
    return None if not value or len(value) > LONGEST_VALUE else {"string": value}


def _whole(value: int | None) -> Json | None:
    return None if value is None else {"int": value}


def _version(value: str | tuple[int, int] | None) -> Json | None:
    """Return a semantic version of three numbers, without the leading zeros of ``580.95.05``."""
    if value is None:
        return None
    numbers = (
        list(value) if isinstance(value, tuple) else [int(it) for it in _VERSION.findall(value)]
    )
    return {"version": ".".join(map(str, [*numbers, 0, 0][:3]))}


def _value(amount: int | str) -> Json:
    return {"value": str(amount)}


def _mebibytes(amount: int) -> Json:
    """Return an amount as the API server stores it: with the largest unit that keeps it whole."""
    unit = 0
    while amount and amount % 1024 == 0 and unit < len(_UNITS) - 1:
        amount, unit = amount // 1024, unit + 1
    return _value(f"{amount}{_UNITS[unit]}")


def _known(attributes: Mapping[str, Json | None]) -> Json:
    return {name: value for name, value in attributes.items() if value is not None}
