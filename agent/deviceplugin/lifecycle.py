"""Keeping one resource served and registered, through whatever the kubelet does.

All of it is noticed by looking often: one ``stat`` call every :data:`POLL_S`, and more only
when that shows a change, or every :data:`LOOK_S`. What other plugins have to do with it is
told in :mod:`agent.deviceplugin.conflict`.
"""

from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

from structlog.typing import FilteringBoundLogger

from agent.deviceplugin import sockets
from agent.deviceplugin.conflict import RETRY_S, Rival, Rivals
from agent.deviceplugin.registration import Way
from agent.deviceplugin.registration_part import Registration
from agent.deviceplugin.service import GpuServicer
from agent.deviceplugin.socket_way import SocketWay
from agent.deviceplugin.watcher_way import WatcherWay
from agent.errors import InputError

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
