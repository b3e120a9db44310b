"""Gangs as the schedulers' own objects tell of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agent.cluster import kinds
from agent.cluster.gang import Gang
from agent.cluster.gang_kai import kai_gangs
from agent.cluster.kinds import Kind
from agent.cluster.pod_gpus import GPU, amount, pod_gpus, together
from agent.formats.dig import dig, full_name, mappings, text, whole

Found = Mapping[str, Any]
"""An object, as the API server or a file has it."""

_LWS = "leaderworkerset.sigs.k8s.io"


def gangs_of(kind: Kind, found: Found) -> tuple[Gang, ...]:
    """Return the gangs that have to stay within one place, as an object of *kind* tells.

    Soft and preferred levels bind nobody and are left out, and so is what has ended or is being
    deleted. KAI's levels may be aliases, and Volcano's names of tiers or their numbers:
    ``tier <n>``.
    """
    read = None if text(found, "metadata", "deletionTimestamp") else _READERS.get(kind)
    return () if read is None else tuple(read(f"{kind.name} {full_name(found)}", found))


def _kubernetes(name: str, found: Found) -> Iterator[Gang]:
    size = whole(found, "spec", "schedulingPolicy", "gang", "minCount")
    for one in mappings(found, "spec", "schedulingConstraints", "topology"):
        key = text(one, "key")
        if key and size:
            yield Gang(name=name, size=size, key=key)


def _kueue(name: str, found: Found) -> Iterator[Gang]:
    if _is_true(found, "Finished") or dig(found, "spec", "active") is False:
        return
    groups: dict[tuple[str, str], list[Found]] = {}
    for number, pod_set in enumerate(mappings(found, "spec", "podSets")):
        request = dig(pod_set, "topologyRequest")
        for key, size in (
            (text(request, "podSetSliceRequiredTopology"), whole(request, "podSetSliceSize")),
            *(
                (text(one, "topology"), whole(one, "size"))
                for one in mappings(request, "podsetSliceRequiredTopologyConstraints")
            ),
        ):
            if key and size:
                whose = f"{name} ({text(pod_set, 'name')})"
                yield Gang(name=whose, size=size, key=key, gpus=_gpus(pod_set, "template"))
        group = text(request, "podSetGroupName") or f"/{number}"  # no name has a slash
        if required := text(request, "required"):
            groups.setdefault((group, required), []).append(pod_set)
    for (_group, required), pod_sets in groups.items():
        yield from _kueue_group(name, required, pod_sets)


def _kueue_group(name: str, key: str, pod_sets: Sequence[Found]) -> Iterator[Gang]:
    """Yield the gang of pod sets that Kueue puts into one place, as a leader and its workers."""
    size, gpus = together(
        (whole(one, "minCount") or whole(one, "count") or 0, _gpus(one, "template"))
        for one in pod_sets
    )
    if size:
        whose = f"{name} ({', '.join(str(text(one, 'name')) for one in pod_sets)})"
        yield Gang(name=whose, size=size, key=key, gpus=gpus)


def _gpus(found: Any, template: str) -> int | None:
    """Return the GPUs of a pod of the *template* in *found*; ``None`` where there is none."""
    pod = dig(found, template)
    return pod_gpus(pod) if isinstance(pod, Mapping) else None


def _is_true(found: Found, kind: str) -> bool:
    conditions = mappings(found, "status", "conditions")
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions)


def _volcano(name: str, found: Found) -> Iterator[Gang]:
    if text(found, "status", "phase") == "Completed":
        return
    spec = dig(found, "spec")
    size = whole(spec, "minMember")
    total = amount(dig(spec, "minResources", GPU))
    # A launcher and its workers are not alike; a Job's tasks all stand in minTaskMember.
    tasks = dig(spec, "minTaskMember")
    are_alike = not isinstance(tasks, Mapping) or len(tasks) <= 1
    gpus = total // size if are_alike and total and size and total % size == 0 else None
    for one, members in (
        (spec, size),
        *((part, whole(part, "subGroupSize")) for part in mappings(spec, "subGroupPolicy")),
    ):
        key = _volcano_level(dig(one, "networkTopology"))
        if key and members:
            whose = name if one is spec else f"{name} ({text(one, 'name')})"
            yield Gang(name=whose, size=members, key=key, gpus=gpus, is_label=False)


def _volcano_level(request: Any) -> str | None:
    if not isinstance(request, Mapping) or request.get("mode", "hard") != "hard":
        return None
    tier = whole(request, "highestTierAllowed")
    return text(request, "highestTierName") or (None if tier is None else f"tier {tier}")


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


_READERS: Mapping[Kind, Callable[[str, Found], Iterator[Gang]]] = {
    kinds.KAI_POD_GROUP: kai_gangs,
    kinds.POD_GROUP: _kubernetes,
    kinds.WORKLOAD: _kueue,
    kinds.VOLCANO_POD_GROUP: _volcano,
    kinds.LEADER_WORKER_SET: _lws,
}
"""Fields as of k8s.io/api v0.36.3 scheduling/v1alpha2; Kueue
v0.19.2 workload_types.go; volcano.sh/apis v1.14.0 scheduling/v1beta1; LWS v0.9.0
leaderworkerset_types.go."""
