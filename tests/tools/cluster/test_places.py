"""Places and their names."""

from hypothesis import given
from hypothesis import strategies as st

from nodetopo.tools.cluster.node import ClusterNode
from nodetopo.tools.cluster.places import inner, is_dns_name, place_names, places, telling

KEYS = ("a/Row_1", "a/rack", "a/slot")

values = st.text("aAbB0-_.", min_size=1, max_size=63)
nodes = st.lists(st.tuples(values, values, values), min_size=1, max_size=12).map(
    lambda rows: tuple(
        ClusterNode(name=f"n{at}", labels=dict(zip(KEYS, row, strict=True)))
        for at, row in enumerate(rows)
    )
)


@given(nodes)
def test_every_node_is_in_one_place_of_each_level(cluster: tuple[ClusterNode, ...]) -> None:
    found = places(cluster, KEYS)
    for depth, key in enumerate(KEYS, start=1):
        level = [place for place in found if len(place.path) == depth]
        assert {place.key for place in level} == {key}
        assert sorted(node.name for place in level for node in place.nodes) == sorted(
            node.name for node in cluster
        )


@given(nodes)
def test_what_is_inside_a_place_has_its_nodes(cluster: tuple[ClusterNode, ...]) -> None:
    found = places(cluster, KEYS)
    for place in found:
        inside = inner(found).get(place.path, ())
        held = sorted(node.name for one in inside for node in one.nodes)
        assert held == sorted(node.name for node in place.nodes) or len(place.path) == len(KEYS)


@given(nodes, st.sampled_from(["", "gpu", "g" * 63]), st.sampled_from([63, 64, 253]))
def test_names_of_places_are_dns_names_of_the_length_asked_for_and_never_alike(
    cluster: tuple[ClusterNode, ...], stem: str, limit: int
) -> None:
    found = places(cluster, KEYS)
    names = place_names(found, stem, limit)
    assert all(is_dns_name(name) and len(name) <= limit for name in names.values())
    assert len(set(names.values())) == len(names) == len(found)


@given(nodes)
def test_a_place_keeps_its_name_whatever_the_order(cluster: tuple[ClusterNode, ...]) -> None:
    found = places(cluster, KEYS)
    assert place_names(found, "", 64) == place_names(found[::-1], "", 64)


def test_a_readable_name_is_kept_and_only_a_clash_is_digested() -> None:
    rows = (("x", "Rack_1"), ("x", "rack-1"), ("x", "b"))
    cluster = [
        ClusterNode(name=f"n{at}", labels=dict(zip(KEYS, row, strict=False)))
        for at, row in enumerate(rows)
    ]
    names = place_names(places(cluster, KEYS[:2]), "gpu", 63)
    assert names["x",] == "gpu-row-1-x"
    assert names["x", "b"] == "gpu-rack-b"
    clashed = {names["x", "Rack_1"], names["x", "rack-1"]}
    assert len(clashed) == 2
    assert all(name.startswith("gpu-rack-x") and len(name) > 20 for name in clashed)


def test_digests_tell_where_one_value_ends_and_the_next_begins() -> None:
    rows = (("a", "b" * 60), ("ab", "b" * 59))
    cluster = [
        ClusterNode(name=f"n{at}", labels=dict(zip(KEYS, row, strict=False)))
        for at, row in enumerate(rows)
    ]
    names = place_names(places(cluster, KEYS[:2]), "gpu", 63)
    assert names[rows[0]] != names[rows[1]]


def test_levels_that_divide_no_further_tell_nothing() -> None:
    rows = (("x", "1", "a"), ("x", "1", "b"), ("x", "2", "c"))
    cluster = [
        ClusterNode(name=f"n{at}", labels=dict(zip(KEYS, row, strict=True)))
        for at, row in enumerate(rows)
    ]
    assert telling(cluster, KEYS) == KEYS[1:]
    assert telling(cluster, ("a/rack", "a/Row_1")) == ("a/rack",)
