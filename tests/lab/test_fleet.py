"""A small fleet on a real API server: who asks how often. Counts, no times.

The large one is ``python -m tests.bench.fleet``; docs/internals/load.md has what it found.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.bench import fleet_writers
from tests.bench.fleet_phases import NEW_VERSION, OUTAGE_S, SETTLE_S
from tests.bench.fleet_server import Server, total
from tests.bench.fleet_simulation import VERSION, Fleet, by_verb, peaks
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

COUNT = 20
HOUR_S = 3600.0
READS_AN_HOUR = 2
"""The first after five minutes, the next after about an hour: the watch tells of the rest."""

WATCHES_AN_HOUR = 2
"""As many, if chance has each last the shortest time."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def fleet(server: Server, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Return a fleet of its own for each test, whose agents found their Nodes without labels."""
    taken = request.session.stash.get(_TAKEN, 0)
    request.session.stash[_TAKEN] = taken + COUNT
    found = Fleet(server, COUNT, first=taken)
    found.start()
    found.run(SETTLE_S)
    yield found
    found.stop()


_TAKEN: pytest.StashKey[int] = pytest.StashKey()
"""How many names of Nodes were given to fleets."""


LONGEST_PAUSE_S = 300.0
"""Between two attempts to publish labels, in seconds of the play."""

MOST_PAUSES = 5


def during(fleet: Fleet, seconds: float) -> Counter[str]:
    """Return what the agents ask in so many seconds of the play."""
    fleet.counted()
    fleet.run(seconds)
    return by_verb(fleet.counted())


def nodes(server: Server, fleet: Fleet) -> dict[str, tuple[dict[str, str], str]]:
    """Return the labels of each Node, and its version in etcd."""
    read = {name: server.api.get(f"/api/v1/nodes/{name}")["metadata"] for name in fleet.tokens}
    return {name: (one["labels"], one["resourceVersion"]) for name, one in read.items()}


def are_labelled(server: Server, fleet: Fleet) -> bool:
    """Tell whether every Node has what its agent wants there."""
    found = nodes(server, fleet)
    return all(fleet.labels(name).items() <= found[name][0].items() for name in found)


def test_a_node_without_labels_is_read_written_once_and_followed(
    server: Server, fleet: Fleet
) -> None:
    assert by_verb(fleet.counted()) == {"GET": 2 * COUNT, "PATCH": COUNT, "WATCH": COUNT}
    assert are_labelled(server, fleet)


def test_every_node_is_followed_by_one_watch_that_stays_open(server: Server, fleet: Fleet) -> None:
    # Those of the test before may close only now.
    wait_for("one watch is open for each", lambda: _open_watches(server) == COUNT)
    fleet.stop()
    wait_for("the watches are closed", lambda: _open_watches(server) == 0)


def test_a_restart_with_nothing_new_reads_once_and_writes_nothing(
    server: Server, fleet: Fleet
) -> None:
    before = nodes(server, fleet)
    fleet.start()
    assert during(fleet, SETTLE_S) == {"GET": COUNT, "WATCH": COUNT}
    assert nodes(server, fleet) == before


def test_a_new_label_is_written_once_on_each_node(server: Server, fleet: Fleet) -> None:
    fleet.start(**{VERSION: NEW_VERSION})
    assert during(fleet, SETTLE_S) == {"GET": 2 * COUNT, "PATCH": COUNT, "WATCH": COUNT}
    assert are_labelled(server, fleet)


def test_a_new_label_of_a_whole_fleet_is_spread_over_a_minute(fleet: Fleet) -> None:
    fleet.counted()
    fleet.start(**{VERSION: NEW_VERSION})
    fleet.run(SETTLE_S)
    seconds = {second for verb, second in fleet.counted() if verb == "PATCH"}
    assert max(seconds) - min(seconds) > 30


def test_the_first_steady_hour_writes_nothing_and_reads_at_most_twice(
    server: Server, fleet: Fleet
) -> None:
    before = nodes(server, fleet)
    asked = during(fleet, HOUR_S)
    assert nodes(server, fleet) == before
    assert asked.keys() == {"GET", "WATCH"}
    assert asked["GET"] <= READS_AN_HOUR * COUNT
    assert asked["WATCH"] <= WATCHES_AN_HOUR * COUNT


def test_the_api_server_counts_as_many_requests_as_the_agents(server: Server, fleet: Fleet) -> None:
    fleet.stop()
    fleet.counted()
    before = _settled(server)
    fleet.start(**{VERSION: NEW_VERSION})
    asked = during(fleet, SETTLE_S)
    ours = {"GET": asked["GET"], "APPLY": asked["PATCH"]}
    wait_for(
        f"the API server has counted {ours}",
        lambda: server.served() - before == ours,
        evidence=lambda: f"it counted {server.served() - before}",
    )


def test_the_agents_have_a_priority_level_of_their_own(server: Server, fleet: Fleet) -> None:
    before = _dispatched(server)
    fleet.counted()
    fleet.start()
    asked = during(fleet, SETTLE_S)
    assert _dispatched(server) - before == sum(asked.values())


def test_agents_take_an_outage_up_where_they_left_and_write_nothing(
    server: Server, fleet: Fleet
) -> None:
    before = nodes(server, fleet)
    fleet.lose_server()
    tried = during(fleet, OUTAGE_S)
    server.come_back()
    asked = during(fleet, SETTLE_S)
    # Pauses double up to a minute for the watch and to five for labels, by chance in between.
    assert sum(tried.values()) <= 60 * COUNT
    assert asked["PATCH"] == 0
    assert asked["WATCH"] == COUNT
    assert nodes(server, fleet) == before
    agents = fleet.agents.values()
    for _ in range(MOST_PAUSES):
        # An agent that failed late in the outage is still waiting, and a server that just came back
        # may refuse some more attempts.
        fleet.run(LONGEST_PAUSE_S)
        if all(one.is_content for one in agents):
            break
    assert [one.labelling.errors for one in agents if not one.is_content] == []
    assert min(one.labelling.errors for one in agents) > 0
    assert nodes(server, fleet) == before


def test_the_timers_beside_us_ask_once_a_minute_and_change_nothing(
    server: Server, fleet: Fleet
) -> None:
    before = nodes(server, fleet)
    fleet.counted()
    fleet_writers.run(fleet, fleet_writers.rewrite, 2)
    fleet_writers.run(fleet, fleet_writers.reread, 3)
    counted = fleet.counted()
    assert by_verb(counted) == {"PATCH": 2 * COUNT, "GET": 3 * COUNT}
    assert peaks(counted)["PATCH"] == COUNT
    assert nodes(server, fleet) == before


def _dispatched(server: Server) -> float:
    """Return how many requests the components' FlowSchema has let through."""
    name = "apiserver_flowcontrol_dispatched_requests_total"
    level = {"flow_schema": "nodetopo", "priority_level": "nodetopo"}
    return total(server.api.text("/metrics"), name, **level)


def _settled(server: Server) -> Counter[str]:
    """Return what the API server has counted: it counts a request after it answered it."""
    looks = [server.served()]

    def is_over() -> bool:
        looks.append(server.served())
        return looks[-1] == looks[-2]

    wait_for("the API server counts no more", is_over)
    return looks[-1]


def _open_watches(server: Server) -> float:
    """Return how many watches of one Node the API server holds; its own are of all."""
    kind = {"verb": "WATCH", "resource": "nodes", "scope": "resource"}
    return total(server.api.text("/metrics"), "apiserver_longrunning_requests", **kind)
