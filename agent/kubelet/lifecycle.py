"""Keeping one resource served and registered, through whatever the kubelet does.

A kubelet that starts removes every socket in its directory, then makes ``kubelet.sock``
anew; one that lost us, or that let an older plugin's end take ours along (1.36,
kubernetes issue 121994), only ends its stream. Both are noticed here by looking often:
one ``stat`` call every :data:`POLL_S`, and more only when it shows a change.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

import grpc
from structlog.typing import FilteringBoundLogger

from agent.errors import UnreadableError
from agent.kubelet import sockets
from agent.kubelet.gpu import GpuServicer
from agent.kubelet.pb import deviceplugin_pb2_grpc as service
from agent.kubelet.registration import Backoff, Registrar

POLL_S = 0.03
"""Leaves 20 ms to serve and register, of the 50 ms that a restarted kubelet waits for us."""

LOOK_S = 1.0
"""How often the sockets are looked at although their directory says nothing changed."""

POOL_THREADS = 16
"""A stream holds a thread for its life; Allocate must always find one free."""

STREAM_GRACE_S = 0.1
"""No stream for this long is a loss; a kubelet that reconnects overlaps or is faster."""

STREAM_DUE_S = 10.0
"""A kubelet that registered us and has not watched after this long never will."""

STOP_GRACE_S = 0.5
"""What a call in progress gets when we stop; answers come from memory, in milliseconds."""


STUCK_S = 0.2
"""What a call that outlives its grace gets before it is left behind."""


class Served:
    """A running gRPC server on its own socket."""

    def __init__(self, servicer: GpuServicer, path: Path) -> None:
        self.path = path
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix=path.stem)
        self._server = grpc.server(self._pool)
        service.add_DevicePluginServicer_to_server(servicer, self._server)
        try:
            self._server.add_insecure_port(f"unix://{path.absolute()}")
            self._server.start()
        except RuntimeError:
            self.stop(grace_s=0)
            raise
        self._identity = sockets.identity(path)

    def is_reachable(self) -> bool:
        """Tell whether the socket file is still the one that was bound."""
        now = sockets.identity(self.path)
        if now is None or self._identity is None:
            return False
        return now[:2] == self._identity[:2]  # a chmod changes the ctime, and nothing else

    def stop(self, grace_s: float) -> None:
        """End all calls within *grace_s* and remove the socket file, if it is still ours."""
        self._server.stop(grace_s).wait(grace_s + STUCK_S)
        self._pool.shutdown(wait=False)
        self.path.unlink(missing_ok=True)  # its name is unique, so nobody else's


@dataclass(slots=True)
class _Registered:
    """What was so when the kubelet last accepted us."""

    since: float
    streams_opened: int
    unwatched_since: float | None = None


class Lifecycle:
    """Run one thread that serves, registers, and does both again when it has to."""

    def __init__(
        self, resource: str, socket_dir: Path, servicer: GpuServicer, log: FilteringBoundLogger
    ) -> None:
        self._resource = resource
        self._socket_dir = socket_dir
        self._servicer = servicer
        self._log = log
        self._kubelet_socket = socket_dir / sockets.KUBELET_SOCKET
        self._directory = sockets.Entries(socket_dir)
        self._registrar = Registrar(self._kubelet_socket)
        self._backoff = Backoff()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"{resource} lifecycle", daemon=True)
        self._served: Served | None = None
        self._kubelet: sockets.Identity | None = None
        self._registered: _Registered | None = None
        self._next_attempt = 0.0
        self._next_look = 0.0
        self.registrations = 0
        self.last_problem: str | None = None
        self.is_detached = False

    @property
    def endpoint(self) -> str | None:
        """The file name of the socket served now; ``None`` while there is none."""
        served = self._served
        return served.path.name if served else None

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet that runs now accepted the socket that is served now."""
        return self._registered is not None

    @property
    def is_running(self) -> bool:
        """Whether the thread lives; it ends only by :meth:`stop` or by a fault of ours."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin; serving and registering follow as soon as the directory allows.

        Raises:
            InputError: no socket fits into the directory's path.
        """
        sockets.check_path_length(self._resource, self._socket_dir)
        self._thread.start()

    def stop(self) -> None:
        """End streams, calls and the thread, and remove the socket."""
        self._stopping.set()
        self._registrar.cancel()
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
            if self._served is not None:
                self._served.stop(STOP_GRACE_S)
                self._served = self._registered = None
            self._log.info("device plugin stopped")

    def _step(self, now: float) -> None:
        if self._directory.may_have_changed() or now >= self._next_look or not self._served:
            self._next_look = now + LOOK_S
            self._see_directory()
            self._see_own_socket(now)
            self._see_kubelet(now)
        self._see_streams(now)
        is_wanted = self._registered is None and bool(self._servicer.devices)
        if self._served and self._kubelet and is_wanted and now >= self._next_attempt:
            self._register(self._served, now)

    def _see_directory(self) -> None:
        is_detached = sockets.is_deleted_directory(self._socket_dir)
        if is_detached and not self.is_detached:
            self._log.error("socket directory deleted under its mount", path=str(self._socket_dir))
        self.is_detached = is_detached

    def _see_own_socket(self, now: float) -> None:
        if self._served is not None and not self._served.is_reachable():
            self._log.warning("own socket vanished", endpoint=self._served.path.name)
            self._served.stop(grace_s=0)
            self._served = self._registered = None
            self._next_attempt = now
        if self._served is not None or now < self._next_attempt:
            return
        if sockets.identity(self._socket_dir) is not None:
            self._serve(now)

    def _serve(self, now: float) -> None:
        removed = sockets.remove_leftovers(self._resource, self._socket_dir)
        path = self._socket_dir / sockets.endpoint_name(self._resource)
        try:
            self._served = Served(self._servicer, path)
        except RuntimeError as error:  # grpcio's word for "cannot bind"
            self._failed(f"cannot serve on {path}: {error}", now)
            return
        self._log.info("device plugin served", endpoint=path.name, leftovers_removed=removed)

    def _see_kubelet(self, now: float) -> None:
        kubelet = sockets.identity(self._kubelet_socket)
        if kubelet == self._kubelet:
            return
        self._log.info("kubelet socket changed", is_present=kubelet is not None)
        self._kubelet = kubelet
        self._registered = None
        self._backoff.reset()
        self._next_attempt = now

    def _see_streams(self, now: float) -> None:
        registered = self._registered
        if registered is None:
            return
        if self._servicer.streams_open:
            registered.unwatched_since = None
            return
        if registered.unwatched_since is None:
            registered.unwatched_since = now
        has_watched = self._servicer.streams_opened > registered.streams_opened
        patience = STREAM_GRACE_S if has_watched else STREAM_DUE_S
        if now - registered.unwatched_since >= patience:
            self._lose(registered, now)

    def _lose(self, registered: _Registered, now: float) -> None:
        if now - registered.since > self._backoff.last_s:
            self._backoff.reset()
        self._registered = None
        self._next_attempt = now + self._backoff.delay()
        self._log.warning("device list stream lost", held_s=round(now - registered.since, 3))

    def _register(self, served: Served, now: float) -> None:
        streams_opened = self._servicer.streams_opened
        try:
            self._registrar.register(self._resource, served.path.name)
        except UnreadableError as error:
            if not self._stopping.is_set():
                self._failed(str(error), now)
            return
        self._registered = _Registered(since=monotonic(), streams_opened=streams_opened)
        self.registrations += 1
        self.last_problem = None
        self._log.info("resource registered", endpoint=served.path.name)

    def _failed(self, problem: str, now: float) -> None:
        delay = self._backoff.delay()
        self._next_attempt = now + delay
        self.last_problem = problem
        self._log.warning("registration failed", problem=problem, retry_in_s=delay)
