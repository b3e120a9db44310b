"""The daemon: wires discovery, the device plugin, labels and metrics around the store.

Data flows one way: scan → store → {plugin, labels, metrics}. A scan that fails keeps what the
last good one found; nothing that reads the store waits for hardware or for the API server.
"""

import random
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import structlog

from agent import logs
from agent.actors import ActorGroup
from agent.allocation.policy import Allocation
from agent.checks.catalogue import HEALTH
from agent.checks.engine import evaluate
from agent.checks.rule import Verdict
from agent.config.settings import Settings
from agent.errors import AgentError, ApiUnavailable, InputError, UnreadableError
from agent.kubelet.devices import merge
from agent.kubelet.plugin import DevicePlugin, PluginState
from agent.kubelet.settings import NumaReport, PluginSettings, Strategy
from agent.labels.catalogue import is_complete, labels
from agent.model.snapshot import Snapshot
from agent.placement import Placement
from agent.publish.metrics import MetricsServer, MetricsState, serve_metrics
from agent.publish.node_labels import NodeLabelPublisher
from agent.scene import Scene, set_up
from agent.store import SnapshotStore, Versioned

SHOWN_SIZE = 4
"""GPUs of the request that the page shows: half a usual machine."""

READY_TIMEOUT_S = 30.0
"""How long `--once` waits until the kubelet has the devices; a running one takes under 1 s."""

RECHECK_LABELS_S = 300.0
"""Re-read the Node this often to put back labels that somebody removed: the budget is one read
per node in five minutes."""

PUBLISH_RETRY_S = (1.0, 300.0)
"""First and longest pause after the API server refused, doubled in between, full jitter."""

GRACE_S = 0.5
"""How long the loops get to end; with the rest of a stop it makes less than a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What there is to show once the kubelet has the devices.

    Attributes:
        placement: our answer to a request for four GPUs (all, where there are fewer), with
            its reasons; ``None`` where none is usable.
        preferred: the stand-in kubelet's answer to the same; ``None`` with a real one, which
            asks when a pod comes.
        metrics_url: ``None`` where metrics are off or the address was taken.
    """

    scene: Scene
    snapshot: Snapshot
    plugin: PluginState
    placement: Allocation | None
    preferred: tuple[str, ...] | None
    metrics_url: str | None


