"""The daemon: wires discovery, health, the device plugins, labels and metrics around the store.

Data flows one way: scan → store → {plugins, labels, metrics}. A scan that fails keeps what the
last good one found; nothing that reads the store waits for hardware or for the API server.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import structlog

from agent import logs, signals
from agent.actors import ActorGroup
from agent.beats import Beats
from agent.config.settings import Settings
from agent.errors import AgentError
from agent.health.notices import Notice
from agent.health_file import read_boot_id
from agent.health_watch import HealthWatch
from agent.judging import TermsFile
from agent.label_places import places
from agent.label_wishes import LabelWishes
from agent.labelling import Labelling
from agent.node_place import NodePlace
from agent.notices import Notices
from agent.offering import Offering
from agent.placement import Placements
from agent.publish.events import EventPublisher
from agent.publish.metrics import MetricsServer, serve_metrics
from agent.publish.node_watch import NodeWatch
from agent.ready import Ready, Waiting
from agent.reload import Reloader
from agent.remembered import remembered_gpus, remembered_health
from agent.scanning import Scanning
from agent.scene import Scene, set_up
from agent.store import SnapshotStore
from agent.telling import Telling
from agent.upkeep import Upkeep

if TYPE_CHECKING:
    from agent.attending import Attending
    from agent.zoning import Zoning

SERVE_FIRST_S = 3.0
"""How long node and pods are not looked at after the start: GPUs are offered meanwhile. Pods are
measured once a minute, and one that was rejected before is explained all the same."""

GRACE_S = 0.5
"""How long the loops get to end; with the rest of a stop it makes less than a second."""


LAST_WORDS_S = 2.0
"""How long a daemon that ends by itself waits, so that its reason becomes an Event."""


def run(
    settings: Settings,
    report: Callable[[Ready], None] | None = None,
    reloader: Reloader | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, or with ``once`` until *report* has been called.

    Settings that change meanwhile come from *reloader*, if given.

    Returns:
        0 after a stop that was asked for, 1 if a loop of ours failed or only a new container
        can help, 3 if ``once`` was asked for and the kubelet did not take the devices in time.

    Raises:
        AgentError: the settings do not fit this machine.
    """
    logs.configure(settings.log_format, settings.log_level)
    with ExitStack() as stack:
        placements = Placements.of(settings)  # before a child is started for a setting that fails
        terms = TermsFile(settings.checks_file)
        wake = threading.Event()
        boot_id = read_boot_id(settings.procfs_root)
        health = remembered_health(settings, boot_id, wake.set)
        on_events = None if health is None else health.take_events
        scene = stack.enter_context(set_up(settings, on_events))
        offering = Offering(
            settings,
            scene.socket_dir,
            placements,
            is_simulated=not scene.is_real,
            known=remembered_gpus(settings, boot_id),
        )
        daemon = Daemon(
            settings, scene, offering, terms=terms, health=health, reloader=reloader, wake=wake
        )
        stack.callback(daemon.close)
        return daemon.run(report)


