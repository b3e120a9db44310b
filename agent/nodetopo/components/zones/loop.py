"""The loop that publishes the kubelet's allocations: zones of the node, placements of pods."""

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import structlog
from msgspec.structs import replace

from nodetopo.backoff import API_RETRY_S, Backoff
from nodetopo.components.zones.node_resource_topology import attributes, content
from nodetopo.components.zones.observed import observed_placement
from nodetopo.components.zones.publish import NodeZonesPublisher, ObservedPlacementPublisher, Pod
from nodetopo.components.zones.settings import ZoneSettings
from nodetopo.components.zones.zones import SteadyOffer, SteadyPods, zones
from nodetopo.errors import AgentError, UnreadableError
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.pacing import RECHECK_S, Clock, Spread, at_once
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kubeapi.apply import connection
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.node import NodeOffer, PodHolding
from nodetopo.model.snapshot import Snapshot
from nodetopo.outage import Outage
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.topology.published import ClaimedGpus

if TYPE_CHECKING:  # loads more than this thread needs
    from nodetopo.kernel.running_pods import Published

LOOK_S = 4.0
"""Interval between questions to the kubelet, which sends no notifications. It answers from memory,
and allows 100 questions a second (kubernetes 1.36 pkg/kubelet/apis/podresources/constants.go). Each
question costs 1 to 2 ms of CPU, most of it in gRPC's threads, which keep polling for work.
"""

OFFER_LOOKS = 2
"""Looks between two questions about allocatable resources, unless pods or kubelet have changed."""

OUTAGE_ATTEMPTS = 6
"""Attempts, with the pauses below about a minute, after which a kubelet's silence is reported."""

KUBELET_RETRY_S = (LOOK_S, 30.0)
"""First and longest pause after the kubelet did not answer, doubled in between, full jitter."""

START_S = 30.0
"""Longest random delay of the first look: 15,000 agents that start together and have an object to
create each are 500 writes a second then.
"""

GAP_S = 5.0
"""Pause between looks, regardless of changes: at most twelve writes a minute for a node whose pods
come and go all the time.
"""

NEW_NODE_S = (5.0, 30.0)
"""The same after the Node was recreated: by then the garbage collector has deleted the old Node's
dependents.
"""


def configured_zones_loop(
    settings: ZoneSettings,
    store: SnapshotStore,
    published: "Callable[[], Published]" = lambda: None,
) -> "ZonesLoop":
    """Return the loop that publishes zones, placements or both, by *settings*.

    *published* returns the devices that DRA drivers publish for the node.
    """
    connect, node = connection(settings.kubeconfig), settings.node_name
    zones = NodeZonesPublisher(connect, node) if settings.publish_zones else None
    placements = ObservedPlacementPublisher(connect, node) if settings.annotate_pods else None
    return ZonesLoop(settings, store, zones=zones, placements=placements, published=published)


class Kubelet(Protocol):
    """The kubelet's PodResources API."""

    @property
    def start(self) -> object:
        """Return a value that differs after each start of the kubelet, as of the last question."""

    def offer(self) -> NodeOffer:
        """Return the allocatable resources; raises UnreadableError."""

    def held(self) -> tuple[PodHolding, ...]:
        """Return the devices of every active pod; raises UnreadableError."""

    def close(self) -> None:
        """Close the connection."""


