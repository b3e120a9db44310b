"""nccl-tests: ranks, columns of all versions, and runs that went wrong."""

import json

import pytest

from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine
from nodetopo.tools.bandwidth.log import Kind, LoggedGpu
from nodetopo.tools.bandwidth.nccl_tests import read
from tests.tools.bandwidth import logs

H100 = machine("dgx-h100")


@pytest.mark.parametrize("layout", ["new", "middle", "old"])
def test_the_bus_bandwidth_of_the_largest_message_counts(layout: str) -> None:
    (figure,) = read(logs.nccl_tests(H100, range(8), 478.25, layout=layout)).figures
    assert (figure.gb_per_s, figure.size, figure.kind) == (478.25, 8 << 30, Kind.SET)
    assert figure.test == "all_reduce_perf"  # named, or known by bus over algorithm bandwidth
    assert figure.hosts == ("node-a",)
    assert [gpu.place for gpu in figure.gpus] == [*range(8)]


def test_a_rank_is_known_by_its_address_as_far_as_the_version_writes_it() -> None:
    (new,) = read(logs.nccl_tests(H100, (0,), 1.0)).figures
    (old,) = read(logs.nccl_tests(H100, (0,), 1.0, layout="old")).figures
    pci = H100.gpus[0].pci
    assert pci is not None
    whole = LoggedGpu(place=0, host="node-a", domain=0, bus=pci.bus, device=pci.device)
    assert new.gpus == (whole,)
    assert old.gpus == (LoggedGpu(place=0, host="node-a", bus=pci.bus),)


def test_an_operation_without_a_name_moves_the_columns_of_old_versions() -> None:
    text = logs.nccl_tests(H100, range(8), 400.0, test="all_gather_perf", layout="middle")
    log = read(text.replace("float     sum ", "float         "))
    assert (log.figures[0].gb_per_s, log.problems) == (400.0, ())


def test_two_ranks_of_sendrecv_are_a_pair() -> None:
    text = logs.nccl_tests(H100, (0, 1), 300.0, test="sendrecv_perf")
    assert read(text).figures[0].kind is Kind.PAIR
    text = logs.nccl_tests(H100, (0, 1, 2), 300.0, test="sendrecv_perf")
    assert read(text).figures[0].kind is Kind.SET


def test_several_runs_in_one_log_are_several_figures() -> None:
    first = logs.nccl_tests(H100, range(8), 478.0)
    second = logs.nccl_tests(H100, range(4), 350.0, test="all_gather_perf")
    found = [(one.test, len(one.gpus), one.gb_per_s) for one in read(first + second).figures]
    assert found == [("all_reduce_perf", 8, 478.0), ("all_gather_perf", 4, 350.0)]


def test_the_command_above_an_old_log_names_the_test() -> None:
    text = "$ mpirun -np 4 ./build/broadcast_perf -b 8 -e 8G\n"
    text += logs.nccl_tests(H100, range(4), 300.0, test="broadcast_perf", layout="middle")
    assert read(text).figures[0].test == "broadcast_perf"


def test_hosts_are_those_of_the_ranks() -> None:
    (figure,) = read(logs.nccl_tests(H100, range(8), 380.0, hosts=("a-1", "a-2"))).figures
    assert figure.hosts == ("a-1", "a-2")
    assert len(figure.gpus) == 16


def test_wrong_data_is_an_error() -> None:
    log = read(logs.nccl_tests(H100, range(8), 478.0, wrong=3))
    assert log.figures[0].is_wrong
    assert all(problem.is_error for problem in log.problems)
    assert any("out of bounds" in problem.text for problem in log.problems)


def test_a_run_without_a_result_is_an_error() -> None:
    text = logs.nccl_tests(H100, range(8), 478.0)
    cut = text[: text.index("        1024 ")]
    log = read(cut)
    assert log.figures == ()
    assert [one.text for one in log.problems] == ["the test ended before its first result"]


def test_a_test_without_mpi_is_an_error_as_each_process_is_alone() -> None:
    text = logs.nccl_tests(H100, (0,), 0.0)
    line = next(line for line in text.splitlines() if "Rank" in line)
    log = read(text.replace(line, f"{line}\n{line.replace('4000', '4001')}"))
    assert log.figures == ()
    assert "without MPI" in log.problems[0].text


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ((0,), "rank 0 is missing: the log is cut"),
        ((0, 1), "ranks 0 and 1 are missing: the log is cut"),
        ((0, 1, 2, 5), "ranks 0 to 2 and 5 are missing: the log is cut"),
        ((1, 3, 5, 7, 9), "5 of 16 ranks are missing: the log is cut"),
        ((), None),
    ],
)
def test_ranks_that_a_log_lacks_are_named(missing: tuple[int, ...], text: str | None) -> None:
    log = logs.nccl_tests(H100, range(8), 478.0, hosts=("a", "b"))
    assert read(logs.without_ranks(log, *missing)).figures[0].lacks == text


