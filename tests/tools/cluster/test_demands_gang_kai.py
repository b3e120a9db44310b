"""Gangs as KAI's PodGroups tell of them."""

from typing import Any

import pytest

from nodetopo.tools.cluster import kinds
from nodetopo.tools.cluster.cluster import Gang
from nodetopo.tools.cluster.demands import gangs_of

KEY = "nvidia.com/gpu.clique"
CONSTRAINT = {"requiredTopologyLevel": KEY, "topology": "nvl72"}


def sizes(spec: dict[str, Any]) -> list[tuple[str, int]]:
    found = {"metadata": {"namespace": "ml", "name": "it"}, "spec": spec}
    gangs = gangs_of(kinds.KAI_POD_GROUP, found)
    return [(gang.name.removeprefix("KAI PodGroup ml/it"), gang.size) for gang in gangs]


def part(name: str, **more: object) -> dict[str, Any]:
    return {"name": name, **more}


def test_a_pod_group_and_its_parts_each_have_a_level_of_their_own() -> None:
    zone = {"requiredTopologyLevel": "a/zone", "topology": "nvl72"}
    hard = part("b", minMember=4, topologyConstraint=CONSTRAINT)
    soft = part("c", minMember=2, topologyConstraint={"preferredTopologyLevel": KEY})
    spec = {"minMember": 8, "topologyConstraint": zone, "subGroups": [hard, soft]}
    found = {"metadata": {"namespace": "ml", "name": "it"}, "spec": spec}
    name = "KAI PodGroup ml/it"
    assert gangs_of(kinds.KAI_POD_GROUP, found) == (
        Gang(name=name, size=8, key="a/zone", is_of_kai=True, topology="nvl72"),
        Gang(name=f"{name} (b)", size=4, key=KEY, is_of_kai=True, topology="nvl72"),
    )


def test_a_level_of_no_topology_binds_nobody() -> None:
    constraint = {"requiredTopologyLevel": KEY}
    assert sizes({"minMember": 8, "topologyConstraint": constraint}) == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [({}, 9), ({"minMember": 4}, 9), ({"minSubGroup": 2}, 5), ({"minSubGroup": 0}, None)],
)
def test_the_whole_is_no_smaller_than_the_parts_that_have_to_run(
    more: dict[str, Any], expected: int | None
) -> None:
    parts = [part("a", minMember=4), part("b", minMember=3), part("c", minMember=2)]
    found = sizes({**more, "topologyConstraint": CONSTRAINT, "subGroups": parts})
    assert found == ([] if expected is None else [("", expected)])


def test_parts_of_parts_are_counted_with_the_part_around_them() -> None:
    inner = [part("a", parent="outer", minMember=4), part("b", parent="outer", minMember=3)]
    outer = part("outer", topologyConstraint=CONSTRAINT)
    assert sizes({"subGroups": [outer, *inner, part("c", minMember=9)]}) == [(" (outer)", 7)]


def test_parts_around_one_another_come_to_an_end() -> None:
    first = part("a", parent="b", topologyConstraint=CONSTRAINT, minMember=1)
    assert sizes({"subGroups": [first, part("b", parent="a", minMember=2)]}) == [(" (a)", 2)]