class ZonesLoop(PeriodicLoop):
    """Publishes the kubelet's allocations; one thread runs it, any thread can read its counters."""

    def __init__(
        self,
        settings: ZoneSettings,
        store: SnapshotStore,
        *,
        zones: NodeZonesPublisher | None,
        placements: ObservedPlacementPublisher | None,
        published: "Callable[[], Published]" = lambda: None,
        kubelet: Kubelet | None = None,
        clock: Clock = time.monotonic,
        spread: Spread = random.uniform,
    ) -> None:
        """Publish nothing yet.

        Args:
            settings: locate the kubelet.
            store: has the machine's NUMA nodes and the kubelet's policies.
            zones, placements: the publishers; ``None`` if off.
            published: returns the devices that DRA drivers publish for the node.
            kubelet: ``None`` for the kubelet of *settings*.
            clock: for pauses.
            spread: random; with ``settings.once`` nothing waits.
        """
        spread = at_once if settings.once else spread
        self._store = store
        self._zones = zones
        self._placements = placements
        self._published = published
        self._kubelet = kubelet or PodResources(settings.pod_resources_socket)
        self._clock = clock
        self._zone_writer: PacedWriter[Mapping[str, Any]] | None = None
        self._placement_writer: PacedWriter[Mapping[Pod, str]] | None = None
        if zones is not None:
            self._zone_writer = PacedWriter(
                "zones", zones.publish, zones.publish, clock=clock, spread=spread
            )
        if placements is not None:
            self._placement_writer = PacedWriter(
                "placements", placements.publish, placements.republish, clock=clock, spread=spread
            )
        self._pause = Backoff(*KUBELET_RETRY_S, least_s=LOOK_S, spread=spread)
        self._offer = SteadyOffer()
        self._asked: tuple[NodeOffer, tuple[PodHolding, ...], object] | None = None
        self._looks_left = 0
        self._pods = SteadyPods()
        self._appeared: dict[tuple[str, str], int] = {}
        self._takes = 0
        self._node_uid: object = None
        self._noted_uid: object = None
        self._outage = Outage(OUTAGE_ATTEMPTS)
        self._policies: KubeletSettings | None = None
        self._seen: tuple[object, ...] | None = None
        self._zones_wanted: Mapping[str, Any] = {}
        self._placements_wanted: Mapping[Pod, str] = {}
        self.kubelet_errors = 0  # unanswered questions to the kubelet

    @property
    def writes(self) -> int:
        """How many writes the API server took."""
        publishers = (self._zones, self._placements)
        return sum(publisher.writes for publisher in publishers if publisher is not None)

    @property
    def errors(self) -> int:
        """How many attempts failed, to ask the kubelet or to publish."""
        writers = (self._zone_writer, self._placement_writer)
        failed = sum(writer.errors for writer in writers if writer is not None)
        refusals = 0 if self._placements is None else self._placements.refusals
        return failed + refusals + self.kubelet_errors

    @property
    def left_to(self) -> tuple[str, ...] | None:
        """The other producers of the node's zones, by field manager; ``None`` without one."""
        return None if self._zones is None else self._zones.left_to

    def note_node(self, node: Mapping[str, Any] | None) -> None:
        """Take the metadata that a watch of the Node saw; called by its thread."""
        if node is not None:
            self._noted_uid = node.get("uid")

    def step(self) -> float:
        """Ask the kubelet and publish its answer; return the seconds until the next look."""
        current = self._store.current
        if current is None or not current.snapshot.numa_nodes:
            return LOOK_S  # nothing was read yet, or the machine has no NUMA nodes to name
        # A scan that could not read them does not change the kubelet's policies.
        self._policies = current.snapshot.kubelet or self._policies
        log = structlog.get_logger()
        try:
            held = self._kubelet.held()
            offer = self._offered(held)
        except UnreadableError as error:
            self.kubelet_errors += 1
            if self._outage.failed():
                log.warning("pod resources not read", error=str(error))
            return self._pause.next_s(None)
        self._pause.reset()
        if self._outage.ended():
            log.info("pod resources read again")
        now = self._clock()
        self._take(
            current.snapshot,
            self._offer.take(offer, now),
            self._pods.take(held, self._kubelet.start, now),
        )

        # Zones are looked at soon where the Node was created again.
        before, self._node_uid = self._node_uid, self._noted_uid
        if self._zones is not None and self._zone_writer is not None:
            if before is not None and before != self._node_uid:
                self._zones.forget_owner()
                self._zone_writer.expect_loss()
            self._zone_writer.step(self._zones_wanted)
        if self._placement_writer is not None:
            self._placement_writer.step(self._placements_wanted)
        return LOOK_S

    def _offered(self, held: tuple[PodHolding, ...]) -> NodeOffer:
        """Return the kubelet's allocatable resources, at most a few looks old."""
        if self._zones is None:  # only zones need the lists
            return NodeOffer()
        asked, start = self._asked, self._kubelet.start
        self._looks_left -= 1
        if asked is None or self._looks_left <= 0 or asked[1:] != (held, start):
            self._asked = asked = (self._kubelet.offer(), held, start)
            self._looks_left = OFFER_LOOKS
        return asked[0]

    def close(self) -> None:
        """Close the connection to the kubelet; published objects stay."""
        self._kubelet.close()

    def _take(self, machine: Snapshot, offer: NodeOffer, held: tuple[PodHolding, ...]) -> None:
        """Compute the content to publish, if anything has changed."""
        numa_nodes = machine.numa_nodes or ()
        claims = any(pod.claimed for pod in held)
        published = self._published() if claims else None
        gpus = machine.gpus if claims else ()
        seen = (numa_nodes, offer, held, self._policies, published, gpus)
        if seen == self._seen:
            return
        self._seen = seen
        claimed = ClaimedGpus(replace(machine, published=published))
        self._zones_wanted = content(
            zones(numa_nodes, offer, held, claimed.uuids), attributes(self._policies, held)
        )
        # A pod that was away in between counts as another one than before.
        self._takes += 1
        before, self._appeared = self._appeared, {}
        placements = {}
        for holding in held:
            name = (holding.namespace, holding.name)
            self._appeared[name] = before.get(name, self._takes)
            placement = observed_placement(holding, numa_nodes)
            if placement is not None:
                placements[Pod(*name, self._appeared[name])] = placement
        self._placements_wanted = placements


