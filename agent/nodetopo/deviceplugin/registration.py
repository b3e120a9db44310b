"""Keeps one resource served on a socket and registered with the kubelet.

A kubelet that loses the plugin, or drops it when the stream of an older plugin ends (1.36,
kubernetes issue 121994), ends the stream of the device list; registering again repairs both. An
open stream proves nothing: the kubelet keeps it open when another plugin of the resource replaces
ours, and when that plugin ends in turn (:mod:`nodetopo.deviceplugin.siblings`).

No socket is registered twice. Kubelets since 1.37 refuse a socket with an open connection, then
forget the connection: they never notice its end, and count its devices until they restart
(plugin/v1beta1/handler.go, connectClient).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

import grpc
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from nodetopo.backoff import Backoff
from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.server import PluginServer
from nodetopo.deviceplugin.service import PluginServicer
from nodetopo.deviceplugin.settings import Deadlines
from nodetopo.errors import UnreadableError

VERSION = "v1beta1"
"""The only version of the device plugin API that kubelets since 1.10 accept."""

CHANNEL_OPTIONS = (
    # What the kubelet itself sends over a unix socket; a path would not be a valid authority.
    ("grpc.default_authority", "localhost"),
    # Channels to one address share their connection's back-off otherwise, so that a new
    # channel to a kubelet just restarted would wait out the old one's.
    ("grpc.use_local_subchannel_pool", 1),
)

STREAM_GRACE_S = 0.1
"""No stream for this long is a loss; a kubelet that reconnects overlaps or is faster."""

RENEW_S = 0.15
"""Time for a kubelet to notice the end of the old stream: 1.36 would count it against the new
registration, 1.37 would refuse the registration."""

MOST_FORMER = 4
"""Servers that are kept for the clients of vanished sockets: each costs threads, and sockets that
are removed over and over must not add up."""

WARN_AFTER_S = 60.0
"""A resource that is not registered for this long is a fault; a kubelet that restarts takes
seconds."""


RETRY_S = (0.2, 30.0)
"""First and longest delay after a failed attempt, without jitter: each kubelet has one client."""


class Registration(StrEnum):
    """How a kubelet learns of a resource.

    ``socket``: the plugin calls the kubelet on ``kubelet.sock``. ``watcher``: the kubelet finds
    the plugin's socket in its directory ``plugins_registry`` and asks. ``both``: both at once.
    """

    SOCKET = "socket"
    WATCHER = "watcher"
    BOTH = "both"


class _Accepted(Struct):
    """The registration that the kubelet accepted last."""

    since: float  # by the monotonic clock
    streams_opened: int  # that the socket had carried before
    unwatched_since: float | None = None  # since when no stream is open; None while one is


class Registrar(ABC):
    """Serves one resource on one socket, and keeps it registered.

    One thread calls all methods except :meth:`cancel`; *now* is the monotonic clock.

    A socket file can be removed while a kubelet is connected through it. The connection outlives
    the file, so the server stays for its clients, and a new server with a new socket is registered.
    The old server also stays after that registration: kubelets up to 1.36 drop the newest plugin of
    a resource when the stream of an earlier one ends.
    """

    def __init__(
        self,
        resource: str,
        directory: Path,
        servicer: PluginServicer,
        log: FilteringBoundLogger,
        deadlines: Deadlines,
        *,
        instance: str,
        on_stream_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.directory = directory
        self.registrations = 0  # accepted by a kubelet
        # Of the last attempt to serve or register; None after a success.
        self.last_problem: str | None = None
        # Whether the directory was deleted while a mount held it, and no client watches the device
        # list.
        self.is_detached = False
        self._resource = resource
        self._instance = instance
        self._on_stream_end = on_stream_end
        self._servicer = servicer
        self._log = log
        self._deadlines = deadlines
        self._backoff = Backoff(*RETRY_S)
        self._server: PluginServer | None = None
        self._is_used = False  # whether a kubelet has had the current socket
        self._former: list[PluginServer] = []
        self._accepted: _Accepted | None = None
        self._next_attempt = 0.0
        # When it was first found unregistered; None if registered.
        self._missing_since: float | None = None
        self._has_warned = False
        self._is_cancelled = False
        self._loss: str | None = None  # the reason for the end of the last registration
        self._failures = 0  # attempts since then
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Set up the attributes of the subclass."""

    @property
    def endpoint(self) -> str | None:
        """The file name of the current socket; ``None`` while there is none."""
        server = self._server
        return server.path.name if server else None

    @property
    def is_registered(self) -> bool:
        """Whether the running kubelet has accepted the current socket."""
        return self._accepted is not None

    @property
    def registered_socket_ns(self) -> int | None:
        """When the socket that the kubelet accepted was registered, by the file system's clock.

        ``None`` without one.
        """
        server = self._server
        return None if server is None or self._accepted is None else server.stamp_ns

    @property
    def streams_open(self) -> int:
        """How many clients watch the device list, also through sockets that vanished."""
        servers = (self._server, *self._former)
        return sum(server.streams.open for server in servers if server)

    def check_socket(self, now: float) -> None:
        """Serve if not serving, and replace a socket that vanished."""
        self._end_former_servers()
        is_detached = sockets.is_deleted_directory(self.directory) and not self.streams_open
        if is_detached and not self.is_detached:
            self._log.error("socket directory deleted under its mount", path=str(self.directory))
        self.is_detached = is_detached
        server = self._server
        if server is not None and not server.is_reachable():
            self._note_loss("own socket vanished", endpoint=server.path.name)
            if server.streams.open:
                self._former.append(server)
                self._server = self._accepted = None
            else:
                self._drop_socket()
            self._next_attempt = now
        is_due = self._server is None and now >= self._next_attempt
        if not is_due or sockets.identity(self.directory) is None:
            return
        removed = sockets.remove_leftovers(self._resource, self.directory)
        try:
            self._server = self._new_server()
        except (OSError, RuntimeError) as error:  # grpcio raises RuntimeError
            self._failed(f"cannot serve in {self.directory}: {error}", now)
            return
        self._is_used = False
        self._log.debug("device plugin served", endpoint=self.endpoint, leftovers_removed=removed)

    def check_streams(self, now: float) -> bool:
        """Return whether the kubelet has just dropped the resource."""
        accepted, server = self._accepted, self._server
        if accepted is None or server is None:
            return False
        if server.streams.open:
            accepted.unwatched_since = self._missing_since = None
            self._has_warned = False
            return False
        if accepted.unwatched_since is None:
            accepted.unwatched_since = now
        was_watched = server.streams.opened > accepted.streams_opened
        patience_s = STREAM_GRACE_S if was_watched else self._deadlines.first_stream_s
        if now - accepted.unwatched_since < patience_s:
            return False
        held_s = now - accepted.since
        if held_s > self._backoff.last_s:
            self._backoff.reset()
        self._accepted = None
        self._is_used = True
        self._next_attempt = now + self._backoff.next_s()
        self._note_loss("device list stream lost", held_s=round(held_s, 3))
        return True

    def register(self, now: float) -> bool:
        """Register if due; return whether an attempt was made.

        Warn once if it has been due for :data:`WARN_AFTER_S`.
        """
        if self._accepted is not None:
            return False
        if self._missing_since is None:
            self._missing_since = now
        if not self._has_warned and now - self._missing_since >= WARN_AFTER_S:
            self._has_warned = True
            problem = self.last_problem or (
                "no kubelet watches the devices — see whether the kubelet runs, and its log"
            )
            self._log.warning("resource not registered", problem=problem, for_s=WARN_AFTER_S)
        if self._server is None or now < self._next_attempt:
            return False
        return self._attempt(self._server, now)

    def renew(self, now: float) -> None:
        """Register again soon although no stream was lost."""
        self._accepted = self._missing_since = None
        self._is_used = True
        self._backoff.reset()
        self._next_attempt = now + RENEW_S

    def cancel(self) -> None:
        """End a call that hangs, from any thread; no later attempt succeeds."""
        self._is_cancelled = True

    def stop(self) -> None:
        for server in (self._server, *self._former):
            if server is not None:
                server.stop(self._deadlines.stop_grace_s)
        self._former.clear()
        self._server = self._accepted = None

    @abstractmethod
    def kubelet_changed(self, now: float, kubelet: sockets.Identity | None) -> None:
        """React to a kubelet that started, with the socket *kubelet*, or stopped (``None``)."""

    @abstractmethod
    def withdraw(self) -> None:
        """Yield to a competing plugin."""

    @abstractmethod
    def _new_server(self) -> PluginServer:
        """Serve on a new socket."""

    @abstractmethod
    def _attempt(self, server: PluginServer, now: float) -> bool:
        """Try to register *server*; return whether an attempt was made."""

    def _end_former_servers(self) -> None:
        """End the unused servers of vanished sockets, and the oldest ones beyond the limit."""
        used = [server for server in self._former if server.streams.open][-MOST_FORMER:]
        for server in self._former:
            if server not in used:
                server.stop(grace_s=0)
        self._former = used

    def _drop_socket(self) -> None:
        """Give up the socket; the next check makes another under another name."""
        if self._server is not None:
            self._server.stop(grace_s=0)
        self._server = self._accepted = None

    def _succeeded(self, server: PluginServer, streams_opened: int, now: float) -> None:
        self._accepted = _Accepted(since=now, streams_opened=streams_opened)
        self.registrations += 1
        # The only info line of a registration; its steps are debug lines.
        told = {"after": self._loss, "failed": self._failures, "problem": self.last_problem}
        more = {name: value for name, value in told.items() if value}
        self._log.info("resource registered", endpoint=server.path.name, **more)
        self.last_problem = self._loss = None
        self._failures = 0

    def _note_loss(self, event: str, **details: object) -> None:
        """Remember the first event that ended a registration."""
        self._log.debug(event, **details)
        self._loss = self._loss or event

    def _failed(self, problem: str, now: float) -> None:
        self._failures += 1
        self._next_attempt = now + self._backoff.next_s()
        self._note(problem)

    def _note(self, problem: str) -> None:
        if self._is_cancelled:
            return
        if problem != self.last_problem:
            self._log.debug("registration failed", problem=problem)
        self.last_problem = problem