def test_the_last_rank_is_missed_by_what_the_header_and_nccl_say() -> None:
    log = logs.without_ranks(logs.nccl_tests(H100, range(8), 478.0), 7)
    assert read(log).figures[0].lacks is None  # nothing tells of it
    whole = log.replace("nGpus 1", "nGpus 8")
    assert read(whole).figures[0].lacks == "rank 7 is missing: the log is cut"
    told = log.replace("#       size", "a:1:2 [0] NCCL INFO comm 0x5 rank 3 nranks 8\n#       size")
    assert read(told).figures[0].lacks == "rank 7 is missing: the log is cut"


def test_a_row_that_cannot_be_read_is_named_with_its_line() -> None:
    text = logs.nccl_tests(H100, range(8), 478.0)
    torn = text.replace("  8589934592  ", "  8589934592 x", 1)
    lines = text.splitlines()
    row = next(at for at, line in enumerate(lines, 1) if line.split()[:1] == ["8589934592"])
    broken = "\n".join(
        line if at != row else "  8589934592    21474836" for at, line in enumerate(lines, 1)
    )
    assert [one.line for one in read(broken).problems] == [row]
    assert read(broken).figures[0].size == 2 << 30  # the largest that can be read
    assert torn != text


def test_an_average_below_what_the_test_was_given_is_an_error() -> None:
    text = logs.nccl_tests(H100, range(8), 478.0).replace("239 ", "239 FAILED")
    assert "below what the test was given" in read(text).problems[0].text


def test_the_json_report_reads_as_the_text() -> None:
    (figure,) = read(logs.nccl_json(H100, range(8), 478.5)).figures
    assert (figure.test, figure.gb_per_s, len(figure.gpus)) == ("all_reduce_perf", 478.5, 8)
    assert figure.gpus[0].domain == 0


@pytest.mark.parametrize("key", ["results", "config"])
@pytest.mark.parametrize("value", [None, 3, [3], {"a": 1}, [{"size": "x"}]])
def test_a_json_report_of_another_shape_holds_no_figure(key: str, value: object) -> None:
    document = json.loads(logs.nccl_json(H100, range(8), 478.5))
    document[key] = value
    log = read(json.dumps(document))
    assert key == "config" or log.figures == ()


def test_more_ranks_than_any_job_are_refused() -> None:
    text = logs.nccl_tests(H100, (0,), 1.0)
    line = next(line for line in text.splitlines() if "Rank" in line)
    with pytest.raises(InputError, match="ranks"):
        read(text + f"{line}\n" * 5000)


@pytest.mark.parametrize(
    ("columns", "cells", "ratio", "checked", "test"),
    [
        ("", "", 7 / 8, "N/A N/A", "all_gather_perf"),
        ("", "", 1, "N/A N/A", "a collective"),
        ("redop", "", 7 / 8, "N/A N/A", "alltoall_perf"),
        ("redop", "sum", 7 / 8, "N/A N/A", "reduce_scatter_perf"),
        ("redop", "sum", 7 / 4, "N/A N/A", "all_reduce_perf"),
        ("redop", "sum", 1, "0e+00 N/A", "a collective"),
        ("root", "0", 1, "N/A N/A", "broadcast_perf"),
        ("root", "0", 7 / 8, "N/A N/A", "a collective"),
        ("redop root", "sum 0", 1, "0 0", "reduce_perf"),
        ("redop root", "none 3", 1, "0 0", "broadcast_perf"),
        ("redop root", "none -1", 7 / 8, "0 0", "all_gather_perf"),
        ("redop root", "none -1", 7 / 8, "0 N/A", "a collective"),
        ("redop root", "none -1", 7 / 8, "N/A N/A", "a collective"),
        ("redop root", "sum -1", 7 / 8, "N/A N/A", "reduce_scatter_perf"),
        ("redop root", "avg -1", 7 / 4, "0 0", "all_reduce_perf"),
        ("redop root", "none -1", 7 / 4, "0 0", "a collective"),
    ],
)
def test_columns_tell_the_operation(
    columns: str, cells: str, ratio: float, checked: str, test: str
) -> None:
    ranks = "".join(f"#  Rank  {n} Pid 7 on a device  {n} [0x0{n}] NVIDIA\n" for n in range(8))
    half = "time algbw busbw #wrong"
    out, placed = (f"9.5 200 {200 * ratio:g} {word}" for word in checked.split())
    text = f"{ranks}# size count type {columns} {half} {half}\n"
    text += f" 1024 256 float {cells} {out} {placed}\n"
    assert [figure.test for figure in read(text).figures] == [test]


def test_the_tables_of_version_2_0_are_read_without_their_hashes() -> None:
    text = """\
nThread 1 nGpus 2 minBytes 8 maxBytes 33554432 step: 2(factor) warmup iters: 5 validation: 1
# NCCL Tests compiled with NCCL 2.1
#   Rank  0 on a device  0 [0x04] Tesla V100
#   Rank  1 on a device  1 [0x06] Tesla V100
#      bytes             N    type      op     time  algbw  busbw      res
    33554432       8388608   float     sum    1.626  20.64  20.64    0e+00
 Out of bounds values : 3 FAILED
 Avg bus bandwidth    : 20.64
"""
    log = read(text)
    assert [figure.gb_per_s for figure in log.figures] == [20.64]
    assert [problem.text for problem in log.problems] == [
        "3 values out of bounds: wrong data arrived"
    ]
