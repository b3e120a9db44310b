"""The bench of what claims cost a scheduler, in small: that every way is measured. No times."""

import pytest

from nodetopo.machines.bundled import machine
from tests.bench.dra_cluster import filter_table, scheduler_table
from tests.bench.dra_ways import ways

pytestmark = pytest.mark.lab


def test_every_way_is_filtered(namespaces: None) -> None:
    del namespaces
    snapshot = machine("dgx-h100")
    rows = list(filter_table(snapshot, "1.36", (2,), 1, []))
    assert len(rows) == 2 + 3 * len(ways(snapshot))


def test_the_scheduler_binds_pods_with_claims_of_every_way(namespaces: None) -> None:
    del namespaces
    snapshot = machine("dgx-h100")
    rows = list(scheduler_table(snapshot, "1.36", (2,), 1, 180.0))[2:]
    assert [row.split(" | ")[2] for row in rows] == ["1 of 1"] * len(ways(snapshot))
