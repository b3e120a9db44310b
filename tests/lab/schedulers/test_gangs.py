"""Gangs on nodes with our labels, placed by the real kube-scheduler.

What tells is the node of each pod, looked up in what the API server holds.
"""

from collections.abc import Iterator

import pytest

from tests.lab.cluster import Cluster
from tests.lab.schedulers import fabric
from tests.lab.schedulers.fabric import CLIQUE, DOMAIN, INTERCONNECT, PARTITION
from tests.lab.schedulers.gang import Gang
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_FIRST, _SECOND = ["n01", "n03", "n05", "n07"], ["n00", "n04", "n09", "n11"]
"""The partitions that hold four trays."""
_BOARD = {INTERCONNECT: "nvswitch"}
"""What selects the DGX machines."""


@pytest.fixture
def unlabelled(trays: Cluster) -> Iterator[Cluster]:
    """Return the cluster with our labels taken away; they come back after the test."""
    fabric.withdraw(trays)
    yield trays
    fabric.publish(trays)


def test_a_gang_that_asks_for_nothing_is_spread_over_two_partitions(trays: Cluster) -> None:
    nodes = Gang(name="free", size=4).place(trays.api)

    assert nodes == sorted(fabric.ROOMY) == sorted({*_FIRST[::3], *_SECOND[1:3]})


@pytest.mark.parametrize("key", [CLIQUE, PARTITION])
def test_a_gang_that_asks_for_one_partition_fills_it(trays: Cluster, key: str) -> None:
    name = key.rpartition("/")[2].replace(".", "-")
    gangs = [Gang(name=f"{name}-{number}", size=4, key=key) for number in range(3)]

    assert sorted(gang.place(trays.api) for gang in gangs[:2]) == [_SECOND, _FIRST]
    assert "0/" in gangs[2].refusal(trays.api)


def test_a_gang_larger_than_the_largest_partition_waits(trays: Cluster) -> None:
    assert "0/5 placements" in Gang(name="five", size=5, key=PARTITION).refusal(trays.api)


def test_a_gang_of_two_partitions_stays_within_their_domain(trays: Cluster) -> None:
    assert Gang(name="rack", size=8, key=DOMAIN).place(trays.api) == sorted(_FIRST + _SECOND)


def test_a_node_that_lost_its_labels_takes_its_partition_out(trays: Cluster) -> None:
    fabric.withdraw(trays, ["n11"])
    try:
        gangs = [Gang(name=f"short-{number}", size=4, key=PARTITION) for number in range(2)]
        assert gangs[0].place(trays.api) == _FIRST
        assert "0/" in gangs[1].refusal(trays.api)
    finally:
        fabric.publish(trays)


def test_a_gang_waits_for_nodes_without_labels_and_starts_once_the_agents_have_come(
    unlabelled: Cluster,
) -> None:
    gang = Gang(name="early", size=4, key=PARTITION)
    assert gang.refusal(unlabelled.api) == "no feasible placements found"

    fabric.publish(unlabelled)
    wait_for("the gang has nodes", lambda: gang.nodes(unlabelled.api) in (_FIRST, _SECOND))


def test_one_key_serves_trays_and_boards_alike(trays: Cluster) -> None:
    assert fabric.values(trays.api, PARTITION).keys() == fabric.MACHINES.keys()
    trays_gang = Gang(name="trays", size=4, key=PARTITION, on={INTERCONNECT: "mnnvl"})
    board_gangs = [Gang(name=f"board-{n}", size=2, key=PARTITION, on=_BOARD) for n in range(2)]

    assert trays_gang.place(trays.api) in (_FIRST, _SECOND)
    assert sorted(gang.place(trays.api) for gang in board_gangs) == [["n02"] * 2, ["n06"] * 2]


def test_the_clique_of_nvidia_alone_would_leave_the_boards_out(trays: Cluster) -> None:
    assert "0/3 placements" in Gang(name="out", size=2, key=CLIQUE, on=_BOARD).refusal(trays.api)
