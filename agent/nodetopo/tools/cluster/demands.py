"""The demands of the cluster's own objects on its levels."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.formats.fields import dig, full_name, mappings, text, whole
from nodetopo.model.digits import is_digits
from nodetopo.model.kubernetes import GPU_RESOURCE
from nodetopo.tools.cluster import kinds
from nodetopo.tools.cluster.cluster import Gang, Topology
from nodetopo.tools.cluster.kinds import ObjectKind

# Gangs as KAI's PodGroups tell of them.

_MAX_DEPTH = 16
"""Groups inside groups that are followed; Grove, which makes the deepest, has three."""


def kai_gangs(name: str, found: Mapping[str, Any]) -> Iterator[Gang]:
    """Yield the gangs of the PodGroup *found*: of the whole, and of each part with a level.

    Fields as of KAI v0.12.0 and v0.17.0 podgroup_types.go. A level can be an alias of its Topology;
    without a named Topology, KAI ignores the level (v0.12.0
    pkg/scheduler/plugins/topology/job_filtering.go, getJobTopology).
    """
    spec = dig(found, "spec")
    parts = mappings(spec, "subGroups")
    for one in (spec, *parts):
        constraint = dig(one, "topologyConstraint")
        key, topology = text(constraint, "requiredTopologyLevel"), text(constraint, "topology")
        size = _size(one, None if one is spec else text(one, "name"), parts, 0)
        if key and topology and size:
            part = "" if one is spec else f" ({text(one, 'name')})"
            yield Gang(
                name=name + part,
                size=size,
                key=key,
                is_of_kai=True,
                topology=topology,
            )


def _size(one: Any, name: str | None, parts: Sequence[Mapping[str, Any]], depth: int) -> int:
    """Return the minimum of simultaneous pods: its own minimum, or the sum over its parts.

    With ``minSubGroup``, only that number of the smallest parts counts.
    """
    own = whole(one, "minMember") or 0
    if depth == _MAX_DEPTH or (depth and name is None):
        return own
    inside = [part for part in parts if text(part, "parent") == name]
    sizes = sorted(_size(part, text(part, "name"), parts, depth + 1) for part in inside)
    enough = whole(one, "minSubGroup")
    return max(own, sum(sizes if enough is None else sizes[: max(enough, 0)]))


# The whole GPUs that a pod requests.


def pod_gpus(template: Mapping[str, Any]) -> int | None:
    """Return the GPUs that a pod of *template* needs at once; ``None`` if unknown.

    It counts like the scheduler: containers together, or the largest init container if that is more
    (Kubernetes "Init Containers", resource sharing). Devices by claim are not counted, so a pod
    with only such requests is unknown.
    """
    own = [_asked(container) for container in mappings(template, "spec", "containers")]
    first = [_asked(container) for container in mappings(template, "spec", "initContainers")]
    amounts = [amount for amount in (*own, *first) if amount is not None]
    if not own or len(amounts) < len(own) + len(first):
        return None
    needed = max(sum(amounts[: len(own)]), *amounts[len(own) :], 0)
    return needed or (None if dig(template, "spec", "resourceClaims") else 0)


def together(parts: Iterable[tuple[int, int | None]]) -> tuple[int, int | None]:
    """Return the pods with GPUs and the GPUs of each, from *parts*: pods, GPUs of a pod.

    Pods without GPUs fit anywhere and are not counted. ``None`` for GPUs if unknown or unequal.
    """
    known = tuple(parts)
    with_gpus = [part for part in known if part[1] != 0]
    counted = with_gpus or known
    amounts = {gpus for _pods, gpus in counted}
    size = sum(pods for pods, _gpus in counted)
    return size, amounts.pop() if len(amounts) == 1 else None


def amount(quantity: Any) -> int | None:
    """Return a number of GPUs as Kubernetes writes it, ``8`` or ``"8"``; ``None`` if it is none."""
    if isinstance(quantity, str) and is_digits(quantity):
        return int(quantity[:9])
    return quantity if type(quantity) is int else None


def _asked(container: Mapping[str, Any]) -> int | None:
    """Return the GPUs of one container; limits and requests of GPUs are equal where both are."""
    for kind in ("limits", "requests"):
        quantity = dig(container, "resources", kind, GPU_RESOURCE)
        if quantity is not None:
            return amount(quantity)
    return 0


# Gangs as the schedulers' own objects tell of them.

Found = Mapping[str, Any]
"""An object, as the API server or a file has it."""


_LWS = "leaderworkerset.sigs.k8s.io"


def gangs_of(kind: ObjectKind, found: Found) -> tuple[Gang, ...]:
    """Return the gangs in an object of *kind* that must stay within one place.

    Soft and preferred levels are not binding and are left out, as are objects that have ended or
    are being deleted. KAI's levels can be aliases, and Volcano's can be names of tiers or their
    numbers: ``tier <n>``.
    """
    read = None if text(found, "metadata", "deletionTimestamp") else _READERS.get(kind)
    return () if read is None else tuple(read(f"{kind.name} {full_name(found)}", found))


def _kubernetes(name: str, found: Found) -> Iterator[Gang]:
    size = whole(found, "spec", "schedulingPolicy", "gang", "minCount")
    for constraint in mappings(found, "spec", "schedulingConstraints", "topology"):
        key = text(constraint, "key")
        if key and size:
            yield Gang(name=name, size=size, key=key)


def _kueue(name: str, found: Found) -> Iterator[Gang]:
    is_finished = any(
        condition.get("type") == "Finished" and condition.get("status") == "True"
        for condition in mappings(found, "status", "conditions")
    )
    if is_finished or dig(found, "spec", "active") is False:
        return
    groups: dict[tuple[str, str], list[Found]] = {}
    for number, pod_set in enumerate(mappings(found, "spec", "podSets")):
        request = dig(pod_set, "topologyRequest")
        for key, size in (
            (text(request, "podSetSliceRequiredTopology"), whole(request, "podSetSliceSize")),
            *(
                (text(constraint, "topology"), whole(constraint, "size"))
                for constraint in mappings(request, "podsetSliceRequiredTopologyConstraints")
            ),
        ):
            if key and size:
                whose = f"{name} ({text(pod_set, 'name')})"
                yield Gang(name=whose, size=size, key=key, gpus=_gpus(pod_set, "template"))
        group = text(request, "podSetGroupName") or f"/{number}"  # no name has a slash
        if required := text(request, "required"):
            groups.setdefault((group, required), []).append(pod_set)
    for (_group, required), pod_sets in groups.items():
        # Kueue puts them into one place, as a leader and its workers.
        size, gpus = together(
            (whole(pod_set, "minCount") or whole(pod_set, "count") or 0, _gpus(pod_set, "template"))
            for pod_set in pod_sets
        )
        if size:
            whose = f"{name} ({', '.join(str(text(pod_set, 'name')) for pod_set in pod_sets)})"
            yield Gang(name=whose, size=size, key=required, gpus=gpus)


def _gpus(found: Any, template: str) -> int | None:
    """Return the GPUs of a pod of the *template* in *found*; ``None`` without a template."""
    pod = dig(found, template)
    return pod_gpus(pod) if isinstance(pod, Mapping) else None


def _volcano(name: str, found: Found) -> Iterator[Gang]:
    if text(found, "status", "phase") == "Completed":
        return
    spec = dig(found, "spec")
    size = whole(spec, "minMember")
    total = amount(dig(spec, "minResources", GPU_RESOURCE))
    # A launcher and its workers differ; all of a Job's tasks are in minTaskMember.
    tasks = dig(spec, "minTaskMember")
    are_alike = not isinstance(tasks, Mapping) or len(tasks) <= 1
    gpus = total // size if are_alike and total and size and total % size == 0 else None
    for one, members in (
        (spec, size),
        *((part, whole(part, "subGroupSize")) for part in mappings(spec, "subGroupPolicy")),
    ):
        request = dig(one, "networkTopology")
        if not isinstance(request, Mapping) or request.get("mode", "hard") != "hard":
            continue
        tier = whole(request, "highestTierAllowed")
        key = text(request, "highestTierName") or (None if tier is None else f"tier {tier}")
        if key and members:
            whose = name if one is spec else f"{name} ({text(one, 'name')})"
            yield Gang(name=whose, size=members, key=key, gpus=gpus, is_label=False)


def _lws(name: str, found: Found) -> Iterator[Gang]:
    template = dig(found, "spec", "leaderWorkerTemplate")
    annotations = dig(found, "metadata", "annotations")
    size = whole(template, "size") or 1
    part = whole(template, "subGroupPolicy", "subGroupSize") or 0
    workers = _gpus(template, "workerTemplate")
    leader = _gpus(template, "leaderTemplate") if dig(template, "leaderTemplate") else workers
    group = together(((1, leader), (size - 1, workers)) if size > 1 else ((1, leader),))
    for key, (pods, gpus) in (
        (text(annotations, f"{_LWS}/exclusive-topology"), group),
        # All but the first of several parts are workers alone.
        (
            text(annotations, f"{_LWS}/subgroup-exclusive-topology"),
            (part, workers) if part < size else group,
        ),
    ):
        if key and pods:
            yield Gang(name=name, size=pods, key=key, gpus=gpus)


_READERS: Mapping[ObjectKind, Callable[[str, Found], Iterator[Gang]]] = {
    kinds.KAI_POD_GROUP: kai_gangs,
    kinds.POD_GROUP: _kubernetes,
    kinds.WORKLOAD: _kueue,
    kinds.VOLCANO_POD_GROUP: _volcano,
    kinds.LEADER_WORKER_SET: _lws,
}
"""Fields as of k8s.io/api v0.36.3 scheduling/v1alpha2; Kueue
v0.19.2 workload_types.go; volcano.sh/apis v1.14.0 scheduling/v1beta1; LWS v0.9.0
leaderworkerset_types.go."""


class Demands(Struct, frozen=True, kw_only=True):
    """Topologies and gangs of the schedulers' objects."""

    topologies: tuple[Topology, ...] = ()  # that name levels
    # That must stay within one place; their keys are label keys if Topologies and HyperNodes define
    # them.
    gangs: tuple[Gang, ...] = ()


