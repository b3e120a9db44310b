"""What one run of the daemon consists of: made once, and read by those who tell of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from agent.config.settings import Settings
from agent.daemon.check_terms import TermsFile
from agent.daemon.gpu_health import HealthWatch
from agent.daemon.labels_loop import Labelling, LabelWishes, NodePlace, places
from agent.daemon.loops import Loop
from agent.daemon.plugins import Offering
from agent.daemon.reload import Reloader
from agent.daemon.target import Scene
from agent.kubeapi.watch import NodeWatch
from agent.publish.events import EventPublisher
from agent.store import SnapshotStore

if TYPE_CHECKING:
    from agent.daemon.pod_loops import Attending
    from agent.daemon.zones_loop import Zoning


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts; *settings* and *attending* alone become others while the daemon runs.

    Attributes:
        settings: in force now.
        terms: of the checks.
        health: ``None`` where GPUs are not watched.
        reloader: ``None`` where settings never change.
        events, labelling, zoning: ``None`` where nothing of the kind is published.
        attending: what judges the node and follows pods; ``None`` before it does, and where
            nothing is to.
    """

    settings: Settings
    scene: Scene
    store: SnapshotStore
    offering: Offering
    terms: TermsFile
    health: HealthWatch | None = None
    reloader: Reloader | None = None
    events: EventPublisher | None = None
    labelling: Labelling | None = None
    zoning: "Zoning | None" = None
    attending: "Attending | None" = None

    def publish(self) -> None:
        """Add what publishes, as far as the settings ask for it."""
        settings = self.settings
        if settings.publish_events:
            self.events = EventPublisher(settings.kubeconfig, settings.node_name)
        if settings.publish_labels:
            self.labelling = self._labelling()
        if (settings.publish_zones or settings.annotate_pods) and self.scene.is_real:
            from agent.daemon.zones_loop import zoning  # noqa: PLC0415 - memory that few nodes need

            self.zoning = zoning(settings, self.store, self._node_watch())

    def loops(self) -> Iterator[tuple[str, Loop]]:
        """Yield each loop that publishes, with its name; each takes a thread."""
        if self.labelling is not None:
            yield "labels", self.labelling.run
        if self.zoning is not None:
            yield "zones", self.zoning.run
        if self.events is not None:
            yield "events", self.events.run

    def _labelling(self) -> Labelling:
        settings = self.settings
        return Labelling(
            settings,
            self.store,
            outputs=places(settings),
            wishes=LabelWishes(lambda: self.settings, NodePlace(settings), _remark),
            watch=None if self.reloader is None else self.reloader.watch,
        )

    def _node_watch(self) -> NodeWatch | None:
        """Return what follows the Node, if anything does."""
        if self.labelling is not None:
            return self.labelling.watch
        return None if self.reloader is None else self.reloader.watch


def _remark(text: str) -> None:
    structlog.get_logger().warning("labels", about=text)
