"""Text for people is safe and aligned, whatever the data holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.output import clean, json_text, table, width


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07name", "name"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "31mred"),
        ("a\tb\nc\rd", "a b c d"),
        ("a\u202eb\u2066c", "abc"),
        ("a\x00\x7fb", "ab"),
        ("\u00d7·é漢", "\u00d7·é漢"),
    ],
)
def test_nothing_that_steers_a_terminal_is_left(dirty: str, expected: str) -> None:
    assert clean(dirty) == expected


@given(st.text())
def test_a_clean_text_is_one_printable_line(text: str) -> None:
    assert all(char == " " or char.isprintable() or char.isspace() for char in clean(text))
    assert len(clean(text).splitlines()) <= 1


@given(st.text())
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("", 0)])
def test_width_is_counted_in_terminal_columns(text: str, columns: int) -> None:
    assert width(text) == columns


def test_columns_align_and_no_line_ends_in_spaces() -> None:
    assert table([("a", "bb", "c"), ("漢字", "b"), ("a",)]) == "a     bb  c\n漢字  b\na\n"


def test_json_escapes_what_a_terminal_may_obey() -> None:
    assert json_text({"a": "é\x9b\u202e"}) == '{\n  "a": "é\\u009b\\u202e"\n}\n'
