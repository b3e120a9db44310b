"""One agent of a fleet as a state machine: our labelling and our watch, by somebody else's clock.

The labels are those of a real scan, so that no time goes into making them; all that asks the API
server, and decides when, is the daemon's own code.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any

from nodetopo.components.labels.loop import LOOK_S, LabelsLoop
from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.labels.outputs.output import DesiredLabels
from nodetopo.errors import ApiUnavailable
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kubeapi.client import Expired, Stream
from nodetopo.kubeapi.watch import NodeWatch
from nodetopo.model.snapshot import Snapshot
from tests.bench.fleet_connection import IDLE_S, Connection

LEAST_S = 0.001
"""The clock moves by so much between two steps of one agent, whatever it asks for."""

NEVER = float("inf")


class FleetAgent:
    """The agent of one node, from its start to its end; one thread, no waiting.

    Attributes:
        due: when it wants to act next, by its clock.
        labelling: ours.
    """

    def __init__(
        self,
        node: str,
        snapshot: Snapshot,
        labels: Mapping[str, str],
        *,
        connection: Callable[[], Connection],
        clock: Callable[[], float],
        chance: Random,
    ) -> None:
        """Start it; two connections are made as they are needed, as the daemon has them."""
        store = SnapshotStore()
        self._clock = clock
        self._asking, self._following = connection(), connection()
        self._watch = NodeWatch(None, node)
        self._watch._api = self._following
        self.labelling = LabelsLoop(
            Settings(node_name=node),
            store,
            outputs=(NodeLabelPublisher(None, node, connect=lambda: self._asking),),
            desired=_Scanned(labels),
            watch=self._watch,
            clock=clock,
            spread=chance.uniform,
        )
        self._stream: Stream | None = None
        # Kept, because an iterator that is dropped closes the connection.
        self._events: Iterator[Mapping[str, Any]] = iter(())
        self._step_at, self._follow_at = clock(), NEVER
        store.publish(snapshot)

    @property
    def due(self) -> float:
        """When it wants to act next."""
        return min(self._step_at, self._follow_at)

    @property
    def is_content(self) -> bool:
        """Whether the Node was last seen as it should be."""
        (lane,) = self.labelling._lanes
        return lane._published is not None

    def act(self) -> None:
        """Do what is due, as the daemon's threads do: publish, or follow the Node."""
        if self._follow_at <= self._step_at:
            self._follow_at = self._clock() + max(self._follow(), LEAST_S)
            self._step_at = min(self._step_at, self._clock() + LOOK_S)
            return
        self._step_at = self._clock() + max(self.labelling.step(), LEAST_S)
        if self._step_at - self._clock() > IDLE_S:
            self._asking.close()
        if self._follow_at == NEVER and self.labelling._lanes[0].has_looked:
            self._follow_at = self._clock()

    def lose(self) -> None:
        """Notice that the API server is gone: a watch ends at once, and is tried again."""
        self._hang_up()
        self._asking.close()
        self._follow_at = self._clock() + self._failed(ApiUnavailable("the connection was lost"))

    def stop(self) -> None:
        """End it, with its connections."""
        self._hang_up()
        self._asking.close()

    def _follow(self) -> float:
        """Open the next watch and look at what it begins with; return the seconds it lasts.

        The API server's cache may begin with the Node before our write, and then tells of the
        write at once. What comes later is not read, as nobody else changes these Nodes.
        """
        self._hang_up()
        try:
            self._stream = self._watch._opened()
            self._events = self._stream.events()
            while not self._watch._has_seen or self._is_behind:
                self._watch._take(next(self._events))
        except Expired:
            self._watch._version = ""
            return 0.0
        except ApiUnavailable as error:
            return self._failed(error)
        self._watch._problem = None
        self._watch._pause.reset()
        return self._following.lasts_s

    @property
    def _is_behind(self) -> bool:
        """Whether the watch shows the Node as it was before the last write."""
        (lane,) = self.labelling._lanes
        return self._watch._last is not None and lane.output.is_disturbed(self._watch._last)

    def _failed(self, error: ApiUnavailable) -> float:
        """Note that the watch does not work; return the seconds until the next attempt."""
        self._watch._problem = str(error)
        return self._watch._pause.next_s(error.retry_after_s)

    def _hang_up(self) -> None:
        if self._stream is not None:
            with suppress(OSError):
                self._stream._response.close()
            self._stream = None
        self._following.close()


class _Scanned:
    """What one scan asks for."""

    needs_node = False

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._wish = DesiredLabels(labels=labels)
        self._seen: Snapshot | None = None

    def note(self, node_labels: Mapping[str, str], /) -> None:
        """Take no notice: these labels depend on no other."""

    def is_news(self, snapshot: Snapshot, /) -> bool:
        """Tell whether nobody asked yet."""
        return self._seen is not snapshot

    def of(self, snapshot: Snapshot, /) -> DesiredLabels:
        """Return the labels."""
        self._seen = snapshot
        return self._wish
