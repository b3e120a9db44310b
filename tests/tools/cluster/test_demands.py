"""What levels and gangs the objects of several schedulers make together."""

from typing import Any

from nodetopo.tools.cluster import kinds
from nodetopo.tools.cluster.cluster import Topology
from nodetopo.tools.cluster.demands import demands
from nodetopo.tools.cluster.kinds import ObjectKind

KEY = "nvidia.com/gpu.clique"


def named(name: str, spec: object) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def topology(name: str, key: str, alias: str) -> tuple[ObjectKind, dict[str, Any]]:
    levels = [{"nodeLabel": "a/zone"}, {"nodeLabel": key, "alias": alias}]
    return kinds.KAI_TOPOLOGY, named(name, {"levels": levels})


def of_kai(within: str, key: str) -> tuple[ObjectKind, dict[str, Any]]:
    constraint = {"requiredTopologyLevel": key, "topology": within}
    return kinds.KAI_POD_GROUP, named("it", {"minMember": 2, "topologyConstraint": constraint})


def of_volcano(**request: object) -> tuple[ObjectKind, dict[str, Any]]:
    return kinds.VOLCANO_POD_GROUP, named("it", {"minMember": 4, "networkTopology": request})


def hyper_node(tier: int, name: str) -> tuple[ObjectKind, dict[str, Any]]:
    return kinds.HYPER_NODE, named("h", {"tier": tier, "tierName": name})


def keys(*objects: tuple[ObjectKind, dict[str, Any]]) -> list[tuple[str, bool]]:
    return [(gang.key, gang.is_label) for gang in demands(objects).gangs]


def test_an_alias_is_that_of_the_topology_which_the_gang_names() -> None:
    nvl72, hosts = topology("nvl72", KEY, "rack"), topology("hosts", "a/host", "rack")
    found = keys(of_kai("nvl72", "rack"), of_kai("hosts", "rack"), of_kai("hosts", KEY))
    assert found == [("rack", False), ("rack", False), (KEY, False)]
    found = keys(nvl72, hosts, of_kai("nvl72", "rack"), of_kai("hosts", "rack"))
    assert found == [(KEY, True), ("a/host", True)]


def test_a_topology_without_levels_is_none() -> None:
    empty = (kinds.KAI_TOPOLOGY, named("empty", {}))
    assert demands([empty, topology("nvl72", KEY, "rack")]).topologies == (
        Topology(name="KAI Topology nvl72", levels=("a/zone", KEY), aliases={"rack": KEY}),
    )


def test_a_number_of_a_tier_is_the_name_that_hyper_nodes_give_it() -> None:
    asked = of_volcano(mode="hard", highestTierAllowed=1)
    assert keys(asked, hyper_node(1, KEY), hyper_node(2, "a/zone")) == [(KEY, False)]
    assert keys(asked) == [("tier 1", False)]


def test_a_number_of_a_tier_with_two_names_stays_a_number() -> None:
    asked = of_volcano(highestTierAllowed=1)
    assert keys(asked, hyper_node(1, KEY), hyper_node(1, "a/leaf")) == [("tier 1", False)]
