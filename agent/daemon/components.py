"""The components of one run of the daemon: created once, read by the loops and by the status."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from agent.config.settings import Settings
from agent.daemon.check_terms import OverridesFile
from agent.daemon.gpu_health import GpuHealthMonitor
from agent.daemon.hca_health import HcaHealthMonitor
from agent.daemon.loops import Loop
from agent.daemon.plugins import PluginSet
from agent.daemon.reload import Reloader
from agent.daemon.target import Target
from agent.kubeapi.watch import NodeWatch
from agent.publish.events import EventPublisher
from agent.store import SnapshotStore

if TYPE_CHECKING:  # loaded only where they are used
    from agent.daemon.labels_loop import LabelsLoop
    from agent.daemon.pod_loops import PodLoops
    from agent.daemon.zones_loop import ZonesLoop


@dataclass(slots=True, kw_only=True)
class Components:
    """The components; only *settings* and *pod_loops* change while the daemon runs.

    Attributes:
        settings: in force now.
        overrides: of the checks.
        health, hcas: ``None`` where GPUs, and HCAs, are not watched.
        reloader: ``None`` where settings never change.
        events, labels, zones: ``None`` where nothing of the kind is published.
        pod_loops: audit the node and follow pods; ``None`` before they do, and where no setting
            asks for them.
    """

    settings: Settings
    target: Target
    store: SnapshotStore
    plugins: PluginSet
    overrides: OverridesFile
    health: GpuHealthMonitor | None = None
    hcas: HcaHealthMonitor | None = None
    reloader: Reloader | None = None
    events: EventPublisher | None = None
    labels: "LabelsLoop | None" = None
    zones: "ZonesLoop | None" = None
    pod_loops: "PodLoops | None" = None

    def add_events(self) -> None:
        """Add what posts Events, if the settings ask for it."""
        if self.settings.publish_events:
            self.events = EventPublisher(self.settings.kubeconfig, self.settings.node_name)

    def add_publishers(self) -> None:
        """Add what publishes labels and zones, as far as the settings ask for it."""
        settings = self.settings
        watch: NodeWatch | None = None if self.reloader is None else self.reloader.watch
        if settings.publish_labels:
            from agent.daemon.labels_loop import (  # noqa: PLC0415 - not needed to register
                DesiredLabelsBuilder,
                LabelsLoop,
                NodeTiers,
                configured_outputs,
            )

            log = structlog.get_logger()
            desired = DesiredLabelsBuilder(
                lambda: self.settings,
                NodeTiers(settings),
                lambda text: log.warning("labels", about=text),
            )
            self.labels = LabelsLoop(
                settings,
                self.store,
                outputs=configured_outputs(settings),
                desired=desired,
                watch=watch,
            )
            watch = self.labels.watch
        if (settings.publish_zones or settings.annotate_pods) and self.target.is_real:
            from agent.daemon.zones_loop import configured_zones_loop  # noqa: PLC0415 - memory that few nodes need

            self.zones = configured_zones_loop(settings, self.store, watch)

    def loops(self) -> Iterator[tuple[str, Loop]]:
        """Yield each loop that publishes, with its name; each takes a thread."""
        if self.labels is not None:
            yield "labels", self.labels.run
        if self.zones is not None:
            yield "zones", self.zones.run
        if self.events is not None:
            yield "events", self.events.run
