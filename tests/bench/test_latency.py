"""That every machine is timed, in the process and through gRPC; never how long it took."""

from random import Random

import pytest

from nodetopo.allocation.allocator import preferred
from tests.bench.latency import THROUGH_GRPC, WARM_UP, main
from tests.bench.latency_rows import Row, requests, rows

ROWS = tuple(rows())


def test_the_bench_prints_a_row_for_every_machine(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--requests", "5", "--no-peer"])
    lines = capsys.readouterr().out.splitlines()
    told = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")]
    assert told == ["machine", *(row.name for row in ROWS), "machine", *THROUGH_GRPC]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_is_timed_is_answered(row: Row) -> None:
    chooser = row.build()
    for asked in requests(row.ids, WARM_UP, Random(1)):
        answer = preferred(chooser, asked.available, asked.required, asked.size)
        assert len({*answer}) == asked.size
        assert {*asked.required} <= {*answer} <= {*asked.available}


def test_machines_of_all_sizes_are_timed() -> None:
    assert {len(row.ids) for row in ROWS} >= {8, 10, 16, 32, 64, 72, 80, 112, 160}
