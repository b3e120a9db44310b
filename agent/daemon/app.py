"""The daemon: connects discovery, health, the device plugins, labels and metrics.

Data flows one way: scan → store → {plugins, labels, metrics}. A scan that fails keeps what the
last good one read; nothing that reads the store waits for hardware or for the API server.
"""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from agent.config.settings import Settings
from agent.daemon import logs, loops
from agent.daemon.check_terms import OverridesFile
from agent.daemon.components import Components
from agent.daemon.descriptors import raise_descriptor_limit
from agent.daemon.expected_gpus import ExpectedGpuCount
from agent.daemon.gpu_health import configured_gpus, configured_health, health_file
from agent.daemon.hca_health import HcaLoop, configured_hca_health
from agent.daemon.log_writer import LOG_FILE
from agent.daemon.loops import ActorGroup, Heartbeats
from agent.daemon.plugin_plan import load_pools, load_table
from agent.daemon.plugins import PluginSet
from agent.daemon.reconcile_loop import NoticeReporter, ReconcileLoop
from agent.daemon.reload import Reloader
from agent.daemon.scan_loop import ScanLoop
from agent.daemon.state_files import SETTINGS_FILE, keep_settings, read_boot_id
from agent.daemon.target import open_target
from agent.errors import AgentError
from agent.footprint import give_back, settle
from agent.health.notices import Notice
from agent.store import SnapshotStore

if TYPE_CHECKING:  # loaded once the kubelet has the devices
    from agent.daemon.startup_report import Ready
    from agent.daemon.status import Status
    from agent.publish.metrics.server import MetricsServer

GRACE_S = 0.5
"""How long the loops get to end; with the rest of a stop it makes less than a second."""

QUIET_S = 3.0
"""Pause between the registration and the non-critical loops: pods that waited for GPUs ask for them
then."""

MOST_S = 30.0
"""How long a registration is waited for. It may never come: another plugin has the resource, or no
kubelet runs."""

STEP_S = 0.5
"""How often it is checked."""

OTHERS_WRITE = 0o022
"""No file of the daemon is ever writable to others, which is also the right to connect to a socket
(unix(7)): gRPC makes the device plugin's with the mode that the umask leaves."""


