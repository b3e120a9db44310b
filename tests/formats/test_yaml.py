"""YAML with Kubernetes' meaning."""

from typing import Any

import pytest

from nodetopo.formats.document import load

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
    ("!other 1", "1"),
    ("!other [1]", [1]),
    ("!other {b: 1}", {"b": 1}),
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
