"""Keep what schedulers place by as the kubelet gives it out: zones of the node, places of pods."""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import structlog

from agent.config.settings import Settings
from agent.errors import AgentError, UnreadableError
from agent.kubeapi.apply import connection
from agent.kubeapi.backoff import RETRY_S, RetryPause
from agent.kubeapi.watch import NodeWatch
from agent.model.kubelet import KubeletSettings
from agent.model.node import NodeOffer, PodHolding
from agent.model.numa import NumaNode
from agent.probes.kubelet.podresources import PodResources
from agent.publish.labels.pacing import RECHECK_S, Clock, Spread, at_once
from agent.publish.zones import NodeZonesPublisher, ObservedPlacementPublisher, Pod
from agent.store import SnapshotStore
from agent.zones.node_resource_topology import attributes, content
from agent.zones.observed import observed_placement
from agent.zones.zones import SteadyOffer, SteadyPods, zones

# When something is written again that changes with every pod: soon, but not all the time.

Wanted = TypeVar("Wanted")


START_S = 30.0
"""A first look waits up to so long, by chance: 15,000 agents that start together and have an
object to create each are 500 writes a second then."""


GAP_S = 5.0
"""After a look the next waits so long, whatever changes: at most twelve writes a minute for a node
whose pods come and go all the time."""


NEW_NODE_S = (5.0, 30.0)
"""The same after the Node was created anew: by then the garbage collector took away what the old
Node owned."""


class ZoningLane(Generic[Wanted]):
    """One thing to keep written; for one thread.

    Attributes:
        errors: attempts that failed.
    """

    def __init__(
        self,
        name: str,
        publish: Callable[[Wanted], bool | None],
        republish: Callable[[Wanted], bool | None],
        *,
        clock: Clock = time.monotonic,
        spread: Spread = random.uniform,
    ) -> None:
        """Begin with nothing written.

        Args:
            name: what it is, for the log.
            publish: writes what is new; ``False`` where the place is another's, which is then
                looked at no sooner than it would be without news.
            republish: the same, after it looked at everything anew.
            clock: for pauses.
            spread: by chance.
        """
        self._name = name
        self._publish = publish
        self._republish = republish
        self._clock = clock
        self._spread = spread
        self._pause = RetryPause(*RETRY_S, least_s=RETRY_S[0], spread=spread)
        self._not_before = clock() + spread(0.0, START_S)
        self._recheck_at = self._not_before
        self._asked_until = 0.0
        self._published: Wanted | None = None
        self.errors = 0

    def step(self, wanted: Wanted) -> None:
        """Write *wanted* if it differs from what was written, or is to be looked at, and may be."""
        now = self._clock()
        is_recheck = now >= self._recheck_at
        if now < self._not_before or (wanted == self._published and not is_recheck):
            return
        try:
            is_kept = (self._republish if is_recheck else self._publish)(wanted)
        except AgentError as error:
            self._failed(error)
            return
        self._pause.reset()
        if is_recheck:
            self._recheck_at = now + self._spread(*RECHECK_S)
        self._published = wanted
        self._not_before = self._recheck_at if is_kept is False else now + GAP_S

    def expect_loss(self) -> None:
        """Look soon at what was written: it may be gone with the Node that owned it.

        No sooner than the API server asked for.
        """
        soon = self._clock() + self._spread(*NEW_NODE_S)
        self._recheck_at = self._not_before = max(soon, self._asked_until)

    def _failed(self, error: AgentError) -> None:
        self.errors += 1
        structlog.get_logger().warning("not published", what=self._name, error=str(error))
        now, asked_s = self._clock(), getattr(error, "retry_after_s", None)
        self._asked_until = now + (asked_s or 0.0)
        self._not_before = now + self._pause.next_s(asked_s)


LOOK_S = 2.0
"""How often the kubelet is asked what it gave. It tells nobody by itself; it answers from memory,
and allows 100 questions a second (kubernetes 1.36 pkg/kubelet/apis/podresources/constants.go)."""


KUBELET_RETRY_S = (LOOK_S, 30.0)
"""First and longest pause after the kubelet did not answer, doubled in between, full jitter."""


class Kubelet(Protocol):
    """What is asked of the kubelet."""

    @property
    def start(self) -> object:
        """What is another one after each start of the kubelet, as of the last question."""

    def offer(self) -> NodeOffer:
        """Return what it can give; raises UnreadableError."""

    def held(self) -> tuple[PodHolding, ...]:
        """Return what every active pod has; raises UnreadableError."""

    def close(self) -> None:
        """Leave it."""


