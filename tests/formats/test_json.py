"""JSON with limits."""

import re

import pytest

from nodetopo.formats.safe import JSON, load_json


def test_a_document_within_the_limits_is_loaded() -> None:
    text = "[" * 64 + "1" + "]" * 64
    found = load_json(text)
    for _ in range(64):
        (found,) = found
    assert found == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON: Expecting value: line 1, column 1"),
        ('{"a": 1', "not JSON: Expecting ',' delimiter: line 1, column 8"),
        ("[1]\n[2]", "not JSON: Extra data: line 2, column 1"),
        ("[" * 65 + "]" * 65, "nested more than 64 deep"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested more than 64 deep"),
        ("[" * JSON.nodes, "nested more than 64 deep"),
        ("[" * (JSON.nodes + 1), "more than 200000 values"),
        ("[" + "{}," * (JSON.nodes // 2) + "{}]", "more than 200000 values"),
        ("[NaN]", "not JSON: NaN is no JSON number"),
        ("[-Infinity]", "not JSON: -Infinity is no JSON number"),
        ("[-1e400]", "not JSON: a number that is too large: -1e400"),
        (f"[{'9' * 5000}]", "not JSON: a number of thousands of digits"),
        ('{"a": {"b": 1, "b": 2}}', "not JSON: the key 'b' stands 2 times in one object"),
        (" " * (JSON.characters + 1), "larger than 4 Mi characters"),
    ],
    ids=range(14),
)
def test_invalid_json_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        load_json(text)