class Daemon:
    """One run: its loops, and what they hand to each other."""

    def __init__(
        self,
        settings: Settings,
        scene: Scene,
        offering: Offering,
        *,
        terms: TermsFile,
        health: HealthWatch | None,
        reloader: Reloader | None,
        wake: threading.Event,
    ) -> None:
        self._settings = settings
        self._scene = scene
        self._offering = offering
        self._terms = terms
        self._reloader = reloader
        self._group = ActorGroup()
        self._store = SnapshotStore()
        self._metrics: MetricsServer | None = None
        self._beats = Beats()
        self._offered = threading.Event()
        kubeconfig, node = settings.kubeconfig, settings.node_name
        self._events = EventPublisher(kubeconfig, node) if settings.publish_events else None
        self._labelling = self._new_labelling() if settings.publish_labels else None
        self._zoning = self._new_zoning()
        self._attending: Attending | None = None
        self._scanning = Scanning(
            scene=scene,
            store=self._store,
            health=health,
            interval_s=lambda: self._settings.scan_interval_s,
            on_scan=wake.set,
            beat=lambda: self._beats.beat("scan"),
        )
        self._upkeep = Upkeep(
            store=self._store,
            offering=offering,
            health=health,
            notices=Notices(self._events.post if self._events is not None else None),
            reload=self._reload,
            on_offer=self._offered.set,
            wake=wake,
        )
        self._telling = Telling(
            settings=lambda: self._settings,
            scene=scene,
            store=self._store,
            terms=terms.terms,
            offering=offering,
            health=health,
            labelling=self._labelling,
            zoning=self._zoning,
            attending=lambda: self._attending,
            events=self._events,
            reloader=reloader,
        )
        if reloader is not None:
            reloader.on_news = wake.set

    def run(self, report: Callable[[Ready], None] | None) -> int:
        """Start every loop, tell *report* once, and wait for the end."""
        signals.hand_over(self._stop, self._read_all_anew)
        self._group.start("scan", self._scan)
        self._group.start("upkeep", self._keep_up)
        self._group.start("prepare", self._prepare)
        metrics_url = self._serve_metrics()
        if self._labelling is not None:
            self._group.start("labels", self._labelling.run)
        if self._zoning is not None:
            self._group.start("zones", self._zoning.run)
        if self._events is not None:
            self._group.start("events", self._events.run)
        if self._settings.attends and not self._settings.once and self._scene.is_real:
            self._group.start("attend", self._attend)
        is_ready = self._report(report, metrics_url)
        if self._settings.once:
            self._group.stop()
        failed = self._group.wait(GRACE_S)
        if failed or self._upkeep.failure is not None:
            return 1
        return 3 if self._settings.once and not is_ready else 0

    def close(self) -> None:
        """Leave the kubelet and end the NVML child; labels stay on the Node."""
        self._stop()
        if self._reloader is not None:
            self._reloader.close()
        self._offering.stop()
        if self._metrics is not None:
            self._metrics.close()

    def _new_labelling(self) -> Labelling:
        settings = self._settings
        return Labelling(
            settings,
            self._store,
            outputs=places(settings),
            wishes=LabelWishes(lambda: self._settings, NodePlace(settings), _remark),
            watch=None if self._reloader is None else self._reloader.watch,
        )

    def _node_watch(self) -> NodeWatch | None:
        """Return what follows the Node, if anything does."""
        if self._labelling is not None:
            return self._labelling.watch
        return None if self._reloader is None else self._reloader.watch

    def _new_zoning(self) -> "Zoning | None":
        """Return what publishes zones and placements, where that is wanted of a real machine."""
        wanted = self._settings.publish_zones or self._settings.annotate_pods
        if not wanted or not self._scene.is_real:
            return None
        from agent.zoning import zoning  # noqa: PLC0415 - memory that few nodes need

        return zoning(self._settings, self._store, self._node_watch())

    def _stop(self) -> None:
        self._group.stop()
        self._store.close()
        self._upkeep.wake.set()
        self._offered.set()

    def _read_all_anew(self) -> None:
        self._scanning.scan_whole()
        if self._reloader is not None:
            self._reloader.ask()

    def _reload(self) -> tuple[Notice, ...]:
        if self._reloader is None:
            return ()
        self._reloader.poll(self._apply)
        return self._reloader.notices()

    def _apply(self, settings: Settings) -> None:
        self._offering.reconfigure(settings, Placements.of(settings))
        self._settings = settings
        self._offered.set()

    def _scan(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._beats.beat("scan")
            self._scanning.step(stopping)

    def _keep_up(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._beats.beat("upkeep")
            self._upkeep.step()
            if self._upkeep.failure is not None and not stopping.is_set():
                structlog.get_logger().error("daemon ends", problem=self._upkeep.failure)
                stopping.wait(LAST_WORDS_S if self._events is not None else 0)
                return

    def _prepare(self, stopping: threading.Event) -> None:
        """Work out first answers: it can take seconds, and neither a verdict nor a stop waits."""
        while not stopping.is_set():
            self._offered.wait()
            self._offered.clear()
            self._offering.prepare()
            structlog.get_logger().debug("first answers worked out")

    def _attend(self, stopping: threading.Event) -> None:
        """Judge and follow, once the kubelet was served: that costs 0.5 s of CPU to load."""
        if stopping.wait(SERVE_FIRST_S):
            return
        from agent.attending import attending  # noqa: PLC0415 - see above

        self._attending = attending(self._settings, self._store, self._terms)
        for name, loop in self._attending.loops():
            self._group.start(name, loop)
        stopping.wait()

    def _serve_metrics(self) -> str | None:
        if self._settings.metrics_address is None:
            return None
        try:
            address, state = self._settings.metrics_address, self._telling.state
            server = serve_metrics(address, state, self._beats.silence_s)
        except AgentError as error:
            # A taken port must not keep GPUs from being served.
            structlog.get_logger().warning("metrics not served", error=str(error))
            return None
        self._metrics = server
        structlog.get_logger().info("metrics served", url=server.url)
        return server.url

    def _report(self, report: Callable[[Ready], None] | None, metrics_url: str | None) -> bool:
        """Wait for the registration, show it, and tell whether there was something to show."""
        if not self._settings.once and report is None:
            return True
        waiting = Waiting(self._settings, self._scene, self._store, self._offering)
        found = waiting.ready(self._group.stopping, metrics_url)
        if found is None:
            return False
        if report is not None:
            report(found)
        return True


def _remark(text: str) -> None:
    structlog.get_logger().warning("labels", about=text)
