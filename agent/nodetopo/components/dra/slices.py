"""The ResourceSlices of the node: observed, wanted, and the changes to write.

The scheduler's allocator reads a pool only when all of its slices have the newest generation, takes
slices by name and devices in their order (k8s.io/dynamic-resource-allocation v0.36 ``structured``,
``pools_incubating.go``). So:

- one write changes, adds and removes devices of one slice, without a new generation;
- moving a device to another slice, or adding or removing a slice, needs a new generation of all
  slices: between the writes the pool is incomplete, and claims wait;
- a slice has shared counters or devices, never both; 64 devices if they have counters, taints or
  lists, and 8 counter sets (k8s.io/api v0.36 ``resource/v1`` types.go).

Each slice costs the scheduler time for every pod, so a node has one slice of devices if they fit.
The allocator evaluates selectors device by device until one fits, and a claim fits devices of one
group only; therefore the best device of each group comes first. Every write goes to all watchers,
so an order is kept while it leads each claim to the right device.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from msgspec import Struct

from nodetopo.model.dra import DRIVER, NUMA_NODE

Json: TypeAlias = Mapping[str, Any]

MOST_DEVICES = 64
"""``ResourceSliceMaxDevicesWithAdvancedFeatures``."""

MOST_COUNTER_SETS = 8
"""``ResourceSliceMaxCounterSets``."""

_LONGEST_STEM = 200
"""Characters of a node's name in the names of its slices; a longer one is shortened. An object's
name has 253 at most.
"""


class Group(Struct, frozen=True, kw_only=True):
    """Devices that satisfy the same claims."""

    name: str  # the kind of devices
    devices: tuple[Json, ...]  # in the order in which the allocator should try them
    tried: int  # how many can be allocated now; the order of the rest does not matter
    # How many devices a claim takes from the front; empty if the order does not matter.
    heads: tuple[int, ...] = ()

    @property
    def able(self) -> tuple[str, ...]:
        """The names of the devices that can be allocated now."""
        return tuple(device["name"] for device in self.devices[: self.tried])


class Changes(Struct, frozen=True, kw_only=True):
    """The changes to write: objects for server-side apply, and names to delete."""

    applied: tuple[Json, ...] = ()
    deleted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.applied or self.deleted)


def changes(
    node: str,
    owner: Json | None,
    counter_sets: Sequence[Json],
    groups: Iterable[Group],
    observed: Mapping[str, Json],
) -> Changes:
    """Return the changes that bring *node*'s slices to *counter_sets* and *groups*.

    Args:
        owner: the reference to the Node, which is deleted with its slices; ``None`` if unknown.
        groups: in descending frequency of their claims.
        observed: the slices of our driver on this node, by name, as the API server has them.
    """
    contents: dict[str, Json] = {}
    for at in range(0, len(counter_sets), MOST_COUNTER_SETS):
        name = slice_name(node, f"0-counters-{at // MOST_COUNTER_SETS}")
        contents[name] = {"sharedCounters": list(counter_sets[at : at + MOST_COUNTER_SETS])}
    for number, chunk in enumerate(_arranged(tuple(groups), _chunks(node, observed))):
        contents[_device_slice(node, number)] = {"devices": list(chunk)}

    generation = max((_generation(each) for each in observed.values()), default=0)
    is_same_pool = contents.keys() == observed.keys() and all(
        _generation(each) == generation for each in observed.values()
    )
    if is_same_pool:
        differing = [
            name
            for name in contents
            if _members(contents[name]) != _members(observed[name].get("spec", {}))
        ]
        is_same_pool = len(differing) <= 1
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


def _device_slice(node: str, number: int) -> str:
    return slice_name(node, f"1-devices-{number}")


def _chunks(node: str, observed: Mapping[str, Json]) -> list[list[str]]:
    """Return the names of the devices in each observed slice of devices."""
    found: list[list[str]] = []
    while (each := observed.get(_device_slice(node, len(found)))) is not None:
        devices = each.get("spec", {}).get("devices") or []
        found.append([device["name"] for device in devices])
    return found


def _arranged(groups: Sequence[Group], before: Sequence[Sequence[str]]) -> list[list[Json]]:
    """Return the devices of *groups* slice by slice, each slice in order.

    They keep the order of *before*, or at least their slices, while that leads the next claims to
    the right devices; by then there is another order.
    """
    bodies = {device["name"]: device for group in groups for device in group.devices}
    order = _laid_out(groups, [name for chunk in before for name in chunk])
    stayed = _stayed(order, before)
    rank = {name: at for at, name in enumerate(order)}
    options = [[sorted(chunk, key=rank.__getitem__) for chunk in stayed]]
    if stayed == [[*chunk] for chunk in before]:
        options.insert(0, stayed)
    chunks = [order[at : at + MOST_DEVICES] for at in range(0, len(order), MOST_DEVICES)]
    for option in options:
        if all(option) and _leads(groups, [name for chunk in option for name in chunk]):
            chunks = option
            break
    return [[bodies[name] for name in chunk] for chunk in chunks]


def _stayed(order: Iterable[str], before: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the devices of *order* in the slices of *before*, then new ones where there is room.

    A device that comes or goes so changes one slice.
    """
    wanted = dict.fromkeys(order)
    chunks = [[name for name in chunk if name in wanted] for chunk in before]
    seen = {name for chunk in chunks for name in chunk}
    for name in wanted:
        if name not in seen:
            free = next((chunk for chunk in chunks if len(chunk) < MOST_DEVICES), None)
            if free is None:
                chunks.append(free := [])
            free.append(name)
    return chunks