class Zoning:
    """Publishes what the kubelet says; one thread runs it, any may read its counters.

    Attributes:
        kubelet_errors: times that the kubelet did not answer.
    """

    def __init__(
        self,
        settings: Settings,
        store: SnapshotStore,
        *,
        zones: NodeZonesPublisher | None,
        placements: ObservedPlacementPublisher | None,
        kubelet: Kubelet | None = None,
        clock: Clock = time.monotonic,
        spread: Spread = random.uniform,
    ) -> None:
        """Begin with nothing published.

        Args:
            settings: where the kubelet is met.
            store: where the machine's NUMA nodes and the kubelet's policies come from.
            zones, placements: what to publish; ``None`` for not.
            kubelet: ``None`` for the one of *settings*.
            clock: for pauses.
            spread: by chance; with ``settings.once`` nothing waits.
        """
        spread = at_once if settings.once else spread
        self._store = store
        self._zones = zones
        self._placements = placements
        self._kubelet = kubelet or PodResources(settings.pod_resources_socket)
        self._clock = clock
        self._zone_lane: ZoningLane[Mapping[str, Any]] | None = None
        self._placement_lane: ZoningLane[Mapping[Pod, str]] | None = None
        if zones is not None:
            self._zone_lane = ZoningLane(
                "zones", zones.publish, zones.publish, clock=clock, spread=spread
            )
        if placements is not None:
            self._placement_lane = ZoningLane(
                "placements", placements.publish, placements.republish, clock=clock, spread=spread
            )
        self._pause = RetryPause(*KUBELET_RETRY_S, least_s=LOOK_S, spread=spread)
        self._offer = SteadyOffer()
        self._pods = SteadyPods()
        self._appeared: dict[tuple[str, str], int] = {}
        self._takes = 0
        self._node_uid: object = None
        self._noted_uid: object = None
        self._problem: str | None = None
        self._policies: KubeletSettings | None = None
        self._seen: tuple[object, ...] | None = None
        self._content: Mapping[str, Any] = {}
        self._wanted: Mapping[Pod, str] = {}
        self.kubelet_errors = 0

    @property
    def writes(self) -> int:
        """How many writes the API server took."""
        return sum(one.writes for one in (self._zones, self._placements) if one is not None)

    @property
    def errors(self) -> int:
        """How many attempts failed, to ask the kubelet or to publish."""
        lanes = (self._zone_lane, self._placement_lane)
        refusals = 0 if self._placements is None else self._placements.refusals
        return (
            sum(lane.errors for lane in lanes if lane is not None) + refusals + self.kubelet_errors
        )

    @property
    def left_to(self) -> tuple[str, ...] | None:
        """Who else fills the node's zones, by field manager; ``None`` where nobody else does."""
        return None if self._zones is None else self._zones.left_to

    def run(self, stopping: threading.Event) -> None:
        """Publish what is new until *stopping* is set; what is published stays."""
        while not stopping.is_set():
            stopping.wait(self.step())
        self._kubelet.close()

    def note_node(self, node: Mapping[str, Any] | None) -> None:
        """Take the metadata that a watch of the Node saw; called by its thread."""
        if node is not None:
            self._noted_uid = node.get("uid")

    def step(self) -> float:
        """Ask the kubelet and publish what it says; return the seconds until the next look."""
        numa_nodes = self._numa_nodes()
        if not numa_nodes:
            return LOOK_S  # nothing was read yet, or the machine does not tell
        try:
            # Only zones tell what the kubelet could still give.
            offer = NodeOffer() if self._zones is None else self._kubelet.offer()
            held = self._kubelet.held()
        except UnreadableError as error:
            return self._unanswered(error)
        self._answered()
        now = self._clock()
        self._take(
            numa_nodes,
            self._offer.take(offer, now),
            self._pods.take(held, self._kubelet.start, now),
        )
        self._follow_node()
        if self._zone_lane is not None:
            self._zone_lane.step(self._content)
        if self._placement_lane is not None:
            self._placement_lane.step(self._wanted)
        return LOOK_S

    def _follow_node(self) -> None:
        """Have the zones looked at soon where the Node was created anew."""
        before, self._node_uid = self._node_uid, self._noted_uid
        if before in (None, self._node_uid) or self._zones is None or self._zone_lane is None:
            return
        self._zones.forget_owner()
        self._zone_lane.expect_loss()

    def _numa_nodes(self) -> Sequence[NumaNode]:
        current = self._store.current
        if current is None:
            return ()
        # A scan that could not read them does not change the kubelet's policies.
        self._policies = current.snapshot.kubelet or self._policies
        return current.snapshot.numa_nodes or ()

    def _take(
        self, numa_nodes: Sequence[NumaNode], offer: NodeOffer, held: tuple[PodHolding, ...]
    ) -> None:
        seen = (numa_nodes, offer, held, self._policies)
        if seen == self._seen:
            return
        self._seen = seen
        self._content = content(zones(numa_nodes, offer, held), attributes(self._policies, held))
        found = {pod: observed_placement(one, numa_nodes) for pod, one in self._named(held)}
        self._wanted = {pod: value for pod, value in found.items() if value is not None}

    def _named(self, held: Iterable[PodHolding]) -> Iterator[tuple[Pod, PodHolding]]:
        """Yield *held*, one that was away in between under another name than before."""
        self._takes += 1
        before, self._appeared = self._appeared, {}
        for pod in held:
            name = (pod.namespace, pod.name)
            self._appeared[name] = before.get(name, self._takes)
            yield Pod(*name, self._appeared[name]), pod

    def _answered(self) -> None:
        self._pause.reset()
        if self._problem is not None:
            self._problem = None
            structlog.get_logger().info("pod resources read again")

    def _unanswered(self, error: UnreadableError) -> float:
        self.kubelet_errors += 1
        if (problem := str(error)) != self._problem:
            self._problem = problem
            structlog.get_logger().warning("pod resources not read", error=problem)
        return self._pause.next_s(None)


def zoning(settings: Settings, store: SnapshotStore, watch: NodeWatch | None = None) -> Zoning:
    """Return what publishes zones, placements or both, as *settings* ask.

    With a *watch* of the Node, zones that went with it are back soon after it was created anew.
    """
    connect, node = connection(settings.kubeconfig), settings.node_name
    zones = NodeZonesPublisher(connect, node) if settings.publish_zones else None
    placements = ObservedPlacementPublisher(connect, node) if settings.annotate_pods else None
    found = Zoning(settings, store, zones=zones, placements=placements)
    if watch is not None:
        watch.subscribe(found.note_node)
    return found
