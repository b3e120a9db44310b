"""A file that says where nodes stand."""

from typing import Any

import pytest

from nodetopo.components.labels.levels import LevelFile, file_tiers, level_file
from nodetopo.errors import InputError

RACKS = {"labels": ["example.com/rack", "example.com/block"]}
PLACES = {"example.com/rack": "r2", "example.com/block": "b3"}


def tiers(document: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, str]:
    return file_tiers(level_file(document), "gpu-17", labels or {})


def test_labels_name_the_tiers_from_the_nearest() -> None:
    assert tiers({**RACKS, "qualified": False}, PLACES) == {"tier-0": "r2", "tier-1": "b3"}


def test_racks_of_two_blocks_are_told_apart_unless_the_file_says_otherwise() -> None:
    assert tiers(RACKS, PLACES) == {"tier-0": "b3__r2", "tier-1": "b3"}


def test_a_node_that_the_file_names_needs_no_labels() -> None:
    document = {**RACKS, "nodes": {"gpu-17": ["r9", "b9"], "gpu-18": ["r1", "b1"]}}
    assert tiers(document, PLACES) == {"tier-0": "b9__r9", "tier-1": "b9"}


def test_a_node_that_the_file_does_not_name_is_where_its_labels_say() -> None:
    document = {**RACKS, "nodes": {"gpu-18": ["r1", "b1"]}}
    assert tiers(document, PLACES) == {"tier-0": "b3__r2", "tier-1": "b3"}


def test_below_a_place_that_is_not_known_nothing_is_told_apart() -> None:
    assert tiers(RACKS, {"example.com/rack": "r2"}) == {}
    assert tiers(RACKS, {"example.com/block": "b3"}) == {"tier-1": "b3"}


def test_a_rack_without_a_block_stands_where_names_need_no_telling_apart() -> None:
    document = {**RACKS, "qualified": False}
    assert tiers(document, {"example.com/rack": "r2"}) == {"tier-0": "r2"}


def test_a_number_in_the_file_is_a_name() -> None:
    assert tiers({"nodes": {"gpu-17": [12, 3]}}) == {"tier-0": "3__12", "tier-1": "3"}


def test_an_unnamed_node_has_the_tiers_of_its_labels() -> None:
    file = LevelFile(labels=("example.com/rack",))
    assert file_tiers(file, None, PLACES) == {"tier-0": "r2"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "levels: not a mapping"),
        ({"lables": []}, "did you mean 'labels'"),
        ({7: []}, "unknown field 7 — known are: labels, nodes, qualified"),
        ({"labels": "rack"}, "levels.labels: not a list of up to 8"),
        ({"labels": ["k"] * 9}, "levels.labels: not a list of up to 8"),
        ({"labels": [True]}, r"levels.labels\[0\]: not a name: True"),
        ({"nodes": []}, "levels.nodes: not a mapping"),
        ({"nodes": {"n": "r1"}}, "levels.nodes.n: not a list"),
        ({"nodes": {"n": ["r1", ""]}}, r"levels.nodes.n\[1\]: not a name: ''"),
        ({"nodes": {"n": [1.5]}}, r"levels.nodes.n\[0\]: not a name: 1.5"),
        ({"qualified": "no"}, "levels.qualified: 'no'"),
    ],
)
def test_a_file_that_says_something_else_is_refused_with_the_place(
    document: Any,
    message: str,
) -> None:
    with pytest.raises(InputError, match=message):
        level_file(document)