def run(
    settings: Settings,
    report: "Callable[[Ready], None] | None" = None,
    reloader: Reloader | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, or with ``once`` until *report* has been called.

    Settings that change meanwhile come from *reloader*, if given.

    Returns:
        0 after a requested stop, 1 if a loop of ours failed or only a new container can help,
        3 if ``once`` is set and the kubelet did not take the devices in time.

    Raises:
        AgentError: the settings do not fit this machine.
    """
    state = None if settings.once else health_file(settings)
    copy = None if state is None else state.with_name(LOG_FILE)
    logs.configure(settings.log_format, settings.log_level, copy, in_background=True)
    if state is not None and reloader is not None:
        keep_settings(state.with_name(SETTINGS_FILE), reloader.current)
    os.umask(os.umask(OTHERS_WRITE) | OTHERS_WRITE)
    raise_descriptor_limit()
    with ExitStack() as stack:
        # Before a child is started for a setting that fails.
        table, pools = load_table(settings), load_pools(settings)
        overrides = OverridesFile(settings.checks_file)
        wake = threading.Event()
        boot_id = read_boot_id(settings.procfs_root)
        health = configured_health(settings, boot_id, wake.set)
        on_events = None if health is None else health.take_events
        target = stack.enter_context(open_target(settings, on_events))
        if target.served_by is not None:
            settings = only_reading(settings)
        components = Components(
            settings=settings,
            target=target,
            store=SnapshotStore(),
            plugins=PluginSet(
                settings,
                target.socket_dir,
                table,
                pools,
                is_simulated=not target.is_real or target.served_by is not None,
                known=configured_gpus(settings, boot_id),
            ),
            overrides=overrides,
            health=health,
            hcas=configured_hca_health(settings, wake.set),
            expected=ExpectedGpuCount(settings, state) if target.is_real else None,
            reloader=reloader,
        )
        components.add_events()
        components.add_slices()
        components.add_pause()
        daemon = Daemon(components, wake)
        stack.callback(daemon.close)
        return daemon.run(report)


def only_reading(settings: Settings) -> Settings:
    """Return *settings* without what writes to the API server, which the running plugin does."""
    return replace(
        settings,
        publish_labels=False,
        publish_events=False,
        publish_zones=False,
        annotate_pods=False,
        dra=False,
    )


class Daemon:
    """One run: its loops, and what they pass to each other."""

    def __init__(self, components: Components, wake: threading.Event) -> None:
        """Run nothing yet; *wake* is set by whoever has news for what is offered."""
        self._components = components
        self._group = ActorGroup()
        self._metrics: MetricsServer | None = None
        self._status: Status | None = None
        self._heartbeats = Heartbeats()
        self._wake = wake
        pause = components.pause
        self._scan_loop = ScanLoop(
            components.target,
            components.store,
            health=components.health,
            interval_s=lambda: components.settings.scan_interval_s,
            on_scan=self._take_scan,
            expected=components.expected,
            claim=lambda: None if pause is None else pause.claim,
            beat=lambda: self._heartbeats.beat("scan"),
        )
        events = components.events
        if components.slices is not None:
            components.slices.subscribe(wake.set)
        self._reconcile_loop = ReconcileLoop(
            components.store,
            components.plugins,
            health=components.health,
            notices=NoticeReporter(None if events is None else events.post),
            reload=self._reload,
            beat=lambda: self._heartbeats.beat("reconcile"),
            wake=wake,
            hcas=components.hcas,
            neighbours=components.neighbours,
            pause=pause,
            scan=self._scan_loop.scan_soon,
        )
        if pause is not None:
            pause.on_change = self._take_pause
        if components.hcas is not None:
            components.hcas.on_other_hcas = self._scan_loop.scan_whole
        if components.reloader is not None:
            components.reloader.on_news = wake.set

    def run(self, report: "Callable[[Ready], None] | None") -> int:
        """Start every loop, call *report* once, and wait for the end."""
        components = self._components
        settings = components.settings
        needs_dra = components.needs_dra
        components.plugins.has_claims = needs_dra and not settings.dra
        loops.install_signal_handlers(self._stop, self._read_everything)
        self._group.start("scan", self._scan_loop.run)
        self._group.start("reconcile", self._reconcile_loop.run)
        if components.slices is not None and not settings.once:
            self._group.start("slices", components.slices.run)
        if components.hcas is not None:
            self._group.start("hcas", HcaLoop(components.hcas).run)
        is_awaited = settings.once or report is not None
        if is_awaited:
            self._start_publishers()
            self._group.start("status", self._run_status)
        else:
            self._group.start("publishers", self._run_publishers)
        if components.target.is_real and not settings.once:
            self._group.start("joint placement", self._run_joint)
            if components.target.fake_kubelet is None:
                self._group.start("registrations", self._run_registrations)
        if needs_dra:
            self._group.start("dra", self._run_dra)
        if settings.needs_pod_loops and not settings.once and components.target.is_real:
            self._group.start("pod loops", self._run_pod_loops)

        is_shown = True
        if is_awaited:
            from agent.daemon.startup_report import wait_ready  # noqa: PLC0415 - only for a person

            ready = wait_ready(
                settings,
                components.target,
                components.store,
                components.plugins,
                stopping=self._group.stopping,
                metrics_url=None if self._metrics is None else self._metrics.url,
            )
            is_shown = ready is not None
            if ready is not None and report is not None:
                report(ready)
        if settings.once:
            self._group.stop()
        failed = self._group.wait(GRACE_S)
        if failed or self._reconcile_loop.failure is not None:
            return 1
        return 3 if settings.once and not is_shown else 0

    def close(self) -> None:
        """Leave the kubelet and end the NVML child; labels stay on the Node."""
        self._stop()
        if self._components.reloader is not None:
            self._components.reloader.close()
        self._components.plugins.stop()
        if self._metrics is not None:
            self._metrics.close()

    def _stop(self) -> None:
        self._group.stop()
        self._components.store.close()
        self._components.wake()
        self._scan_loop.scan_soon()
        self._wake.set()

    def _take_pause(self) -> None:
        """Close or read NVML now, and report it."""
        self._scan_loop.scan_soon()
        self._wake.set()

    def _take_scan(self) -> None:
        self._wake.set()
        give_back()

    def _read_everything(self) -> None:
        """Read the whole node and all settings again."""
        self._scan_loop.scan_whole()
        if self._components.reloader is not None:
            self._components.reloader.ask()

    def _reload(self) -> tuple[Notice, ...]:
        """Put changed settings in force; return what to report of them."""
        components = self._components
        notices = components.overrides.notices()
        reloader = components.reloader
        if reloader is None:
            return notices

        def apply(settings: Settings) -> None:
            components.plugins.reconfigure(settings, load_table(settings), load_pools(settings))
            components.settings = settings

        reloader.poll(apply)
        return (*notices, *reloader.notices())

    def _run_publishers(self, stopping: threading.Event) -> None:
        """Start them once the devices are registered, or it is known why they are not.

        To load them costs 0.2 s of CPU, which a busy node would take from the registration.
        """
        plugins, scan = self._components.plugins, self._scan_loop
        if not wait_registered(stopping, lambda: plugins.is_decided or scan.is_blind, quiet_s=0):
            self._start_publishers()
            self._run_status(stopping)

    def _run_status(self, stopping: threading.Event) -> None:
        """Keep up what the metrics take from files and from checks, once GPUs are served."""
        plugins, status = self._components.plugins, self._status
        if status is not None and not wait_registered(stopping, lambda: plugins.is_registered):
            status.loop.run(stopping)
        stopping.wait()

    def _start_publishers(self) -> None:
        """Serve metrics, and publish labels and zones."""
        self._serve_metrics()
        self._components.add_publishers()
        for name, loop in self._components.loops():
            self._group.start(name, loop)
        settle()

    def _run_pod_loops(self, stopping: threading.Event) -> None:
        """Start non-critical loops after device registration: to load them costs 0.5 s of CPU."""
        components = self._components
        if wait_registered(stopping, lambda: components.plugins.is_registered):
            return
        from agent.daemon.pod_loops import pod_loops  # noqa: PLC0415 - see above

        components.pod_loops = pod_loops(
            components.settings,
            components.store,
            components.overrides,
            lambda: components.plugins.absences,
            expect=components.plugins.expect,
            published=components.published,
        )
        for name, loop in components.pod_loops.loops():
            self._group.start(name, loop)
        stopping.wait()

    def _run_joint(self, stopping: threading.Event) -> None:
        """Verify what GPUs and HCAs followed each other by, on nodes that offer HCAs."""
        components = self._components
        while not components.plugins.joint.guesses:
            if stopping.wait(QUIET_S):
                return
        from agent.daemon.joint_loop import JointLoop  # noqa: PLC0415 - where HCAs are offered

        JointLoop(components.settings, components.plugins.joint).run(stopping)

    def _run_registrations(self, stopping: threading.Event) -> None:
        """Compare registrations with the kubelet's own list, once there are any."""
        components = self._components
        if wait_registered(stopping, lambda: components.plugins.is_registered):
            return
        from agent.daemon.registration_loop import RegistrationLoop  # noqa: PLC0415 - see above
        from agent.probes.kubelet.podresources import PodResources  # noqa: PLC0415 - same

        kubelet = PodResources(components.settings.pod_resources_socket)
        RegistrationLoop(lambda: components.plugins.running, kubelet).run(stopping)

    def _run_dra(self, stopping: threading.Event) -> None:
        """Publish GPUs as devices of our DRA driver, or give up the claims that it left."""
        from agent.daemon.dra_loop import DraLoop  # noqa: PLC0415 - where DRA is or was on

        components = self._components
        settings = components.settings
        watch, events = components.slices, components.events
        assert watch is not None, "DRA needs an API server"
        components.dra = DraLoop(
            settings,
            components.plugins,
            components.health,
            watch,
            state_file=components.claims_file,
            evicts=lambda: components.settings.dra_unhealthy == "evict",
            report=NoticeReporter(None if events is None else events.post).report,
            is_off=not settings.dra,
        )
        components.dra.run(stopping)
        if not stopping.is_set():  # the last claim is given up
            components.dra = None
            stopping.wait()

    def _serve_metrics(self) -> None:
        """Serve metrics, unless they are off or cannot be served."""
        settings = self._components.settings
        if settings.metrics_address is None:
            return
        from agent.daemon.status import Status  # noqa: PLC0415 - see _run_publishers
        from agent.daemon.status_page import DaemonPage  # noqa: PLC0415 - same
        from agent.publish.metrics.server import serve_metrics  # noqa: PLC0415 - same

        log = structlog.get_logger()
        try:
            status = Status(self._components)
            self._metrics = serve_metrics(
                settings.metrics_address,
                status.state,
                self._heartbeats.silence_s,
                page=DaemonPage(status) if settings.status_page else None,
                page_everywhere=settings.status_page_everywhere,
            )
            self._status = status
        except AgentError as error:
            # A taken port must not keep GPUs from being served.
            log.warning("metrics not served", error=str(error))
            return
        log.info("metrics served", url=self._metrics.url)


def wait_registered(
    stopping: threading.Event, is_registered: Callable[[], bool], *, quiet_s: float = QUIET_S
) -> bool:
    """Wait until *quiet_s* after the registration, which is waited for up to :data:`MOST_S`.

    Returns:
        Whether *stopping* was set.
    """
    for _ in range(round(MOST_S / STEP_S)):
        if is_registered() or stopping.wait(STEP_S):
            break
    return stopping.wait(quiet_s)
