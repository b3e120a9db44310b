"""One resource's device plugin: the service and its life with the kubelet, put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

import structlog
from structlog.typing import FilteringBoundLogger

from agent.deviceplugin import sockets
from agent.deviceplugin.allocation_log import Explain, no_reasons
from agent.deviceplugin.conflict import RETRY_S, Rival, Rivals
from agent.deviceplugin.devices import PluginDevice
from agent.deviceplugin.plugin_watcher import WatcherWay
from agent.deviceplugin.registration import Registration, SocketWay, Way
from agent.deviceplugin.service import GpuServicer, Prefer
from agent.deviceplugin.settings import PluginSettings
from agent.errors import InputError

# Keeping one resource served and registered, through whatever the kubelet does.
#
# All of it is noticed by looking often: one ``stat`` call every :data:`POLL_S`, and more only
# when that shows a change, or every :data:`LOOK_S`. What other plugins have to do with it is
# told in :mod:`agent.deviceplugin.conflict`.

POLL_S = 0.03
"""Leaves 20 ms to serve and register, of the 50 ms that a restarted kubelet waits for us."""


LOOK_S = 0.5
"""How often all is looked at although the directory says nothing changed: a process that is
killed leaves its socket file. Half of the second in which a dead rival's place is taken."""


class Lifecycle:
    """Run one thread that serves, registers, and does both again when it has to."""

    def __init__(
        self,
        resource: str,
        socket_dir: Path,
        servicer: GpuServicer,
        log: FilteringBoundLogger,
        *,
        registration: Registration = Registration.SOCKET,
        plugins_registry: Path | None = None,
    ) -> None:
        """Prepare to serve *resource*.

        Raises:
            InputError: *registration* needs the directory *plugins_registry*, which is not given.
        """
        self._resource = resource
        self._socket_dir = socket_dir
        self._servicer = servicer
        self._log = log
        self._kubelet_socket = socket_dir / sockets.KUBELET_SOCKET
        self._entries = sockets.Entries(socket_dir)
        self._kubelet: sockets.Identity | None = None
        self._rivals = Rivals(resource, socket_dir, lambda: servicer.devices, log)
        self._rival: Rival | None = None
        self._retry_at = 0.0
        self._next_look = 0.0
        self._directories = _directories(registration, socket_dir, plugins_registry)
        self._ways: tuple[Way, ...] = tuple(
            kind(resource, directory, servicer, log) for kind, directory in self._directories
        )
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"{resource} lifecycle", daemon=True)

    @property
    def endpoint(self) -> str | None:
        """The file name of a socket served now; ``None`` while there is none."""
        return next((way.endpoint for way in self._ways if way.endpoint), None)

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet that runs now accepted a socket that is served now."""
        return any(way.is_registered for way in self._ways)

    @property
    def is_running(self) -> bool:
        """Whether the thread lives; it ends only by :meth:`stop` or by a fault of ours."""
        return self._thread.is_alive()

    @property
    def is_detached(self) -> bool:
        """Whether a directory was deleted while a mount held it."""
        return any(way.is_detached for way in self._ways)

    @property
    def registrations(self) -> int:
        """How often a kubelet has accepted the resource."""
        return sum(way.registrations for way in self._ways)

    @property
    def streams_open(self) -> int:
        """How many clients watch the device list now."""
        return sum(way.streams_open for way in self._ways)

    @property
    def last_problem(self) -> str | None:
        """Why the last attempt failed; ``None`` after one that did not."""
        return next((way.last_problem for way in self._ways if way.last_problem), None)

    @property
    def conflict(self) -> str | None:
        """Which other plugin serves the resource, as a sentence; ``None`` while none does."""
        rival = self._rival
        return rival.sentence(self._resource) if rival else None

    def start(self) -> None:
        """Begin; serving and registering follow as soon as the directory allows.

        Raises:
            InputError: no socket fits into the directory's path.
        """
        directories = (directory for _, directory in self._directories)
        sockets.check_path_lengths(self._resource, directories)
        self._thread.start()

    def stop(self) -> None:
        """End streams, calls and the thread, and remove the sockets."""
        self._stopping.set()
        for way in self._ways:
            way.cancel()
        self._servicer.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        self._log.info("kubelet socket watched", path=str(self._kubelet_socket))
        try:
            while not self._stopping.is_set():
                self._step(monotonic())
                # Not Event.wait, which costs 140 µs of CPU a time against 60 (CPython 3.11).
                sleep(POLL_S)
        finally:
            for way in self._ways:
                way.stop()
            self._log.info("device plugin stopped")

    def _step(self, now: float) -> None:
        is_due = self._entries.may_have_changed() or now >= self._next_look
        if is_due:
            self._next_look = now + LOOK_S
            self._see_kubelet(now)
            self._see_rival(now)
        for way in self._ways:
            if is_due or way.endpoint is None:
                way.look(now)
            if way.see_streams(now):
                self._rivals.lost(now)
                self._retry_at = now + RETRY_S
        if self._servicer.devices:
            self._register(now)

    def _see_kubelet(self, now: float) -> None:
        kubelet = sockets.identity(self._kubelet_socket)
        if kubelet == self._kubelet:
            return
        self._log.info("kubelet socket changed", is_present=kubelet is not None)
        self._kubelet = kubelet
        self._rivals.forget_losses()
        for way in self._ways:
            way.see_kubelet(kubelet, now)

    def _see_rival(self, now: float) -> None:
        rival = self._rivals.look()
        if rival == self._rival:
            return
        self._rival = rival
        if rival is None:
            self._log.info("resource conflict over")
            self._servicer.hang_up()  # the kubelet may hold what it has of us for the other's
            for way in self._ways:
                way.renew(now)
        else:
            self._retry_at = now + RETRY_S
            self._log.error("resource conflict", problem=rival.sentence(self._resource))

    def _register(self, now: float) -> None:
        if self._rival is not None and now < self._retry_at:
            for way in self._ways:
                way.hold()
            return
        for way in self._ways:
            if way.register(now):
                self._retry_at = now + RETRY_S


def _directories(
    registration: Registration, socket_dir: Path, plugins_registry: Path | None
) -> tuple[tuple[type[SocketWay] | type[WatcherWay], Path], ...]:
    """Return each way with the directory that its socket lies in."""
    by_socket = (SocketWay, socket_dir)
    if registration is Registration.SOCKET:
        return (by_socket,)
    if plugins_registry is None:
        raise InputError(
            f"registration {registration} needs the directory plugins_registry",
            "say where it is",
        )
    by_watcher = (WatcherWay, plugins_registry)
    return (by_watcher,) if registration is Registration.WATCHER else (by_socket, by_watcher)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginState:
    """Where a plugin stands at one moment.

    Attributes:
        is_running: between :meth:`DevicePlugin.start` and the end; false besides means a
            fault of ours, and a restart is the cure.
        is_detached: the socket directory was deleted while a mount held it; only a new
            container sees the new directory.
        registrations: how often the kubelet has accepted the resource since the start.
        endpoint: file name of the socket served; ``None`` while the directory is missing.
        stream_count: clients that watch the device list now.
        devices: how many devices are offered, healthy or not.
        allocations: how many containers were given some.
        last_problem: why the last attempt to serve or register failed; ``None`` after one
            that did not. A device list that no kubelet would take is such a reason too.
        conflict: which other maker's plugin serves the resource, as a sentence; ``None`` while
            none does. The plugin does not register then, see :mod:`agent.deviceplugin.conflict`.
    """

    is_running: bool
    is_registered: bool
    is_detached: bool
    registrations: int
    endpoint: str | None
    stream_count: int
    devices: int
    allocations: int
    last_problem: str | None
    conflict: str | None


class DevicePlugin:
    """Offer the devices of one resource to the kubelet.

    Registration waits for the first :meth:`update` that has a device: a node whose GPUs are
    not known yet must not look like one that has none.
    """

    def __init__(
        self,
        resource: str,
        socket_dir: Path,
        prefer: Prefer,
        settings: PluginSettings | None = None,
        log: FilteringBoundLogger | None = None,
        *,
        explain: Explain = no_reasons,
        registration: Registration = Registration.SOCKET,
        plugins_registry: Path | None = None,
    ) -> None:
        """Prepare to offer *resource*.

        Raises:
            InputError: *registration* needs the directory *plugins_registry*, which is not given.
        """
        bound = (log or structlog.get_logger()).bind(resource=resource)
        self._log = bound
        self._servicer = GpuServicer(
            resource, prefer, settings or PluginSettings(), bound, explain=explain
        )
        self._lifecycle = Lifecycle(
            resource,
            socket_dir,
            self._servicer,
            bound,
            registration=registration,
            plugins_registry=plugins_registry,
        )

    @property
    def state(self) -> PluginState:
        """Where the plugin stands now."""
        return PluginState(
            is_running=self._lifecycle.is_running,
            is_registered=self._lifecycle.is_registered,
            is_detached=self._lifecycle.is_detached,
            registrations=self._lifecycle.registrations,
            endpoint=self._lifecycle.endpoint,
            stream_count=self._lifecycle.streams_open,
            devices=len(self._servicer.devices),
            allocations=self._servicer.allocations,
            last_problem=self._servicer.refusal or self._lifecycle.last_problem,
            conflict=self._lifecycle.conflict,
        )

    def start(self) -> None:
        """Serve and register in the background; call it once.

        Raises:
            InputError: no socket fits into the directory's path.
        """
        self._lifecycle.start()

    def update(self, devices: Sequence[PluginDevice]) -> None:
        """Offer *devices* from now on; a list equal to the last one is not sent again.

        One that no kubelet would take is not offered: the last one stays.
        """
        refused_before = self._servicer.refusal
        if self._servicer.update(devices):
            unhealthy = [device.id for device in devices if not device.is_healthy]
            self._log.info("device list changed", devices=len(devices), unhealthy=unhealthy)
        refused = self._servicer.refusal
        if refused is not None and refused != refused_before:
            self._log.error("device list refused", problem=refused)

    def retire(self) -> None:
        """Leave because the resource is no more: the kubelet learns that it has no devices.

        It would count them for five minutes otherwise (kubelet 1.36
        pkg/kubelet/cm/devicemanager, endpointStopGracePeriod).
        """
        self.update(())
        self.stop()

    def stop(self) -> None:
        """Leave within a second; the kubelet then counts the devices as unhealthy."""
        self._lifecycle.stop()
