"""The daemon: wires discovery, health, the device plugins, labels and metrics around the store.

Data flows one way: scan → store → {plugins, labels, metrics}. A scan that fails keeps what the
last good one found; nothing that reads the store waits for hardware or for the API server.
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import structlog

from agent.config.settings import Settings
from agent.daemon import logs, loops
from agent.daemon.check_terms import TermsFile
from agent.daemon.components import Parts
from agent.daemon.gpu_health import remembered_gpus, remembered_health
from agent.daemon.loops import ActorGroup
from agent.daemon.placement import Placements
from agent.daemon.plugins import Offering
from agent.daemon.reconcile_loop import Notices, Upkeep
from agent.daemon.reload import Reloader
from agent.daemon.scan_loop import Scanning
from agent.daemon.startup_report import Ready, Waiting
from agent.daemon.state_files import read_boot_id
from agent.daemon.status import Telling
from agent.daemon.target import set_up
from agent.errors import AgentError
from agent.health.notices import Notice
from agent.publish.metrics.server import MetricsServer, serve_metrics
from agent.store import SnapshotStore

# When each loop of the daemon last came around, for liveness.


class Beats:
    """Loops tell that they live; any thread may."""

    def __init__(self) -> None:
        """Know of no loop."""
        self._last: dict[str, float] = {}

    def beat(self, loop: str) -> None:
        """Note that *loop* came around now."""
        self._last[loop] = time.monotonic()

    def silence_s(self) -> float:
        """Return for how long the slowest of the loops has not come around; 0 before the first."""
        beats = tuple(self._last.values())  # other threads add to it
        return time.monotonic() - min(beats) if beats else 0.0


# What does not serve GPUs begins when they are served, or when that would take too long.

QUIET_S = 3.0
"""How long after the registration: pods that waited for GPUs ask for them then."""


MOST_S = 30.0
"""How long a registration is waited for. It may never come: another plugin has the resource, or no
kubelet runs."""


STEP_S = 0.5
"""How often there is a look at it."""


def wait_served(stopping: threading.Event, is_served: Callable[[], bool]) -> bool:
    """Wait until some time after *is_served*, not for ever; return whether *stopping* was set."""
    for _ in range(round(MOST_S / STEP_S)):
        if is_served() or stopping.wait(STEP_S):
            break
    return stopping.wait(QUIET_S)


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
        parts = Parts(
            settings=settings,
            scene=scene,
            store=SnapshotStore(),
            offering=offering,
            terms=terms,
            health=health,
            reloader=reloader,
        )
        parts.publish()
        daemon = Daemon(parts, wake)
        stack.callback(daemon.close)
        return daemon.run(report)


class Daemon:
    """One run: its loops, and what they hand to each other."""

    def __init__(self, parts: Parts, wake: threading.Event) -> None:
        """Run nothing yet; *wake* is set by whoever has news for what is offered."""
        self._parts = parts
        self._telling = Telling(parts)
        self._group = ActorGroup()
        self._metrics: MetricsServer | None = None
        self._beats = Beats()
        self._offered = threading.Event()
        self._scanning = Scanning(
            scene=parts.scene,
            store=parts.store,
            health=parts.health,
            interval_s=lambda: parts.settings.scan_interval_s,
            on_scan=wake.set,
            beat=lambda: self._beats.beat("scan"),
        )
        self._upkeep = Upkeep(
            store=parts.store,
            offering=parts.offering,
            health=parts.health,
            notices=Notices(parts.events.post if parts.events is not None else None),
            reload=self._reload,
            on_offer=self._offered.set,
            wake=wake,
        )
        if parts.reloader is not None:
            parts.reloader.on_news = wake.set

    def run(self, report: Callable[[Ready], None] | None) -> int:
        """Start every loop, tell *report* once, and wait for the end."""
        loops.hand_over(self._stop, self._read_all_anew)
        self._group.start("scan", self._scan)
        self._group.start("upkeep", self._keep_up)
        self._group.start("prepare", self._prepare)
        metrics_url = self._serve_metrics()
        for name, loop in self._parts.loops():
            self._group.start(name, loop)
        settings = self._parts.settings
        if settings.attends and not settings.once and self._parts.scene.is_real:
            self._group.start("attend", self._attend)
        is_ready = self._report(report, metrics_url)
        if settings.once:
            self._group.stop()
        failed = self._group.wait(GRACE_S)
        if failed or self._upkeep.failure is not None:
            return 1
        return 3 if settings.once and not is_ready else 0

    def close(self) -> None:
        """Leave the kubelet and end the NVML child; labels stay on the Node."""
        self._stop()
        if self._parts.reloader is not None:
            self._parts.reloader.close()
        self._parts.offering.stop()
        if self._metrics is not None:
            self._metrics.close()

    def _stop(self) -> None:
        self._group.stop()
        self._parts.store.close()
        self._upkeep.wake.set()
        self._offered.set()

    def _read_all_anew(self) -> None:
        self._scanning.scan_whole()
        if self._parts.reloader is not None:
            self._parts.reloader.ask()

    def _reload(self) -> tuple[Notice, ...]:
        notices = self._parts.terms.notices()
        reloader = self._parts.reloader
        if reloader is None:
            return notices
        reloader.poll(self._apply)
        return (*notices, *reloader.notices())

    def _apply(self, settings: Settings) -> None:
        self._parts.offering.reconfigure(settings, Placements.of(settings))
        self._parts.settings = settings
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
                stopping.wait(LAST_WORDS_S if self._parts.events is not None else 0)
                return

    def _prepare(self, stopping: threading.Event) -> None:
        """Work out first answers: it can take seconds, and neither a verdict nor a stop waits."""
        while not stopping.is_set():
            self._offered.wait()
            self._offered.clear()
            self._parts.offering.prepare()
            structlog.get_logger().debug("first answers worked out")

    def _attend(self, stopping: threading.Event) -> None:
        """Judge and follow, once the kubelet was served: that costs 0.5 s of CPU to load."""
        if wait_served(stopping, lambda: self._parts.offering.is_registered):
            return
        from agent.daemon.pod_loops import attending  # noqa: PLC0415 - see above

        parts = self._parts
        parts.attending = attending(parts.settings, parts.store, parts.terms)
        for name, loop in parts.attending.loops():
            self._group.start(name, loop)
        stopping.wait()

    def _serve_metrics(self) -> str | None:
        address = self._parts.settings.metrics_address
        if address is None:
            return None
        try:
            server = serve_metrics(address, self._telling.state, self._beats.silence_s)
        except AgentError as error:
            # A taken port must not keep GPUs from being served.
            structlog.get_logger().warning("metrics not served", error=str(error))
            return None
        self._metrics = server
        structlog.get_logger().info("metrics served", url=server.url)
        return server.url

    def _report(self, report: Callable[[Ready], None] | None, metrics_url: str | None) -> bool:
        """Wait for the registration, show it, and tell whether there was something to show."""
        parts = self._parts
        if not parts.settings.once and report is None:
            return True
        waiting = Waiting(parts.settings, parts.scene, parts.store, parts.offering)
        found = waiting.ready(self._group.stopping, metrics_url)
        if found is None:
            return False
        if report is not None:
            report(found)
        return True
