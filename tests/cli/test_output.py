"""Text for people is safe and aligned, whatever the data holds."""

import re
from argparse import Namespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.cli.output import (
    LONGEST_LINE,
    MOST_COLUMNS,
    MOST_KINDS,
    clean,
    fitted,
    folded,
    json_text,
    note,
    table,
    warn_each_kind,
    width,
)
from tests.cli.conftest import Cli
from tests.cli.outcome import READERS


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


def test_long_values_of_a_line_are_cut_and_its_end_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note("error", f"node.json: schema: found {'x' * 10_000!r} — capture the node again")
    line = capsys.readouterr().err
    assert len(line) < 300
    assert line.startswith("error: node.json: schema: found 'xxx")
    assert line.endswith("xxx' — capture the node again\n")
    note("error", f"unknown: {'word ' * 100_000}— give another")
    line = capsys.readouterr().err
    assert len(line) == len("error: ") + LONGEST_LINE + 1
    assert line.endswith("word — give another\n")


def test_short_lines_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/".join(["directory"] * 20)
    note("error", f"cannot read {path}")
    assert capsys.readouterr().err == f"error: cannot read {path}\n"


def test_warnings_of_one_kind_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    args = Namespace(warnings=[])
    texts = [f"gpus[{n}].colour: unknown field, ignored" for n in range(10_000)]
    texts += [f"0000:{bus:02x}:00.0: stands at 2 places" for bus in range(100, 110)]
    warn_each_kind(args, [*texts, "schema is old"])
    assert capsys.readouterr().err.splitlines() == [
        "warning: gpus[0].colour: unknown field, ignored (and 9999 more like this)",
        "warning: 0000:64:00.0: stands at 2 places (and 9 more like this)",
        "warning: schema is old",
    ]
    assert len(args.warnings) == 3


def test_kinds_of_warnings_are_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    args = Namespace(warnings=[])
    warn_each_kind(args, ("x" * n for n in range(1, MOST_KINDS + 101)))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_KINDS + 1
    assert lines[-1] == "warning: and 100 more warnings, of 100 other kinds"


READERS_AT_WIDTHS = [(command, columns) for command in READERS for columns in (40, 80)]


@pytest.mark.parametrize(("command", "columns"), READERS_AT_WIDTHS)
def test_lines_fit_the_terminal_and_keep_their_words(
    cli: Cli, command: tuple[str, ...], columns: int
) -> None:
    whole = cli(*command, "--machine", "dgx-h100").out
    text = fitted(whole, columns)
    assert text.split() == whole.split()
    wide = [line for line in text.splitlines() if width(line) > columns]
    tables = [line for line in wide if len(re.findall(r"(?<=\S) {2,}(?=\S)", line)) >= MOST_COLUMNS]
    long_words = [line for line in wide if len(line.split()) == 1]
    assert set(wide) == {*tables, *long_words}


def test_a_long_line_hangs_below_its_text() -> None:
    line = "           \x1b[32m✓\x1b[0m NUM-001 every GPU reports its NUMA node\n"
    assert fitted(line, 40) == (
        "           \x1b[32m✓\x1b[0m NUM-001 every GPU reports\n             its NUMA node\n"
    )
    fact = "why         The kubelet cannot align CPUs with it\n"
    assert fitted(fact, 36) == (
        "why         The kubelet cannot align\n              CPUs with it\n"
    )


def test_a_wide_table_folds_into_blocks_of_columns_with_their_names() -> None:
    rows = [["", "GPU0", "GPU1", "NIC0"], ["GPU0", " X ", "NV1", "PIX"], ["GPU1", "NV1", " X ", ""]]
    assert folded(rows, 80) == table(rows)
    assert folded(rows, 16) == (
        "      GPU0  GPU1\nGPU0   X    NV1\nGPU1  NV1    X\n\n      NIC0\nGPU0  PIX\nGPU1\n"
    )
    assert folded(rows, 15).count("GPU1\nGPU0") == 1
    assert [len(block.splitlines()) for block in folded(rows, 3).split("\n\n")] == [3, 3, 3]


def test_a_url_is_never_broken() -> None:
    url = "https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/"
    assert fitted(f"reference   {url}\n", 70) == f"reference\n{url}\n"
    assert fitted(f"reference   see {url} and more\n", 60) == (
        f"reference   see\n{url}\n              and more\n"
    )


def test_a_terminal_that_says_no_width_changes_nothing() -> None:
    assert fitted("x " * 100 + "\n", 0) == "x " * 100 + "\n"