class KubeletSocketRegistrar(Registrar):
    """Keep one resource registered by calling the kubelet on ``kubelet.sock``.

    The plugin's socket is next to it. A kubelet that starts removes every socket in its directory,
    then creates ``kubelet.sock`` again.
    """

    def _prepare(self) -> None:
        socket = self.directory / sockets.KUBELET_SOCKET
        self._kubelet_socket = socket
        self._client = RegistrationClient(socket, self._deadlines.register_s)
        self._has_kubelet = False
        self._registered_with: sockets.Identity | None = None

    def kubelet_changed(self, now: float, kubelet: sockets.Identity | None) -> None:
        """Register with the new kubelet at once, unless that was done before it was noticed.

        It was where the kubelet removed our socket, which is replaced and registered immediately. A
        second registration would leave two streams open. A kubelet that still watches the devices
        through a socket that stands has not started: ``kubelet.sock`` was renamed, or chmod,
        restorecon or a hard link changed its ctime.
        """
        self._has_kubelet = kubelet is not None
        server = self._server
        if self._accepted is not None and server is not None:
            is_registered = kubelet is not None and kubelet == self._registered_with
            if is_registered or (server.streams.open and server.is_reachable()):
                return
        self._accepted = None
        self._backoff.reset()
        self._next_attempt = now

    def withdraw(self) -> None:
        """Do nothing: only a call registers."""

    def cancel(self) -> None:
        """End a call that hangs."""
        super().cancel()
        self._client.cancel()

    def _new_server(self) -> PluginServer:
        name = sockets.endpoint_name(self._resource, self.directory, self._instance)
        return PluginServer(self._servicer, self.directory / name, on_end=self._on_stream_end)

    def _attempt(self, server: PluginServer, now: float) -> bool:
        if not self._has_kubelet:
            cure = "restart the kubelet" if self.streams_open else "see whether the kubelet runs"
            self._note(f"no {sockets.KUBELET_SOCKET} in {self.directory} — {cure}")
            return False
        if self._is_used:
            # One socket listens at any moment, or siblings would take this for our end.
            try:
                self._server = self._new_server()
            except (OSError, RuntimeError) as error:
                self._failed(f"cannot serve in {self.directory}: {error}", now)
                return True
            # A call in progress admits a pod; a stream can have begun after the hang-up.
            server.stop(self._deadlines.stop_grace_s, hangs_up=True)
            server, self._is_used = self._server, False
        streams_opened = server.streams.opened
        self._registered_with = sockets.identity(self._kubelet_socket)  # before: it can change
        server.stamp()
        try:
            self._client.register(self._resource, server.path.name)
        except RegistrationError as error:
            self._failed(str(error), now)
            self._is_used = error.may_be_connected
            return True
        self._succeeded(server, streams_opened, monotonic())
        return True