Wanted = TypeVar("Wanted")


class PacedWriter(Generic[Wanted]):
    """Keeps something written that changes with every pod: soon, but not all the time.

    For one thread.
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
        """Write nothing yet.

        Args:
            name: of the content, for the log.
            publish: writes changes; ``False`` if another program owns the object, which is then
                checked no sooner than without changes.
            republish: the same, after rereading everything.
            clock: for pauses.
            spread: random.
        """
        self._name = name
        self._outage = Outage()
        self._publish = publish
        self._republish = republish
        self._clock = clock
        self._spread = spread
        self._pause = Backoff(*API_RETRY_S, least_s=API_RETRY_S[0], spread=spread)
        self._not_before = clock() + spread(0.0, START_S)
        self._recheck_at = self._not_before
        self._asked_until = 0.0
        self._published: Wanted | None = None
        self.errors = 0  # attempts that failed

    def step(self, wanted: Wanted) -> None:
        """Write *wanted* if it has changed, or is due to be checked, and a write is allowed now."""
        now, relief_s = self._clock(), self._pause.relief_s()
        self._not_before, self._asked_until = (
            self._not_before - relief_s,
            self._asked_until - relief_s,
        )
        is_recheck = now >= self._recheck_at
        if now < self._not_before or (wanted == self._published and not is_recheck):
            return
        try:
            is_kept = (self._republish if is_recheck else self._publish)(wanted)
        except AgentError as error:
            self.errors += 1
            if self._outage.failed(str(error)):
                log = structlog.get_logger()
                log.warning("not published", what=self._name, error=str(error))
            now, asked_s = self._clock(), getattr(error, "retry_after_s", None)
            self._asked_until = now + (asked_s or 0.0)
            self._not_before = now + self._pause.next_s(asked_s)
            return
        if failures := self._outage.ended():
            structlog.get_logger().info("published again", what=self._name, failed=failures)
        self._pause.reset()
        if is_recheck:
            self._recheck_at = now + self._spread(*RECHECK_S)
        self._published = wanted
        self._not_before = self._recheck_at if is_kept is False else now + GAP_S

    def expect_loss(self) -> None:
        """Check soon for written objects, which may be deleted with their owning Node.

        The check respects the API server's requested delay.
        """
        soon = self._clock() + self._spread(*NEW_NODE_S)
        self._recheck_at = self._not_before = max(soon, self._asked_until)
