"""The daemon: a kernel, the enabled components, and their loops.

Data flows one way: scan → store → components. A failed scan keeps the last good snapshot; no reader
of the store waits for hardware or for the API server.
"""

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeAlias

import structlog

from nodetopo.errors import AgentError
from nodetopo.footprint import settle
from nodetopo.kernel import logs, loops
from nodetopo.kernel.assembly import checked, make
from nodetopo.kernel.component import Component, Kernel, NvmlEvents, Start, wait_registered
from nodetopo.kernel.descriptors import raise_descriptor_limit
from nodetopo.kernel.log_writer import LOG_FILE
from nodetopo.kernel.loops import ActorGroup
from nodetopo.kernel.settings.declare import Settings, only_reading
from nodetopo.kernel.settings.kept import SETTINGS_FILE, health_file, keep_settings
from nodetopo.kernel.settings.reload import Reloader
from nodetopo.kernel.target import open_target
from nodetopo.kubeapi.watch import NodeWatch

if TYPE_CHECKING:  # loaded once the kubelet has the devices
    from nodetopo.kernel.http.server import MetricsServer

Report: TypeAlias = Callable[[Kernel, threading.Event], bool]
"""Reports the kubelet's devices to a person once it has them; returns False if stopped earlier."""

GRACE_S = 0.5
"""How long the loops get to end; with the rest of a stop it makes less than a second."""

OTHERS_WRITE = 0o022
"""No file of the daemon is ever writable to others, which is also the right to connect to a socket
(unix(7)): gRPC makes the device plugin's with the mode that the umask leaves."""


def run(settings: Settings, report: Report | None = None, reloader: Reloader | None = None) -> int:
    """Serve until SIGTERM or SIGINT, or with ``once`` until *report* has returned.

    Changed settings come from *reloader*, if given.

    Returns:
        0 after a requested stop, 1 if a loop failed or the container must be restarted, 3 if
        ``once`` is set and the kubelet did not take the devices in time.

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
        ours = checked(settings)  # before a child is started for a setting that fails
        events = NvmlEvents()
        on_events = events.take if settings.health_checks else None
        target = stack.enter_context(open_target(settings, on_events, ours))
        if target.served_by is not None:
            settings = only_reading(settings)
        daemon = Daemon(
            Kernel(settings=settings, target=target, reloader=reloader, nvml_events=events)
        )
        stack.callback(daemon.close)
        return daemon.run(report)


class Daemon:
    """One run of *kernel*: starts its components, and ends them together."""

    def __init__(self, kernel: Kernel) -> None:
        """Create the components that start at once; run nothing yet."""
        self.kernel = kernel
        self._group = ActorGroup()
        self._metrics: MetricsServer | None = None
        kernel.start, kernel.admit = self._group.start, self._admit
        self._first = make(kernel, Start.AT_ONCE)
        if kernel.reloader is not None:
            kernel.reloader.on_news = kernel.wake.set

    def run(self, report: Report | None) -> int:
        """Start every loop, call *report* once, and wait for the end."""
        kernel = self.kernel
        loops.install_signal_handlers(self._stop, self._read_everything)
        self._run_loops(self._first)
        is_awaited = kernel.settings.once or report is not None
        if is_awaited:
            self._publish()
            self._group.start("registered", self._run_registered)
        else:
            self._group.start("publishers", self._run_publishers)
        is_shown = report is None or report(kernel, self._group.stopping)
        if kernel.settings.once:
            self._group.stop()
        failed = self._group.wait(GRACE_S)
        if failed or kernel.failure is not None:
            return 1
        return 3 if kernel.settings.once and not is_shown else 0

    def close(self) -> None:
        """End every component, and the server of the metrics; labels stay on the Node."""
        self._stop()
        if self.kernel.reloader is not None:
            self.kernel.reloader.close()
        for component in self.kernel.running:
            component.close()
        if self._metrics is not None:
            self._metrics.close()

    def _stop(self) -> None:
        self._group.stop()
        self.kernel.store.close()
        for component in self.kernel.running:
            component.wake()
        if self.kernel.events is not None:
            self.kernel.events.wake()
        self.kernel.wake.set()

    def _read_everything(self) -> None:
        """Read the whole node and all settings again."""
        if self.kernel.scans is not None:
            self.kernel.scans.scan_whole()
        if self.kernel.reloader is not None:
            self.kernel.reloader.ask()

    def _admit(self, settings: Settings) -> Callable[[], None]:
        """Check *settings* for components that do not run; return what starts them if wanted."""
        checked(settings, {component.name for component in self.kernel.running})
        return lambda: self._run_loops(make(self.kernel, Start.AT_ONCE))

    def _run_loops(self, components: Iterable[Component]) -> None:
        for component in components:
            for name, loop in component.loops():
                self._group.start(name, loop)

    def _run_publishers(self, stopping: threading.Event) -> None:
        """Publish once the devices are registered, or it is known why they are not.

        To load the components that do costs 0.2 s of CPU, which a busy node would take from the
        registration.
        """
        gpus, scans = self.kernel.gpus, self.kernel.scans
        assert gpus is not None and scans is not None  # noqa: PT018 - the GPUs' component sets both
        if not wait_registered(stopping, lambda: gpus.is_decided or scans.is_blind, quiet_s=0):
            self._publish()
            self._run_registered(stopping)

    def _run_registered(self, stopping: threading.Event) -> None:
        """Start the non-critical components; to load them costs 0.5 s of CPU."""
        if not self.kernel.wait_registered(stopping):
            self._run_loops(make(self.kernel, Start.REGISTERED))
        stopping.wait()

    def _publish(self) -> None:
        """Serve metrics and pages, and start the components that publish."""
        kernel = self.kernel
        made = make(kernel, Start.DECIDED)
        if kernel.settings.metrics_address is not None:
            self._serve(kernel.settings.metrics_address)
        self._run_loops(made)
        if kernel.events is not None:
            self._group.start("events", kernel.events.run)
        if kernel.wants_watch and kernel.watch is None:
            watch = NodeWatch(kernel.settings.kubeconfig, kernel.settings.node_name)
            kernel.use_watch(watch)
            self._group.start("own node", watch.run)
        settle()

    def _serve(self, address: str) -> None:
        """Serve metrics, unless the address cannot be used."""
        from nodetopo.kernel.http import families, server  # noqa: PLC0415 - see _run_publishers

        kernel, log = self.kernel, structlog.get_logger()
        families.families()  # imports what a scrape must not
        try:
            self._metrics = server.serve_metrics(
                address,
                lambda: families.readings(kernel),
                kernel.not_ready,
                kernel.heartbeats.silence_s,
                page=kernel.page,
                page_everywhere=kernel.page_everywhere,
            )
        except AgentError as error:
            # A taken port must not keep GPUs from being served.
            log.warning("metrics not served", error=str(error))
            return
        kernel.metrics_url = self._metrics.url
        log.info("metrics served", url=self._metrics.url)
