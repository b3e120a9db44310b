"""YAML with Kubernetes' meaning, and YAML that is meant to hurt."""

import re
from typing import Any

import pytest

from agent.formats.yaml import MAX_CHARACTERS, load, load_all

WORDS: list[tuple[str, Any]] = [
    ("y", True),
    ("Yes", True),
    ("ON", True),
    ("n", False),
    ("off", False),
    ("yEs", "yEs"),
    ("~", None),
    ("Null", None),
    ("1_000", 1000),
    ("0x10", 16),
    ("010", 8),
    ("-010", -8),
    ("0o17", 15),
    ("0b101", 5),
    ("08", 8.0),
    ("+3", 3),
    ("1e3", 1000.0),
    (".5", 0.5),
    ("1:30", "1:30"),
    ("2024-01-01", "2024-01-01"),
    ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
    ("0-3", "0-3"),
    ("1.2.3", "1.2.3"),
    ("1Gi", "1Gi"),
    ("=", "="),
    ("'1'", "1"),
    ('"yes"', "yes"),
    ("!!str 1", "1"),
    ("18446744073709551615", 18446744073709551615),
    ("18446744073709551616", 18446744073709551616.0),
    ("1e999", "1e999"),
]


@pytest.mark.parametrize(("word", "meaning"), WORDS, ids=[word for word, _ in WORDS])
def test_a_word_means_what_it_means_to_kubernetes(word: str, meaning: Any) -> None:
    found = load(f"a: {word}\n")["a"]
    assert (found, type(found)) == (meaning, type(meaning))


def test_keys_are_texts() -> None:
    assert load("1: a\ntrue: b\n2.5: c\n") == {"1": "a", "true": "b", "2.5": "c"}


def test_aliases_and_merges_are_resolved() -> None:
    text = "a: &x {k: 1}\nb: *x\nc: {<<: *x, m: 2}\n"
    assert load(text) == {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "m": 2}}


def test_documents_come_in_order() -> None:
    assert load_all("a: 1\n---\n---\n- b\n") == [{"a": 1}, None, ["b"]]
    assert load_all("") == []
    assert load("") is None


def test_several_documents_are_not_one() -> None:
    with pytest.raises(ValueError, match="2 documents where one is expected"):
        load("a: 1\n---\nb: 2\n")


def test_json_that_tabs_indent_is_read() -> None:
    assert load('\n{\n\t"a": [1]\n}') == {"a": [1]}


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "more than 100000 nodes, aliases resolved in line 5"),
        ("[" + "a," * 150_000 + "]", "more than 100000 nodes, aliases resolved in line 1"),
        ("[" * 65 + "]" * 65, "nested more than 64 deep in line 1"),
        ("- " * 65 + "a", "nested more than 64 deep in line 1"),
        ("a: &a\n- *a", "an alias inside what it stands for in line 2"),
        ("a: *b", "not YAML: found undefined alias in line 1"),
        ("#" * (MAX_CHARACTERS + 1), "larger than 2 Mi characters"),
        ("a: b\n\tc: d", "not YAML: found a tab character that violates indentation in line 2"),
        ("a: 1\nb: @", "not YAML: found character that cannot start any token in line 2"),
        ("a: !!int one", "not YAML: not a whole number in line 1"),
        ("a: !!bool perhaps", "not YAML: not a boolean in line 1"),
        ("a: .inf", "not YAML: not a number that JSON has in line 1"),
        ("a: !!binary aGk=", "not YAML: could not determine a constructor for the tag"),
        ("a: !!python/object:os.system x", "not YAML: could not determine a constructor"),
        ("? [1]\n: 2", "not YAML: a key that is list in line 1"),
        ("a: !!map b", "not YAML: not a map in line 1"),
        ("~: 1", "not YAML: a key that is NoneType in line 1"),
        ("a: \x00", "not YAML: unacceptable character"),
    ],
    ids=range(18),
)
def test_hostile_yaml_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        load_all(text)


def test_json_that_nests_too_deeply_is_refused_too() -> None:
    with pytest.raises(ValueError, match="nested more than 64 deep in line 1"):
        load('{"a": ' + "[" * 100 + "]" * 100 + "}")