def run(settings: Settings, report: Callable[[Ready], None] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, or with ``once`` until *report* has been called.

    Returns:
        0 after a stop that was asked for, 1 if a loop of ours failed, 3 if ``once`` was
        asked for and the kubelet did not take the devices in time.

    Raises:
        AgentError: the settings do not fit this machine.
    """
    logs.configure(settings.log_format, settings.log_level)
    with ExitStack() as stack:
        placement = Placement.of(settings)  # before a child is started for a setting that fails
        daemon = Daemon(settings, stack.enter_context(set_up(settings)), placement)
        stack.callback(daemon.close)
        return daemon.run(report)


@dataclass(slots=True)
class Daemon:
    """One run: the loops, and the few values that they hand to each other."""

    settings: Settings
    scene: Scene
    placement: Placement
    store: SnapshotStore = field(default_factory=SnapshotStore)
    group: ActorGroup = field(default_factory=ActorGroup)
    _rescan: threading.Event = field(default_factory=threading.Event)
    _exit_code: int = 0
    _metrics: MetricsServer | None = None
    _publish_writes: int = 0
    _publish_errors: int = 0
    _plugin: DevicePlugin = field(init=False)

    def __post_init__(self) -> None:
        self._plugin = DevicePlugin(
            self.settings.resource_name,
            self.scene.socket_dir,
            self.placement.prefer,
            PluginSettings(
                strategies=tuple(Strategy(word) for word in self.settings.device_list_strategy),
                cdi_kind=self.settings.cdi_kind,
                numa=NumaReport(self.settings.numa_mode),
                host_root=self.settings.host_root,
            ),
            structlog.get_logger(),
            explain=self.placement.explain,
        )

    def run(self, report: Callable[[Ready], None] | None) -> int:
        """Start every loop, tell *report* once, and wait for the end."""
        self._handle_signals()
        self.group.start("scan", self._scan)
        metrics_url = self._serve_metrics()
        if self.settings.publish_labels:
            self.group.start("publish", self._publish)
        is_ready = self._report_when_ready(report, metrics_url)
        if self.settings.once:
            self.group.stop()
        failed = self.group.wait(GRACE_S)
        if failed or self._exit_code:
            return 1
        return 3 if self.settings.once and not is_ready else 0

    def close(self) -> None:
        """Leave the kubelet and end the NVML child; labels stay on the Node."""
        self.group.stop()
        self.store.close()
        self._plugin.stop()
        if self._metrics is not None:
            self._metrics.close()

    def _handle_signals(self) -> None:
        def stop(_number: int, _frame: object) -> None:
            self.group.stop()
            self.store.close()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGHUP, lambda _number, _frame: self._rescan.set())

    def _scan(self, stopping: threading.Event) -> None:
        """Read the node now and then; the plugin registers once the first GPU is known."""
        self._plugin.start()
        while not stopping.is_set():
            self._take(self.scene.read())
            self._pause(stopping, self.settings.scan_interval_s)
            if not self._is_serving() and not stopping.is_set():
                self._exit_code = 1  # a new container gets a plugin that can reach the kubelet
                structlog.get_logger().error("plugin lost", problem=self._plugin.state.last_problem)
                return

    def _is_serving(self) -> bool:
        """Tell whether the plugin can reach a kubelet without a restart of ours."""
        state = self._plugin.state
        return state.is_running and not state.is_detached

    def _take(self, snapshot: Snapshot) -> None:
        """Make *snapshot* the truth for every reader, if it says anything new."""
        before = self.store.current
        generation = self.store.publish(snapshot)
        if before is not None and generation == before.generation:
            return
        if snapshot.gpus:
            self.placement.take(snapshot)
        self._plugin.update(merge(self._plugin.devices, snapshot))
        self.placement.prepare()  # or the first pod of a size would wait for it
        structlog.get_logger().info(
            "snapshot published",
            generation=generation,
            gpus=len(snapshot.gpus),
            hcas=len(snapshot.hcas or ()),
            issues=[f"{i.probe}: {i.subject} {i.reason}" for i in snapshot.issues],
        )

    def _pause(self, stopping: threading.Event, seconds: float) -> None:
        step_s = 0.2  # a stop is noticed within this time
        for _ in range(max(1, round(seconds / step_s))):
            if self._rescan.is_set() or stopping.wait(step_s) or not self._is_serving():
                break
        if self._rescan.is_set():  # SIGHUP: read also what is kept from scan to scan
            self.scene.reread()
        self._rescan.clear()

    def _publish(self, stopping: threading.Event) -> None:
        """Keep the Node's labels as the latest snapshot has them."""
        publisher = NodeLabelPublisher(self.settings.kubeconfig, self.settings.node_name)
        first_s, last_s = PUBLISH_RETRY_S
        generation, pause_s = 0, first_s
        while not stopping.is_set():
            current = self.store.wait(generation, RECHECK_LABELS_S) or self.store.current
            if current is None or stopping.is_set():
                continue
            try:
                self._publish_once(publisher, current)
            except (ApiUnavailable, InputError) as error:
                self._publish_errors += 1
                structlog.get_logger().warning("labels not published", error=str(error))
                asked_s = getattr(error, "retry_after_s", None) or 0.0
                spread_s = random.uniform(first_s, pause_s)  # noqa: S311 - spreads the retries
                stopping.wait(asked_s + spread_s)
                pause_s = min(pause_s * 2, last_s)
            else:
                generation, pause_s = current.generation, first_s

    def _publish_once(self, publisher: NodeLabelPublisher, current: Versioned) -> None:
        wanted = labels(current.snapshot)
        if not wanted:
            return  # nothing was read yet, which proves nothing
        if publisher.publish(wanted, complete=is_complete(current.snapshot)):
            self._publish_writes += 1
            log = structlog.get_logger()
            log.info("labels published", labels=len(wanted), generation=current.generation)

    def _serve_metrics(self) -> str | None:
        if self.settings.metrics_address is None:
            return None
        try:
            server = serve_metrics(self.settings.metrics_address, self._metrics_state)
        except AgentError as error:
            # A taken port must not keep GPUs from being served.
            structlog.get_logger().warning("metrics not served", error=str(error))
            return None
        self._metrics = server
        structlog.get_logger().info("metrics served", url=server.url)
        return server.url

    def _metrics_state(self) -> MetricsState:
        current = self.store.current
        plugin = self._plugin.state
        resource = self.settings.resource_name
        checks: dict[str, dict[str, int]] = {}
        if current is not None:
            verdicts = [result.verdict for result in evaluate(current.snapshot, HEALTH).results]
            checks["health"] = {verdict.value: verdicts.count(verdict) for verdict in Verdict}
        return MetricsState(
            snapshot=current.snapshot if current else None,
            generation=current.generation if current else 0,
            registrations={resource: plugin.registrations},
            is_registered={resource: plugin.is_registered},
            publish_writes=self._publish_writes,
            publish_errors=self._publish_errors,
            check_counts=checks,
        )

    def _report_when_ready(
        self, report: Callable[[Ready], None] | None, metrics_url: str | None
    ) -> bool:
        """Wait for the registration, show it, and tell whether there was something to show."""
        if not self.settings.once and report is None:
            return True
        rounds = round(READY_TIMEOUT_S / 0.05)
        while rounds and not self._is_ready() and not self.group.stopping.wait(0.05):
            if self.settings.once:  # without it, wait as long as it takes
                self._check_for_gpus()
                rounds -= 1
        current = self.store.current
        if self.group.stopping.is_set() or current is None:
            return False
        if not self._is_ready():
            raise UnreadableError(
                f"no kubelet took the GPUs within {READY_TIMEOUT_S:.0f} s",
                f"is one running, and does it listen in {self.scene.socket_dir}?",
            )
        if report is not None:
            report(self._ready(current.snapshot, metrics_url))
        return True

    def _check_for_gpus(self) -> None:
        current = self.store.current
        if current is not None and not self._plugin.devices:
            reasons = [i.reason for i in current.snapshot.issues if i.probe == "nvml"]
            raise UnreadableError(
                f"no GPU was found: {'; '.join(reasons) or 'NVML lists none'}",
                "install or repair the NVIDIA driver, or try `nodetopo run --once --or-simulate`",
            )

    def _is_ready(self) -> bool:
        return self._plugin.state.is_registered and self.scene.kubelet_has_devices()

    def _ready(self, snapshot: Snapshot, metrics_url: str | None) -> Ready:
        return Ready(
            scene=self.scene,
            snapshot=snapshot,
            plugin=self._plugin.state,
            placement=self.placement.example(SHOWN_SIZE),
            preferred=self.scene.preferred(min(SHOWN_SIZE, len(snapshot.gpus))),
            metrics_url=metrics_url,
        )