def _leads(groups: Iterable[Group], order: Sequence[str]) -> bool:
    """Return whether claims get the same devices from *order* as from *groups*."""
    for group in groups:
        able = group.able
        sought = frozenset(able if group.heads else ())
        met = [name for name in order if name in sought]
        for count in group.heads:
            if set(met[:count]) != set(able[:count]):
                return False
    return True


def _laid_out(groups: Sequence[Group], seen: Iterable[str]) -> list[str]:
    """Return the names of all devices in order.

    The best of each group, then the others, beginning with the group whose claims take several,
    then those that cannot be allocated, in the order *seen*.
    """
    several_first = sorted(groups, key=lambda group: -len(group.heads))
    able = [name for group in several_first for name in group.able]
    fronts = [group.able[0] for group in groups if group.heads and group.tried]
    every = [device["name"] for group in groups for device in group.devices]
    unable = set(every).difference(able)
    rest = [name for name in (*seen, *every) if name in unable]
    return [*dict.fromkeys((*fronts, *able, *rest))]


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


# Fields that an API server drops.
#
# A server drops the fields of a feature gate that is off without an error (kubernetes
# pkg/registry/resource/resourceslice/strategy.go, dropDisabledFields); a newer one adds fields.

LISTS = "lists"
"""The feature of attributes with several values; the other features are named after their field."""

_SPEC = ("driver", "nodeName", "pool", "sharedCounters", "devices")
_DEVICE = ("name", "attributes", "capacity", "consumesCounters", "taints")


def features(spec: Json) -> frozenset[str]:
    """Return the droppable fields that *spec*, a slice's specification, has."""
    found = {"sharedCounters"} if spec.get("sharedCounters") else set()
    for device in spec.get("devices") or ():
        found.update(name for name in ("consumesCounters", "taints") if device.get(name))
        attributes = (device.get("attributes") or {}).values()
        if any(isinstance(values, list) for it in attributes for values in it.values()):
            found.add(LISTS)
    return frozenset(found)


def has_scalars(spec: Json) -> bool:
    """Return whether *spec*, a slice's specification, has single values instead of lists."""
    devices = spec.get("devices") or ()
    return any("int" in (it.get("attributes") or {}).get(NUMA_NODE, {}) for it in devices)


def known_fields(spec: Json) -> Json:
    """Return *spec* without the fields that our driver never writes."""
    found = {name: spec[name] for name in _SPEC if name in spec}
    if "devices" in found:
        found["devices"] = [
            {name: device[name] for name in _DEVICE if name in device}
            for device in found["devices"]
        ]
    return found
