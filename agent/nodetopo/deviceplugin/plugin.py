"""The device plugin of one resource: the service, its registrars, and the loop that runs them.

Whatever the kubelet does, the resource stays served and registered. The kernel reports changes of
the directory, and gRPC the end of a stream; a full look follows each, and every :data:`LOOK_S`.
Until the kubelet watches the devices, and where the directory cannot be watched, it is asked every
:data:`POLL_S`.

:mod:`nodetopo.deviceplugin.conflict` describes how other makers' plugins are treated, and
:mod:`nodetopo.deviceplugin.siblings` how other instances of this one are.
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import structlog
from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from nodetopo.deviceplugin import settings as defaults
from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.allocation_log import Explain, LoggedAllocation, no_reasons
from nodetopo.deviceplugin.conflict import RETRY_S, CompetingPlugin, CompetingPlugins
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.inotify import DirectoryChanges
from nodetopo.deviceplugin.registration import KubeletSocketRegistrar, Registrar, Registration
from nodetopo.deviceplugin.service import Answers, PluginServicer, Prefer
from nodetopo.deviceplugin.settings import Deadlines
from nodetopo.deviceplugin.siblings import Siblings
from nodetopo.errors import InputError

POLL_S = 0.03
"""Leaves 20 ms to serve and register, of the 50 ms that a restarted kubelet waits for a plugin."""

SELDOM_S = 5.0
"""As :data:`LOOK_S` while the kubelet watches the devices and the directory is followed."""

LOOK_S = 0.5
"""How often everything is looked at although the directory shows no change: a process that is
killed leaves its socket file. Half of the second within which a dead competitor is replaced."""


MOST_ABSENCES = 16
"""Times without a kubelet that are remembered; callers look back ten minutes."""


class Absence(Struct, frozen=True, kw_only=True):
    """A time in which no kubelet watched the devices."""

    since_s: float  # by the monotonic clock; the first absence begins with the plugin
    until_s: float | None = None  # None while it lasts


class PluginState(Struct, frozen=True, kw_only=True):
    """The state of a plugin at one moment."""

    is_running: bool  # from `start` to the stop; otherwise an internal error, cured by a restart
    # The running kubelet accepted the current socket, and `unlisted` does not contradict.
    is_registered: bool
    # The socket directory was deleted while a mount held it; only a restarted container sees the
    # new directory.
    is_detached: bool
    registrations: int  # accepted by the kubelet since the start
    endpoint: str | None  # file name of the current socket; None while the directory is missing
    stream_count: int  # clients that watch the device list
    devices: int  # offered ones, healthy or not
    allocations: int  # containers that got devices
    last_problem: str | None  # of the last attempt to serve or register; None after a success
    # The competing plugin that serves the resource, as a sentence; None without one. The plugin
    # then does not register, see `deviceplugin.conflict`.
    conflict: str | None
    # Preferred allocations answered with any valid set, because the choice timed out.
    unchosen: int = 0
    # How the kubelet's own list contradicts the registration, as a sentence; None if it does not or
    # cannot be read.
    unlisted: str | None = None
    # Sockets of other instances of this program for the resource, by name.
    siblings: tuple[str, ...] = ()


class DevicePlugin:
    """Offer the devices of one resource to the kubelet.

    Registration waits for the first :meth:`update` that has a device: a node whose GPUs are
    not known yet must not look like a node without GPUs.
    """

    def __init__(
        self,
        resource: str,
        socket_dir: Path,
        prefer: Prefer,
        answers: Answers,
        log: FilteringBoundLogger | None = None,
        *,
        explain: Explain = no_reasons,
        registration: Registration = Registration.SOCKET,
        plugins_registry: Path | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        """Prepare to offer *resource*; ``None`` for *deadlines* is the default.

        Raises:
            InputError: *registration* needs the directory *plugins_registry*, which is not given.
        """
        deadlines = deadlines or defaults.DEADLINES
        log = (log or structlog.get_logger()).bind(resource=resource)
        servicer = PluginServicer(resource, prefer, answers, log, deadlines, explain=explain)
        self._resource = resource
        self._log = log
        self._servicer = servicer
        self._kubelet_socket = socket_dir / sockets.KUBELET_SOCKET
        self._kubelet: sockets.Identity | None = None
        self._entries = sockets.Entries(socket_dir)
        self._changes = DirectoryChanges(socket_dir)
        self._next_look = 0.0
        self._competitors = CompetingPlugins(
            resource, socket_dir, lambda: servicer.devices, log, deadlines.competitor_answer_s
        )
        self._competitor: CompetingPlugin | None = None
        self._unlisted: str | None = None
        self._is_renewal_due = Event()
        self._retry_at = 0.0
        self._absences: deque[Absence] = deque([Absence(since_s=monotonic())], MOST_ABSENCES)
        self._registrars: list[Registrar] = []
        instance = sockets.new_instance()
        if registration is not Registration.WATCHER:
            self._registrars.append(
                KubeletSocketRegistrar(
                    resource,
                    socket_dir,
                    servicer,
                    log,
                    deadlines,
                    instance=instance,
                    on_stream_end=self._changes.wake,
                )
            )
        if registration is not Registration.SOCKET:
            if plugins_registry is None:
                raise InputError(
                    f"registration {registration} needs the directory plugins_registry",
                    "say where it is",
                )
            # Another service of gRPC's, which few nodes need.
            from nodetopo.deviceplugin.plugin_watcher import PluginWatcherRegistrar  # noqa: PLC0415

            self._registrars.append(
                PluginWatcherRegistrar(
                    resource,
                    plugins_registry,
                    servicer,
                    log,
                    deadlines,
                    instance=instance,
                    on_stream_end=self._changes.wake,
                )
            )
        self._siblings = Siblings(
            resource, [registrar.directory for registrar in self._registrars], instance
        )
        self._sibling_names: tuple[str, ...] = ()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"{resource} plugin", daemon=True)

    @property
    def state(self) -> PluginState:
        registrars, competitor, unlisted = self._registrars, self._competitor, self._unlisted
        return PluginState(
            is_running=self._thread.is_alive(),
            is_registered=unlisted is None
            and any(registrar.is_registered for registrar in registrars),
            is_detached=any(registrar.is_detached for registrar in registrars),
            registrations=sum(registrar.registrations for registrar in registrars),
            endpoint=next((name for registrar in registrars if (name := registrar.endpoint)), None),
            stream_count=sum(registrar.streams_open for registrar in registrars),
            devices=len(self._servicer.devices),
            allocations=self._servicer.allocations,
            last_problem=unlisted
            or next((text for registrar in registrars if (text := registrar.last_problem)), None),
            conflict=competitor.sentence(self._resource) if competitor else None,
            unchosen=self._servicer.unchosen,
            unlisted=unlisted,
            siblings=self._sibling_names,
        )

    @property
    def healthy_ids(self) -> frozenset[str]:
        """The devices that the kubelet is to count as allocatable."""
        return frozenset(device.id for device in self._servicer.devices if device.is_healthy)

    @property
    def absences(self) -> tuple[Absence, ...]:
        """When no kubelet had the devices from this plugin, the earliest first."""
        return tuple(self._absences)

    @property
    def recent_allocations(self) -> tuple[LoggedAllocation, ...]:
        return self._servicer.recent_allocations

    def start(self) -> None:
        """Serve and register in the background, as soon as the directory allows; call it once.

        Raises:
            InputError: the directory's path is too long for a socket.
        """
        sockets.check_path_lengths(
            self._resource, (registrar.directory for registrar in self._registrars)
        )
        self._thread.start()

    def update(self, devices: Sequence[PluginDevice]) -> None:
        """Offer *devices* from now on; a list equal to the last one is not sent again."""
        if self._servicer.update(devices):
            self._changes.wake()
            unhealthy = [device.id for device in devices if not device.is_healthy]
            self._log.info("device list changed", devices=len(devices), unhealthy=unhealthy)

    def doubt(self, problem: str) -> None:
        """Register again, because the kubelet's list lacks the devices.

        The resource counts as unregistered until :meth:`confirm`. *problem* is a sentence.
        """
        self._unlisted = problem
        self._is_renewal_due.set()
        self._changes.wake()

    def confirm(self) -> None:
        """End the doubt: the kubelet lists the devices, or does not answer."""
        self._unlisted = None

    def retire(self) -> None:
        """Stop because the resource no longer exists, after sending the kubelet an empty list.

        It would count the devices for five minutes otherwise (kubelet 1.36
        pkg/kubelet/cm/devicemanager, endpointStopGracePeriod).
        """
        self.update(())
        self.stop()

    def stop(self) -> None:
        """End streams, calls and the thread, and remove the sockets, within a second.

        The kubelet then counts the devices as unhealthy.
        """
        self._stopping.set()
        self._changes.wake()
        for registrar in self._registrars:
            registrar.cancel()
        self._servicer.close()
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._changes.close()

    def _run(self) -> None:
        self._log.info("kubelet socket watched", path=str(self._kubelet_socket))
        try:
            while not self._stopping.is_set():
                # First, so that changes after the look end the wait.
                is_followed, now = self._changes.follow(), monotonic()
                is_look_due = self._entries.may_have_changed() or now >= self._next_look
                if is_look_due:
                    self._look(now)
                is_alone = self._competitor is None and not self._siblings.is_any
                pause_s = SELDOM_S if is_followed and self._is_settled and is_alone else LOOK_S
                if is_look_due:
                    self._next_look = now + pause_s
                if self._is_renewal_due.is_set():
                    self._is_renewal_due.clear()
                    self._renew(now)
                for registrar in self._registrars:
                    if is_look_due or registrar.endpoint is None:
                        registrar.check_socket(now)
                    if registrar.check_streams(now):
                        self._competitors.lost(now)
                        self._retry_at = now + RETRY_S
                if self._servicer.devices:
                    self._register(now)
                self._note_absence(monotonic())
                self._changes.wait(pause_s if is_followed and self._is_settled else POLL_S)
        finally:
            self._changes.close()
            for registrar in self._registrars:
                registrar.stop()
            self._log.info("device plugin stopped")

    @property
    def _is_settled(self) -> bool:
        """Whether only the kubelet, another plugin or new devices can give this thread work."""
        if not self._servicer.devices or self._competitor is not None:
            return True
        return all(
            registrar.is_registered and registrar.streams_open for registrar in self._registrars
        )

    def _note_absence(self, now: float) -> None:
        """Remember since when, and until when, no kubelet watches the devices."""
        last = self._absences[-1]
        is_watched = any(registrar.streams_open for registrar in self._registrars)
        if is_watched and last.until_s is None:
            self._absences[-1] = replace(last, until_s=now)
        elif not is_watched and last.until_s is not None:
            self._absences.append(Absence(since_s=now))

    def _register(self, now: float) -> None:
        """Register, or yield to a competing plugin until the next retry."""
        is_yielding = self._competitor is not None and now < self._retry_at
        for registrar in self._registrars:
            if is_yielding:
                registrar.withdraw()
            elif registrar.register(now):
                self._retry_at = now + RETRY_S

    def _look(self, now: float) -> None:
        """Notice a kubelet or a competing plugin that started or stopped."""
        kubelet = sockets.identity(self._kubelet_socket)
        if kubelet != self._kubelet:
            self._log.debug("kubelet socket changed", is_present=kubelet is not None)
            self._kubelet = kubelet
            self._competitors.forget_losses()
            self._siblings.forget()
            for registrar in self._registrars:
                registrar.kubelet_changed(now, kubelet)
        self._look_for_siblings(now)

        competitor = self._competitors.look()
        if competitor == self._competitor:
            return
        self._competitor = competitor
        if competitor is None:
            self._log.info("resource conflict over")
            self._renew(now)  # the kubelet can take our devices for the other plugin's
        else:
            self._retry_at = now + RETRY_S
            self._log.error("resource conflict", problem=competitor.sentence(self._resource))

    def _look_for_siblings(self, now: float) -> None:
        """Notice other instances that started or ended; register again if one replaced us."""
        if self._kubelet is None:  # a kubelet that starts removes all sockets, its own first
            return
        ended = self._siblings.look()
        names = self._siblings.names
        if names != self._sibling_names:
            self._sibling_names = names
            self._log.info("other instances of nodetopo", serving=names)
        made = [
            ns
            for registrar in self._registrars
            if (ns := registrar.registered_socket_ns) is not None
        ]
        if made and any(sibling.may_have_replaced(max(made)) for sibling in ended):
            self._log.warning(
                "registering again: an instance of nodetopo ended that registered later",
                sockets=[sibling.path.name for sibling in ended],
            )
            self._renew(now)

    def _renew(self, now: float) -> None:
        """Register again on another socket; the kubelet drops the old registration."""
        self._servicer.hang_up()
        for registrar in self._registrars:
            registrar.renew(now)
