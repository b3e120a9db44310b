"""Gangs as KAI's PodGroups tell of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.cluster.gang import Gang
from agent.formats.dig import dig, mappings, text, whole

_MAX_DEPTH = 16
"""Groups inside groups that are followed; Grove, which makes the deepest, has three."""


def kai_gangs(name: str, found: Mapping[str, Any]) -> Iterator[Gang]:
    """Yield the gangs of the PodGroup *found*: of the whole, and of each part with a level.

    Fields as of KAI v0.12.0 and v0.17.0 podgroup_types.go. A level may be an alias of its
    Topology; where none is named KAI passes over the level (v0.12.0
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
    """Return the pods that have to run at once: its own least, or that of the parts inside.

    Of those, the smallest that suffice where ``minSubGroup`` says how many do.
    """
    own = whole(one, "minMember") or 0
    if depth == _MAX_DEPTH or (depth and name is None):
        return own
    inside = [part for part in parts if text(part, "parent") == name]
    sizes = sorted(_size(part, text(part, "name"), parts, depth + 1) for part in inside)
    enough = whole(one, "minSubGroup")
    return max(own, sum(sizes if enough is None else sizes[: max(enough, 0)]))
