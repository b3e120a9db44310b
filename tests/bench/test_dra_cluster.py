"""Bytes and writes of our slices: counts, never times."""

import pytest

from nodetopo.machines.bundled import machine
from tests.bench.dra_cluster import MOST_WRITES, Problems, writes_table


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "rtxpro6000-pcie-8", "gb200-nvl72"])
def test_a_claim_is_one_write_at_most_and_eight_gpus_weigh_little(name: str) -> None:
    problems: Problems = []
    rows = list(writes_table(machine(name), 200, problems))
    assert problems == []
    assert MOST_WRITES == 1
    assert len(rows) == 4
