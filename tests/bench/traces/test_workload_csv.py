"""Traces in CSV: our format, the public ones, and what is wrong with a file."""

from pathlib import Path

import pytest

from nodetopo.errors import InputError
from tests.bench.traces.workload import TraceFile, parse

PODS = "num_gpu,gpu_milli,creation_time,scheduled_time,deletion_time\n"
WHOLE = "t.csv line 2: gpus: not a whole number from 0 to 1,000,000,000"


def test_our_format_tells_arrivals_run_times_and_sizes() -> None:
    found = parse("t.csv", "arrival_s,duration_s,gpus\n0,60,1\n1.5,90.25,8\n")
    assert found == TraceFile(name="t.csv", jobs=((0, 60, 1), (1.5, 90.25, 8)))


def test_arrivals_may_be_missing() -> None:
    assert parse("t.csv", "duration_s,gpus\n60,1\n").jobs == ((None, 60, 1),)
    assert parse("t.csv", "arrival_s,duration_s,gpus\n,60,1\n").jobs == ((None, 60, 1),)


def test_columns_may_stand_in_any_order_among_others() -> None:
    text = '\ufeffName, GPUs ,arrival_s,duration_s\r\n"a, b",2,0,60\r\n\r\n'.removeprefix("\ufeff")
    assert parse("t.csv", text).jobs == ((0, 60, 2),)


def test_pods_that_take_part_of_a_gpu_or_never_ran_are_counted() -> None:
    rows = "2,1000,5,7,17\n1,460,0,0,9\n1,1000,3,,9\n0,0,1,2,3\n1,1000,3,4,\n"
    assert parse("t.csv", PODS + rows) == TraceFile(
        name="t.csv",
        jobs=((5, 10, 2),),
        skipped={
            "a fraction of a GPU": 1,
            "never started, or no end known": 2,
            "no GPU asked for": 1,
        },
    )


def test_pods_without_times_tell_sizes() -> None:
    found = parse("t.csv", "num_gpu,gpu_milli\n8,1000\n1,1000\n8,1000\n1,460\n")
    assert (found.sizes, found.skipped) == (((1, 1), (8, 2)), {"a fraction of a GPU": 1})


def test_counted_sizes_add_up_over_clusters() -> None:
    found = parse("t.csv", "virtual_cluster,gpus,jobs\na,1,436\na,2,226\nb,1,4\nb,8,0\n")
    assert found.sizes == ((1, 440), (2, 226))


def test_quantiles_tell_run_times() -> None:
    found = parse("t.csv", "quantile,seconds\n0,0\n0.5,60\n1.000,600\n")
    assert found.run_times == ((0, 0), (0.5, 60), (1, 600))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "t.csv line 1: not the header of a trace: nothing"),
        ("a,b\n1,2\n", "t.csv line 1: not the header of a trace: a, b"),
        ("duration_s,gpus\n", "t.csv: no job that can be used"),
        ("duration_s,gpus\n60,0\n", "t.csv: no job that can be used, 1 row: no GPU asked for"),
        (
            "duration_s,gpus\n60,1\nx,1\n",
            "t.csv line 3: duration_s: not a number from 0 to 10,000,000,000: 'x'",
        ),
        ("duration_s,gpus\n60,1.5\n", f"{WHOLE}: '1.5'"),
        ("duration_s,gpus\n\n-1,1\n", "t.csv line 3: duration_s: not a number from 0 to"),
        ("duration_s,gpus\nnan,1\n", "t.csv line 2: duration_s: not a number from 0 to"),
        ("duration_s,gpus\n1,inf\n", f"{WHOLE}: 'inf'"),
        ("duration_s,gpus\n60,\u0664\n", f"{WHOLE}: '\u0664'"),
        ("duration_s,gpus\n60,1_0\n", f"{WHOLE}: '1_0'"),
        ("duration_s,gpus\n6_0,1\n", "t.csv line 2: duration_s: not a number from 0 to"),
        ("duration_s,gpus\n1,1000000001\n", f"{WHOLE}: '1000000001'"),
        (
            "gpus,jobs\n2,1e308\n4,1e308\n",
            "t.csv line 2: jobs: not a whole number from 0 to 1,000,000,000: '1e308'",
        ),
        (
            "duration_s,gpus\n60,1\n1e308,1\n",
            "t.csv line 3: duration_s: not a number from 0 to 10,000,000,000: '1e308'",
        ),
        ("duration_s,gpus\n60\n", "t.csv line 2: 1 columns, the header has 2"),
        ("duration_s,gpus\n60,1,\n", "t.csv line 2: 3 columns, the header has 2"),
        ('duration_s,gpus\n60,"1\n', "t.csv line 2: unexpected end of data"),
        (PODS + "1,1000,0,9,5\n", "t.csv line 2: deletion_time is before scheduled_time"),
        ("quantile,seconds\n0.5,9\n0.4,10\n", "t.csv line 3: quantiles must ascend, and so must"),
        ("quantile,seconds\n50,9\n", "t.csv line 2: quantile: above 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, cause: str) -> None:
    with pytest.raises(InputError) as caught:
        parse("t.csv", text)
    assert caught.value.cause.startswith(cause)
    assert caught.value.cure


def test_the_largest_numbers_are_read() -> None:
    assert parse("t.csv", "duration_s,gpus\n1e10,1\n").jobs == ((None, 1e10, 1),)
    assert parse("t.csv", "gpus,jobs\n2,1e9\n2,1e9\n").sizes == ((2, 2 * 10**9),)


@pytest.mark.parametrize(
    ("name", "jobs", "sizes", "run_times", "skipped"),
    [
        ("pai2023-default.csv", 3_630, 0, 0, 3_434),
        ("pai2023-multigpu50.csv", 0, 4_895, 0, 3_078),
        ("philly-job-sizes.csv", 0, 15_264, 0, 0),
        ("philly-runtime-quantiles.csv", 0, 0, 1_001, 0),
    ],
)
def test_public_traces_are_read_to_the_last_row(
    corpus: Path, *, name: str, jobs: int, sizes: int, run_times: int, skipped: int
) -> None:
    found = parse(name, (corpus / "traces" / name).read_text("utf-8"))
    counted = sum(count for _, count in found.sizes)
    assert (len(found.jobs), counted, len(found.run_times)) == (jobs, sizes, run_times)
    assert sum(found.skipped.values()) == skipped
