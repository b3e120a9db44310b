"""The ResourceSlices of the node: what they say now, what they should say, and what to write.

The scheduler's allocator reads a pool only when all of its slices have the newest generation, takes
slices by name and devices as they stand there (k8s.io/dynamic-resource-allocation v0.36
``structured``, ``pools_incubating.go``). So:

- the order of devices inside a slice may change by one write, without a new generation;
- a device that moves to another slice, or a slice that comes or goes, takes a new generation of
  all slices: between the writes the pool is incomplete, and claims wait;
- a slice has shared counters or devices, never both; 64 devices if they consume counters, and 8
  counter sets (k8s.io/api v0.36 ``resource/v1`` types.go).

Devices of one size share slices of their own, so that a new order rarely moves one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

from agent.model.dra import DRIVER

Json: TypeAlias = Mapping[str, Any]

MOST_DEVICES = 64
"""``ResourceSliceMaxDevicesWithAdvancedFeatures``."""

MOST_COUNTER_SETS = 8
"""``ResourceSliceMaxCounterSets``."""

_LONGEST_STEM = 200
"""Characters of a node's name in those of its slices; a longer one is shortened. An object's name
has 253 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Devices that share slices.

    Attributes:
        name: part of the slices' names, which sort by it.
        devices: in the order in which the allocator should try them.
        tried: how many of them could be allocated now; the order of the others does not matter.
    """

    name: str
    devices: tuple[Json, ...]
    tried: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What to write and to delete: objects for server-side apply, and names."""

    applied: tuple[Json, ...] = ()
    deleted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.applied or self.deleted)


def changes(
    node: str,
    owner: Json | None,
    counter_sets: Sequence[Json],
    groups: Iterable[Group],
    observed: Mapping[str, Json],
) -> Changes:
    """Return how the slices of *node* become those of *counter_sets* and *groups*.

    Args:
        owner: the reference to the Node, with which the slices go; ``None`` where it is unknown.
        observed: the slices of our driver on this node, by name, as the API server has them.
    """
    contents: dict[str, Json] = {}
    for at in range(0, len(counter_sets), MOST_COUNTER_SETS):
        name = slice_name(node, f"0-counters-{at // MOST_COUNTER_SETS}")
        contents[name] = {"sharedCounters": list(counter_sets[at : at + MOST_COUNTER_SETS])}
    for group in groups:
        before = _chunks(node, group, observed)
        for number, chunk in enumerate(_arranged(group, before)):
            contents[_group_slice(node, group, number)] = {"devices": list(chunk)}

    generation = max((_generation(each) for each in observed.values()), default=0)
    is_same_pool = contents.keys() == observed.keys() and all(
        _members(contents[name]) == _members(observed[name].get("spec", {}))
        and _generation(observed[name]) == generation
        for name in contents
    )
    generation = max(1, generation if is_same_pool else generation + 1)
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(contents)}
    applied = []
    for name, content in contents.items():
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, **content}
        body = _document(name, spec, owner)
        before_now = observed.get(name)
        if before_now is None or before_now.get("spec") != spec:
            applied.append(body)
    # A pool with a slice of an older generation is complete without it.
    deleted = tuple(name for name in observed if name not in contents)
    return Changes(applied=tuple(applied), deleted=deleted)


def slice_name(node: str, part: str) -> str:
    """Return the name of a slice: unique in the cluster, and sorted by *part* on one node."""
    stem = node
    if len(stem) > _LONGEST_STEM:
        stem = f"{node[:_LONGEST_STEM].rstrip('.-')}-{sha256(node.encode()).hexdigest()[:8]}"
    return f"{stem}-{DRIVER}-{part}"


def _group_slice(node: str, group: Group, number: int) -> str:
    return slice_name(node, f"{group.name}-{number}")


def _chunks(node: str, group: Group, observed: Mapping[str, Json]) -> list[list[str]]:
    """Return the names of the devices in each observed slice of *group*."""
    found: list[list[str]] = []
    while (each := observed.get(_group_slice(node, group, len(found)))) is not None:
        devices = each.get("spec", {}).get("devices") or []
        found.append([device["name"] for device in devices])
    return found


def _arranged(group: Group, before: Sequence[Sequence[str]]) -> list[tuple[Json, ...]]:
    """Return the devices of *group* slice by slice, each slice in order.

    They stay in the slices that they are in *before* as long as the allocator meets the best first:
    the next claim takes that, and by then there is another order.
    """
    rank = {device["name"]: at for at, device in enumerate(group.devices)}
    if sorted(name for chunk in before for name in chunk) == sorted(rank):
        kept = [sorted(chunk, key=lambda name: rank[name]) for chunk in before]
        tried = [rank[name] for chunk in kept for name in chunk if rank[name] < group.tried]
        if not tried or tried[0] == 0:
            return [tuple(group.devices[rank[name]] for name in chunk) for chunk in kept]
    return [
        group.devices[at : at + MOST_DEVICES] for at in range(0, len(group.devices), MOST_DEVICES)
    ]


def _document(name: str, spec: Json, owner: Json | None) -> Json:
    metadata: dict[str, Any] = {"name": name}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": spec,
    }


def _generation(each: Json) -> int:
    return int(each.get("spec", {}).get("pool", {}).get("generation") or 0)


def _members(spec: Json) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the devices and counter sets of a slice."""
    devices = (device["name"] for device in spec.get("devices") or ())
    counters = (each["name"] for each in spec.get("sharedCounters") or ())
    return frozenset(devices), frozenset(counters)
