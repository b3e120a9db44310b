"""The parts of the play: what a fleet goes through, and what each part took."""

import time
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from tests.bench import fleet_writers
from tests.bench.fleet_server import Cost, Server
from tests.bench.fleet_simulation import VERSION, Fleet, by_verb, peaks

SETTLE_S = 120.0
"""After so long every agent that started at once has looked, and written what it had to."""

OUTAGE_S = 600.0
NEW_VERSION = "581.00.00"

IDLE_S = 30.0
"""Real seconds in which the server's own work is measured."""

_HELD_S = 60.0
"""Real seconds in which watches are open and nothing happens: the server sends each of them a
bookmark about once a minute, by its own clock."""


class Phase(Struct, frozen=True, kw_only=True):
    """A part of the play.

    Attributes:
        title: for the table.
        hours: how long it lasts for each agent; ``None``: it is an event, counted once.
        asked: requests by verb, of all agents.
        peak: most requests of each verb in one second.
        cost: of the server without its own work; ``None`` while there is none.
    """

    title: str
    hours: float | None
    asked: Mapping[str, int]
    peak: Mapping[str, int]
    cost: Cost | None


class Play:
    """Goes through all parts, in the order that they need."""

    def __init__(self, server: Server, fleet: Fleet, *, steady_s: float, minutes: int) -> None:
        """Measure what the server takes alone first.

        Args:
            server: which runs.
            fleet: whose agents have not started.
            steady_s: how long nothing happens.
            minutes: how long those that ask on a timer do so.
        """
        self._server, self._fleet = server, fleet
        self._steady_s, self._minutes = steady_s, minutes
        self._idle = self._alone()

    def phases(self) -> Iterator[Phase]:
        """Yield each part when it is over."""
        fleet, news = self._fleet, {VERSION: NEW_VERSION}
        yield self._phase("first start on nodes without labels", None, self._started)
        yield self._phase("restart of all, nothing new", None, self._started)
        yield self._phase("restart of all, one label new", None, lambda: self._started(**news))
        yield self._phase("steady", self._steady_s, lambda: fleet.run(self._steady_s))
        yield self._phase("steady, open watches", _HELD_S, lambda: time.sleep(_HELD_S))
        yield self._outage()
        yield self._phase("API server back after it", None, lambda: fleet.run(SETTLE_S))
        fleet.stop()
        for title, writer in (
            ("timer: read each minute", fleet_writers.reread),
            ("timer: patch each minute, nothing new", fleet_writers.rewrite),
        ):
            seconds = self._minutes * fleet_writers.INTERVAL_S
            yield self._phase(title, seconds, self._timed(writer))

    def _started(self, **changed: str) -> None:
        self._fleet.start(**changed)
        self._fleet.run(SETTLE_S)

    def _timed(self, writer: fleet_writers.Writer) -> Callable[[], None]:
        return lambda: fleet_writers.run(self._fleet, writer, self._minutes)

    def _outage(self) -> Phase:
        self._fleet.counted()
        self._fleet.lose_server()
        self._fleet.run(OUTAGE_S)
        counted = self._fleet.counted()
        self._server.come_back()
        self._idle = self._alone()
        return Phase(
            title="API server away for 10 minutes",
            hours=None,
            asked=by_verb(counted),
            peak=peaks(counted),
            cost=None,
        )

    def _phase(self, title: str, seconds: float | None, play: Callable[[], None]) -> Phase:
        self._fleet.counted()
        before, began = self._server.cost(), time.monotonic()
        play()
        took_s = time.monotonic() - began
        cost = self._server.cost().since(before).less(self._idle, took_s)
        counted = self._fleet.counted()
        return Phase(
            title=title,
            hours=None if seconds is None else seconds / 3600,
            asked=by_verb(counted),
            peak=peaks(counted),
            cost=cost,
        )

    def _alone(self) -> Cost:
        """Return what the server takes in a second without agents that act."""
        before = self._server.cost()
        time.sleep(IDLE_S)
        return self._server.cost().since(before).part(1 / IDLE_S)
