"""Names of places as values that no scheduler mistakes for another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.components.labels.levels import digest, level_value, qualified
from tests.components.labels.test_label import VALUE

NAMES = st.text("ab1_-.", min_size=1, max_size=30)
LONG = "S3very-very-long-id-to-check-label-value-limits-of-63-characters"
"""Of Topograph's own tests (pkg/translate), which expect ``xf946c4acef2d5939`` for it."""


def test_a_long_name_becomes_the_digest_that_topograph_writes() -> None:
    assert level_value(LONG) == "xf946c4acef2d5939"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "xcbf29ce484222325"), ("a", "xaf63dc4c8601ec8c"), ("foobar", "x85944171f73967e8")],
)
def test_the_digest_is_fnv_1a(text: str, expected: str) -> None:
    # The test vectors of draft-eastlake-fnv, appendix C.
    assert digest(text) == expected


@pytest.mark.parametrize("name", ["leaf-3", "7", "nn-e50490a237cb0f01a", "b3_r2", "a" * 63])
def test_a_plain_name_stays_as_it_is(name: str) -> None:
    assert level_value(name) == name


@pytest.mark.parametrize("name", ["r.1", "a" * 64, "rack 7", "-r1", "r1-", "\N{SNOWMAN}", "a\n"])
def test_a_name_that_a_label_cannot_hold_becomes_its_digest(name: str) -> None:
    assert level_value(name) == digest(name)


def test_half_a_character_is_a_name_too() -> None:
    assert level_value("\ud800") == digest("\ud800") != digest("\ud801")


def test_an_empty_name_has_no_value() -> None:
    assert level_value("") is None


@given(st.text(min_size=1))
def test_any_name_becomes_a_value_without_a_dot(name: str) -> None:
    value = level_value(name) or ""
    assert VALUE.fullmatch(value)
    assert "." not in value


def test_a_place_is_told_apart_by_those_around_it() -> None:
    assert (qualified(["b3"]), qualified(["b3", "r2"])) == ("b3", "b3__r2")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a__b"], ["a", "b"]),
        (["a_", "b"], ["a", "_b"]),
        (["x", "a/b."], ["x/a", "b."]),
        (["a.b", "c"], ["a", "b.c"]),
        (["b" * 40, "r1"], ["b" * 40, "r2"]),
    ],
)
def test_names_that_only_look_alike_have_values_of_their_own(
    one: list[str],
    other: list[str],
) -> None:
    assert qualified(one) != qualified(other)


def test_a_place_too_long_to_join_becomes_a_digest() -> None:
    assert qualified(["b" * 40, "r" * 40]) == digest(f"40:{'b' * 40}40:{'r' * 40}")


@given(st.lists(NAMES, min_size=1, max_size=3), st.lists(NAMES, min_size=1, max_size=3))
def test_two_places_never_share_a_value(one: list[str], other: list[str]) -> None:
    assert (qualified(one) == qualified(other)) == (one == other)


@given(st.lists(NAMES, min_size=1, max_size=8))
def test_a_qualified_name_is_a_value_without_a_dot(names: list[str]) -> None:
    assert VALUE.fullmatch(qualified(names))
    assert "." not in qualified(names)
