"""Figures of a log as a bandwidth table: merged, never at the cost of another entry."""

import pytest
from msgspec.structs import replace

from nodetopo.allocation.measured import bandwidth_table
from nodetopo.errors import DecodeError
from nodetopo.machines.bundled import machine
from nodetopo.tools.bandwidth.compare import compare
from nodetopo.tools.bandwidth.read import read
from nodetopo.tools.bandwidth.table import Merged, merge
from tests.tools.bandwidth import logs

H100 = machine("dgx-h100")


def merged(text: str, before: object = None) -> Merged:
    log = read(text)
    table = None if before is None else bandwidth_table(before)
    return merge(compare(log, H100).figures, H100, log.tool, table)


def test_pairs_and_sets_become_entries_that_the_reader_of_tables_takes() -> None:
    pairs = merged(logs.nvbandwidth(H100, {(0, 3): 100.04}, 390.0))
    found = bandwidth_table(pairs.document).on(H100)
    assert (len(found.pairs), found.pairs[frozenset((0, 3))]) == (28, 1000)
    whole = merged(logs.nccl_tests(H100, range(8), 478.25))
    assert bandwidth_table(whole.document).on(H100).sets == {frozenset(range(8)): 4782}
    assert (whole.added, whole.replaced, whole.kept) == (1, (), 0)


def test_other_entries_stay_as_they_are_and_what_changes_is_named() -> None:
    before = {
        "kind": "nodetopo-bandwidth-table",
        "version": 1,
        "machine": "by hand",
        "unit": "GB/s",
        "pairs": [{"gpus": [0, 1], "bandwidth": 300.5}],
        "sets": [
            {"gpus": [7, 6, 5, 4, 3, 2, 1, 0], "bandwidth": 470},
            {"gpus": ["GPU0", 1, 2], "bandwidth": 350},
        ],
    }
    again = merged(logs.nccl_tests(H100, range(8), 478.25), before)
    assert again.document["machine"] == "by hand"
    assert again.document["pairs"] == [{"gpus": ["0", "1"], "bandwidth": 300.5}]
    found = bandwidth_table(again.document).on(H100)
    assert found.sets == {frozenset(range(8)): 4782, frozenset((0, 1, 2)): 3500}
    (change,) = again.replaced
    assert (change.before, change.after, len(change.gpus)) == (470.0, 478.2, 8)
    assert (again.added, again.kept) == (0, 2)


def test_the_highest_of_several_figures_counts() -> None:
    text = logs.nccl_tests(H100, range(8), 400.0)
    text += logs.nccl_tests(H100, range(8), 478.0)
    assert merged(text).document["sets"] == [
        {"gpus": [str(gpu.pci) for gpu in H100.gpus], "bandwidth": 478.0}
    ]


GATHER = logs.nccl_tests(H100, range(4), 366.0, test="all_gather_perf")
REDUCE = logs.nccl_tests(H100, range(8), 478.0)


def test_a_table_keeps_one_operation_and_names_it() -> None:
    both = merged(GATHER + REDUCE)
    assert bandwidth_table(both.document).on(H100).sets == {frozenset(range(8)): 4780}
    assert both.document["machine"] == "nccl-tests: all_reduce_perf"
    assert both.document["operation"] == "all_reduce_perf"
    assert both.left_out == (
        "all_gather_perf: the sets of this table are by all_reduce_perf: save to another file",
    )
    alone = merged(GATHER)
    assert alone.document["operation"] == "all_gather_perf"
    older = {**alone.document, "machine": "nccl-tests, sets by all_gather_perf"}
    del older["operation"]
    assert merged(GATHER, older).document["operation"] == "all_gather_perf"
    again = merged(REDUCE, alone.document)
    assert (again.added, again.document["sets"]) == (0, alone.document["sets"])
    assert "all_gather_perf" in again.left_out[0]


def test_sets_beside_pairs_of_another_tool_name_their_operation() -> None:
    pairs = merged(logs.nvbandwidth(H100, {}, 390.0)).document
    mixed = merged(GATHER, pairs)
    assert (pairs.get("operation"), mixed.document["operation"]) == (None, "all_gather_perf")
    assert "all_gather_perf" in merged(REDUCE, mixed.document).left_out[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (logs.perftest("mlx5_0", 390.0), "not HCAs and hosts"),
        (logs.nccl_tests(H100, range(8), 478.0, wrong=2), "wrong data"),
        (logs.nccl_tests(H100, range(8), 90.0, hosts=("a", "b")), "several hosts"),
        (logs.nccl_tests(H100, range(8), 100.0, largest=1 << 20), "latency"),
        (logs.nccl_tests(H100, (0,), 100.0), "alone"),
        (
            REDUCE.replace("node-a", "node-b") + REDUCE.replace("node-a", "node-c"),
            "measured on node-b, not on this node",
        ),
        (logs.without_ranks(REDUCE, 0, 1), "ranks 0 and 1 are missing"),
        (GATHER.replace("all_gather_perf", "x"), "which operation"),
        (logs.nccl_tests(machine("dgx-a100"), range(8), 230.0), "does not have"),
    ],
)
def test_what_no_table_holds_is_left_out_with_its_reason(text: str, why: str) -> None:
    found = merged(text)
    assert "sets" not in found.document
    assert "pairs" not in found.document
    assert why in found.left_out[0]


def test_only_this_node_of_several_is_saved() -> None:
    text = REDUCE.replace("node-a", "node-b").replace("478.0", "300.0") + REDUCE
    log, node = read(text), replace(H100, node="node-a")
    found = merge(compare(log, node).figures, node, log.tool, None)
    assert bandwidth_table(found.document).on(node).sets == {frozenset(range(8)): 4780}
    assert (found.added, found.suspect) == (1, 0)
    assert found.left_out == ("all_reduce_perf: measured on node-b, not on this node",)


def test_a_figure_that_falls_short_is_written_and_counted() -> None:
    found = merged(logs.nccl_tests(H100, range(8), 300.0))
    assert (found.added, found.suspect) == (1, 1)


def test_a_table_of_another_machine_is_refused() -> None:
    before = {
        "kind": "nodetopo-bandwidth-table",
        "version": 1,
        "unit": "GB/s",
        "pairs": [{"gpus": [0, 12], "bandwidth": 300.5}],
    }
    with pytest.raises(DecodeError, match="12"):
        merged(logs.nccl_tests(H100, range(8), 478.25), before)
