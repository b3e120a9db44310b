"""How the fleet's tables are made of what was counted; tests/lab/test_fleet.py has it played."""

from tests.bench.fleet import large_row, row
from tests.bench.fleet_phases import Phase
from tests.bench.fleet_server import Cost, total
from tests.bench.fleet_simulation import by_verb, peaks

METRICS = """\
# HELP apiserver_request_total Counter of requests.
apiserver_request_total{code="200",resource="nodes",verb="GET"} 3
apiserver_request_total{code="404",resource="nodes",verb="GET"} 2
apiserver_request_total{code="200",resource="pods",verb="GET"} 50
apiserver_request_total_more{code="200",resource="nodes",verb="GET"} 500
etcd_disk_wal_write_bytes_total 1.5e+06
"""
COST = Cost(api_s=4.0, etcd_s=0.2, node_writes=100.0, logged=50_000.0)


def phase(*, hours: float | None, cost: Cost | None = COST) -> Phase:
    asked = {"GET": 200, "PATCH": 100}
    return Phase(title="it", hours=hours, asked=asked, peak={"GET": 60, "PATCH": 20}, cost=cost)


def test_samples_are_summed_over_the_labels_that_are_not_named() -> None:
    assert total(METRICS, "apiserver_request_total", resource="nodes", verb="GET") == 5
    assert total(METRICS, "etcd_disk_wal_write_bytes_total") == 1_500_000


def test_an_event_is_told_for_one_agent() -> None:
    cells = "it | agent | 2.0 | 1.0 | 0.0 | 40.0 | 2.0 | 1.0 | 0.5"
    assert row(phase(hours=None), 100) == f"| {cells} |"


def test_what_lasts_is_told_for_one_agent_and_hour() -> None:
    cells = "it | agent-hour | 4.0 | 2.0 | 0.0 | 80.0 | 4.0 | 2.0 | 1.0"
    assert row(phase(hours=0.5), 100) == f"| {cells} |"


def test_without_a_server_nothing_is_spent() -> None:
    cells = "it | agent | 2.0 | 1.0 | 0.0 | - | - | - | -"
    assert row(phase(hours=None, cost=None), 100) == f"| {cells} |"


def test_less_than_the_server_alone_is_nothing() -> None:
    quiet = COST.less(COST, 2.0)
    assert row(phase(hours=None, cost=quiet), 100).endswith("| 0.0 | 0.0 | 0.0 | 0.0 |")


def test_an_event_of_a_large_fleet_has_a_sum_and_a_peak() -> None:
    assert large_row(phase(hours=None), 100) == "| it | 45,000 | 600 s of CPU | 3,000 |"


def test_what_lasts_in_a_large_fleet_has_a_rate() -> None:
    assert large_row(phase(hours=1.0), 100) == "| it | 12.5 a second | 0.167 cores | - |"


def test_requests_are_counted_by_verb_and_by_their_fullest_second() -> None:
    counted = {("GET", 0): 2, ("GET", 1): 5, ("PATCH", 1): 1}
    assert by_verb(counted) == {"GET": 7, "PATCH": 1}
    assert peaks(counted) == {"GET": 5, "PATCH": 1}