def demands(objects: Iterable[tuple[ObjectKind, Mapping[str, Any]]]) -> Demands:
    """Return the demands in *objects* of the schedulers, in their order."""
    known = tuple(objects)
    topologies: list[Topology] = []
    for kind, found in known:
        if kind in kinds.TOPOLOGIES:
            levels = [
                (text(level, "nodeLabel"), text(level, "alias"))
                for level in mappings(found, "spec", "levels")
            ]
            topologies.append(
                Topology(
                    name=f"{kind.name} {full_name(found)}",
                    levels=tuple(key for key, _alias in levels if key),
                    aliases={alias: key for key, alias in levels if key and alias},
                )
            )
    by_name = {topology.name: topology for topology in topologies}
    tiers = _tiers(known)
    gangs = (gang for kind, found in known for gang in gangs_of(kind, found))
    return Demands(
        topologies=tuple(topology for topology in topologies if topology.levels),
        gangs=tuple(_with_label_key(gang, by_name, tiers) for gang in gangs),
    )


def _with_label_key(
    gang: Gang, topologies: Mapping[str, Topology], tiers: Mapping[str, str]
) -> Gang:
    """Return *gang* with the label key of its level, if known."""
    if not gang.is_of_kai:
        return replace(gang, key=tiers.get(gang.key, gang.key))
    topology = topologies.get(f"{kinds.KAI_TOPOLOGY.name} {gang.topology}")
    if topology is None:
        return replace(gang, topology=None, is_label=False)
    return replace(gang, topology=None, key=topology.aliases.get(gang.key, gang.key))


def _tiers(objects: Iterable[tuple[ObjectKind, Mapping[str, Any]]]) -> Mapping[str, str]:
    """Return Volcano's tiers: number → name, a label key if from its label discovery.

    Only tiers with one name: trees of several types can share a number.
    """
    names: dict[str, set[str]] = {}
    for kind, found in objects:
        tier, name = whole(found, "spec", "tier"), text(found, "spec", "tierName")
        if kind is kinds.HYPER_NODE and tier is not None and name:
            names.setdefault(f"tier {tier}", set()).add(name)
    return {tier: min(known) for tier, known in names.items() if len(known) == 1}