class RegistrationError(UnreadableError):
    """The kubelet did not confirm a registration."""

    def __init__(self, cause: str, cure: str, *, may_be_connected: bool) -> None:
        super().__init__(cause, cure)
        # The kubelet can have connected to the socket all the same.
        self.may_be_connected = may_be_connected


class RegistrationClient:
    """Call Register on *kubelet_socket*, with a deadline of *timeout_s* seconds."""

    def __init__(self, kubelet_socket: Path, timeout_s: float) -> None:
        self._target = f"unix://{kubelet_socket.absolute()}"
        self._timeout_s = timeout_s
        self._lock = Lock()
        self._call: Any = None  # grpcio's future has no public type
        self._is_cancelled = False

    def register(self, resource: str, endpoint: str) -> None:
        """Register *resource* under the socket file name *endpoint*."""
        cure = "see whether the kubelet runs, and its log"
        with grpc.insecure_channel(self._target, options=CHANNEL_OPTIONS) as channel:
            with self._lock:
                if self._is_cancelled:
                    raise RegistrationError("registration cancelled", cure, may_be_connected=False)
                self._call = service.RegistrationStub(channel).Register.future(
                    pb.RegisterRequest(
                        version=VERSION,
                        endpoint=endpoint,
                        resource_name=resource,
                        options=pb.DevicePluginOptions(get_preferred_allocation_available=True),
                    ),
                    timeout=self._timeout_s,
                )
            is_unsent = False
            try:
                self._call.result()
            except grpc.FutureCancelledError:
                problem = "cancelled"
            except grpc.RpcError:
                problem = f"{self._call.code().name}: {self._call.details()}"
                is_unsent = self._call.code() is grpc.StatusCode.UNAVAILABLE
            else:
                return
        raise RegistrationError(
            f"the kubelet did not register {resource}: {problem}",
            cure,
            may_be_connected=not is_unsent,
        )

    def cancel(self) -> None:
        """End the current call, and refuse every later one; called from another thread."""
        with self._lock:
            self._is_cancelled = True
            if self._call is not None:
                self._call.cancel()
