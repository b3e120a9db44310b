"""Prefixes are learned from the lines that a tool always prints, and taken off all lines."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.formats.pasted import Line, unwrapped

ANCHOR = re.compile(r"# head\b")
BODY = ["# head", "", "  1  2", "last"]


def _read(lines: list[str]) -> list[str]:
    return [line.text.strip() for line in unwrapped("\n".join(lines), ANCHOR)]


@pytest.mark.parametrize(
    "prefix",
    [
        "2025-03-11T08:22:3{n}.123456789Z ",
        "[2025-03-11 08:22:3{n},123] ",
        "Tue Mar 11 08:22:3{n} 2025<stdout>:",
        "Mar  1 08:22:3{n} node-a job[71]: ",
        "[1,{n}]<stdout>:",
        "[prterun-node-a-12@1,{n}]<stdout>: ",
        "[prterun-node-a-12@1,{n}][node-a:7{n}]<stdout>: ",
        "{n}: ",
        " {n}: ",
        "[{n}] ",
        "node-a: ",
        "[pod/trainer-0/main] 2025-03-11T08:22:3{n}Z ",
        "trainer-0-abcde main ",
        "trainer-0  | ",
        "\x1b[36m(Worker pid=4{n}, ip=192.0.2.1)\x1b[0m ",
        "> ",
        "> > ",
    ],
)
def test_a_prefix_is_learned_with_what_changes_in_it(prefix: str) -> None:
    wrapped = [prefix.format(n=n) + line for n, line in enumerate(BODY)]
    assert _read(wrapped) == [line.strip() for line in BODY]


def test_a_box_loses_its_bars_and_a_table_keeps_its_cells_apart() -> None:
    assert _read([f"| {line} |" for line in BODY]) == [line.strip() for line in BODY]
    table = [line.text for line in unwrapped("| a | b |\n|---|---|\n| 1 | |\n", ANCHOR)]
    assert table == [" a \t b", "", " 1 \t"]


def test_lines_without_a_prefix_stay_as_they_are() -> None:
    text = "# head\n 0: a device\n[0] NCCL WARN x\n"
    assert [line.text for line in unwrapped(text, ANCHOR)] == text.splitlines()


def test_hosts_are_put_together_and_ranks_are_not_told_apart() -> None:
    text = "a: # head\nb: # head\na: 1\nb: 2\nnothing\n"
    assert [(line.source, line.number, line.text) for line in unwrapped(text, ANCHOR)] == [
        (0, 1, "# head"),
        (0, 3, "1"),
        (0, 5, "nothing"),
        (1, 2, "# head"),
        (1, 4, "2"),
    ]
    text = "[1,0]<stdout>:# head\n[1,7]<stderr>:x\n"
    assert [*unwrapped(text, ANCHOR)] == [Line(1, "# head"), Line(2, "x")]


@given(st.text(st.sampled_from("# head|0:[],@<>\x1b\n\t9"), max_size=400))
def test_no_line_is_lost_or_named_twice(text: str) -> None:
    found = [*unwrapped(text, ANCHOR)]
    assert sorted(line.number for line in found) == [*range(1, len(text.splitlines()) + 1)]
