"""What the cluster's own objects ask of its levels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.cluster import kinds
from agent.cluster.gang import Gang
from agent.cluster.gang_objects import gangs_of
from agent.cluster.kinds import Kind
from agent.cluster.topology import Topology
from agent.formats.dig import full_name, mappings, text, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What was found.

    Attributes:
        topologies: those that name levels at all.
        gangs: those that have to stay within one place; their keys are label keys, as far as
            Topologies and HyperNodes tell.
    """

    topologies: tuple[Topology, ...] = ()
    gangs: tuple[Gang, ...] = ()


def demands(objects: Iterable[tuple[Kind, Mapping[str, Any]]]) -> Demands:
    """Return what *objects* of the schedulers ask for, in their order."""
    known = tuple(objects)
    found = [_topology(kind, one) for kind, one in known if kind in kinds.TOPOLOGIES]
    by_name = {one.name: one for one in found}
    tiers = _tiers(known)
    gangs = (gang for kind, one in known for gang in gangs_of(kind, one))
    return Demands(
        topologies=tuple(one for one in found if one.levels),
        gangs=tuple(_told(gang, by_name, tiers) for gang in gangs),
    )


def _topology(kind: Kind, found: Mapping[str, Any]) -> Topology:
    levels = [
        (text(one, "nodeLabel"), text(one, "alias")) for one in mappings(found, "spec", "levels")
    ]
    return Topology(
        name=f"{kind.name} {full_name(found)}",
        levels=tuple(key for key, _alias in levels if key),
        aliases={alias: key for key, alias in levels if key and alias},
    )


def _told(gang: Gang, topologies: Mapping[str, Topology], tiers: Mapping[str, str]) -> Gang:
    """Return *gang* with the label key that its level stands for, as far as that is known."""
    if not gang.is_of_kai:
        return replace(gang, key=tiers.get(gang.key, gang.key))
    topology = topologies.get(f"{kinds.KAI_TOPOLOGY.name} {gang.topology}")
    if topology is None:
        return replace(gang, topology=None, is_label=False)
    return replace(gang, topology=None, key=topology.aliases.get(gang.key, gang.key))


def _tiers(objects: Iterable[tuple[Kind, Mapping[str, Any]]]) -> Mapping[str, str]:
    """Return Volcano's tiers: number → name, a label key where its label discovery gave it.

    Only those that have one name: trees of several types may share a number.
    """
    names: dict[str, set[str]] = {}
    for kind, found in objects:
        tier, name = whole(found, "spec", "tier"), text(found, "spec", "tierName")
        if kind is kinds.HYPER_NODE and tier is not None and name:
            names.setdefault(f"tier {tier}", set()).add(name)
    return {tier: min(found) for tier, found in names.items() if len(found) == 1}
