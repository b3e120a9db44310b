"""Names, label keys and selectors: where the rules end, and what a selector matches."""

import pytest

from nodetopo.errors import DecodeError
from nodetopo.probes.pods.names import (
    check_key,
    check_label,
    check_label_value,
    check_metadata,
    check_selector,
    check_subdomain,
    selects,
)


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a--b", "a" * 63])
def test_a_label_is_accepted(name: str) -> None:
    check_label(name, "x")
    check_subdomain(name, "x")


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "é", "a\n", "٣", "a" * 64])
def test_a_name_is_refused(name: str) -> None:
    with pytest.raises(DecodeError, match="the API server refuses"):
        check_label(name, "x")


def test_a_subdomain_has_dots_and_a_label_has_not() -> None:
    check_subdomain("a.b", "x")
    with pytest.raises(DecodeError, match="label"):
        check_label("a.b", "x")
    with pytest.raises(DecodeError, match="253"):
        check_subdomain("a" * 254, "x")


@pytest.mark.parametrize("key", ["", "/a", "a/", "a/b/c", "A.b/c", "-a", "a b", "a/" + "b" * 64])
def test_a_key_is_refused(key: str) -> None:
    with pytest.raises(DecodeError, match="the API server refuses"):
        check_key(key, "x")


def test_the_value_of_a_label_may_be_empty() -> None:
    check_label_value("", "x")
    check_label_value("X_1.y", "x")
    with pytest.raises(DecodeError):
        check_label_value("a b", "x")


def test_a_name_that_is_generated_has_room_for_its_end() -> None:
    assert check_metadata({"metadata": {"generateName": f"{'a' * 70}-"}}) == "a" * 58 + "00000"
    with pytest.raises(DecodeError, match=r"metadata\.name: the API server refuses this: Required"):
        check_metadata({"metadata": {"name": ""}})


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ["x", "y"], True),
        ("In", ["y"], False),
        ("NotIn", ["y"], True),
        ("NotIn", ["x"], False),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ],
)
def test_a_selector_matches_by_expression(
    operator: str, values: list[str] | None, *, matches: bool
) -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}
    check_selector(selector, "spec.selector")
    assert selects(selector, {"app": "x"}) is matches


def test_a_selector_matches_by_all_that_it_states() -> None:
    selector = {"matchLabels": {"a": "1", "b": "2"}}
    assert selects(selector, {"a": "1", "b": "2", "c": "3"})
    assert not selects(selector, {"a": "1"})
    assert selects({}, {})
