"""TOML from sources that may mean harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.formats.safe import TOML_CHARACTERS, load_toml


def test_a_document_is_read() -> None:
    assert load_toml('version = 2\n[plugins."a.b"]\nx = [1]\n') == {
        "version": 2,
        "plugins": {"a.b": {"x": [1]}},
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("#" * (TOML_CHARACTERS + 1), "larger than 256 Ki characters"),
        ("\na" + ".a" * 60_000 + " = 1\n", "more than 256 dots in line 2"),
        ("a = " + "[" * 20_000, "nested too deep"),
        ("a = " + "1" * 20_000, "not TOML: "),
        ("a = \n", "not TOML: Invalid value (at line 1, column 5)"),
        ("a = 1\na = 2\n", "not TOML: Cannot overwrite a value"),
    ],
)
def test_invalid_toml_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="^" + problem.replace("(", r"\(").replace(")", r"\)")):
        load_toml(text)


@given(st.text(max_size=200))
def test_no_text_raises_anything_but_value_error(text: str) -> None:
    try:
        found = load_toml(text)
    except ValueError:
        return
    assert isinstance(found, dict)
