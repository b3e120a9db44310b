"""The components of one run of the daemon: created once, read by the loops and by the status."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from agent.config.settings import Settings
from agent.daemon.check_terms import OverridesFile
from agent.daemon.expected_gpus import ExpectedGpuCount
from agent.daemon.gpu_health import GpuHealthMonitor
from agent.daemon.hca_health import HcaHealthMonitor
from agent.daemon.loops import Loop
from agent.daemon.plugins import PluginSet
from agent.daemon.reload import Reloader
from agent.daemon.state_files import CLAIMS_FILE, is_any_prepared
from agent.daemon.target import Target
from agent.errors import InputError
from agent.formats.responses import texts
from agent.kubeapi.access import is_known
from agent.kubeapi.apply import connection
from agent.kubeapi.watch import NodeWatch
from agent.publish.events import EventPublisher
from agent.store import SnapshotStore

if TYPE_CHECKING:  # loaded only where they are used
    from agent.daemon.dra_loop import DraLoop
    from agent.daemon.dra_neighbours import DraNeighbours
    from agent.daemon.driver_pause import DriverPause
    from agent.daemon.labels_loop import LabelsLoop
    from agent.daemon.pod_loops import PodLoops
    from agent.daemon.running_pods import Published
    from agent.daemon.zones_loop import ZonesLoop
    from agent.kubeapi.slices import SliceWatch


@dataclass(slots=True, kw_only=True)
class Components:
    """The components; only *settings*, *dra* and *pod_loops* change while the daemon runs.

    Attributes:
        settings: in force now.
        overrides: of the checks.
        health, hcas: ``None`` where GPUs, and HCAs, are not watched.
        expected: says how many GPUs there should be; ``None`` for a simulated machine.
        pause: whether somebody asks for a free driver; ``None`` without an API server.
        reloader: ``None`` where settings never change.
        events, labels, zones: ``None`` where nothing of the kind is published.
        slices, neighbours: the node's ResourceSlices, and what other drivers give out by them;
            ``None`` where nobody asks.
        dra: publishes GPUs as devices of our DRA driver; ``None`` before it does, and where no
            setting asks for it.
        watch: of the Node, that *pause* and *expected* follow; ``None`` before there is one.
        own_watch: the same where nothing else runs it.
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
    expected: ExpectedGpuCount | None = None
    pause: "DriverPause | None" = None
    reloader: Reloader | None = None
    events: EventPublisher | None = None
    labels: "LabelsLoop | None" = None
    zones: "ZonesLoop | None" = None
    slices: "SliceWatch | None" = None
    neighbours: "DraNeighbours | None" = None
    dra: "DraLoop | None" = None
    pod_loops: "PodLoops | None" = None
    watch: NodeWatch | None = None
    own_watch: NodeWatch | None = None

    def add_events(self) -> None:
        """Add what posts Events, if the settings ask for it."""
        if self.settings.publish_events:
            self.events = EventPublisher(self.settings.kubeconfig, self.settings.node_name)

    def add_slices(self) -> None:
        """Add what follows the node's ResourceSlices, where an API server has them.

        Also where no GPU is offered: that may change while the daemon runs, and pods have GPUs by
        claim all the same.

        Raises:
            InputError: our DRA driver is on, and there is no API server to publish to.
        """
        settings = self.settings
        if not self.target.is_real or settings.once:
            return
        if not is_known(settings.kubeconfig):
            if settings.dra:
                raise InputError("dra needs an API server", "give --kubeconfig, or run in a pod")
            return
        from agent.daemon.dra_neighbours import (  # noqa: PLC0415 - in a cluster only
            DraNeighbours,
            claims_of,
        )
        from agent.kubeapi.slices import SliceWatch  # noqa: PLC0415 - same

        self.slices = SliceWatch(settings.kubeconfig, settings.node_name)
        connect = connection(settings.kubeconfig)
        self.neighbours = DraNeighbours(
            self.slices,
            connect,
            settings.plugins_registry_dir,
            claims_of(settings.pod_resources_socket),
        )

    @property
    def claims_file(self) -> Path | None:
        """Where prepared claims outlive the process; ``None`` where nothing does."""
        state = self.settings.health_file
        return None if state is None else state.with_name(CLAIMS_FILE)

    @property
    def needs_dra(self) -> bool:
        """Whether our DRA driver runs: it is on, or it was and pods have claims of it."""
        if self.slices is None or self.settings.once or self.target.served_by is not None:
            return False
        file = self.claims_file
        return self.settings.dra or (file is not None and is_any_prepared(file))

    def wake(self) -> None:
        """Have every loop that waits for news see now that the daemon stops."""
        if self.events is not None:
            self.events.wake()
        if self.pod_loops is not None:
            self.pod_loops.wake()

    def published(self) -> "Published":
        """Return the devices that DRA drivers publish for the node; ``None`` where not known."""
        return None if self.neighbours is None else self.neighbours.devices

    def add_pause(self) -> None:
        """Add what follows the labels that ask for a free driver, where there is an API server."""
        settings = self.settings
        if self.target.is_real and not settings.once and is_known(settings.kubeconfig):
            from agent.daemon.driver_pause import DriverPause  # noqa: PLC0415 - in a cluster only

            self.pause = DriverPause()
            if self.reloader is not None and self.reloader.watch is not None:
                self._follow(self.reloader.watch)

    def _follow(self, watch: NodeWatch) -> None:
        """Have *watch* notify those that need the Node's labels, once."""
        if self.watch is watch:
            return
        self.watch = watch
        watch.subscribe(self._note)

    def _note(self, node: Mapping[str, Any] | None) -> None:
        """Take the Node's metadata; called by the thread of the watch."""
        if self.expected is not None and node is not None:
            self.expected.note(texts(node, "labels"))
        if self.pause is not None:
            self.pause.note(node)

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
                is_watch_wanted=self.pause is not None,
            )
            watch = self.labels.watch
        if (settings.publish_zones or settings.annotate_pods) and self.target.is_real:
            from agent.daemon.zones_loop import configured_zones_loop  # noqa: PLC0415 - memory that few nodes need

            self.zones = configured_zones_loop(settings, self.store, watch, self.published)
        if self.pause is not None:
            if watch is None:
                watch = self.own_watch = NodeWatch(settings.kubeconfig, settings.node_name)
            self._follow(watch)

    def loops(self) -> Iterator[tuple[str, Loop]]:
        """Yield each loop that publishes, with its name; each takes a thread."""
        if self.labels is not None:
            yield "labels", self.labels.run
        if self.zones is not None:
            yield "zones", self.zones.run
        if self.events is not None:
            yield "events", self.events.run
        if self.own_watch is not None:
            yield "own node", self.own_watch.run
