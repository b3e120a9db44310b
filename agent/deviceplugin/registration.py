"""What the ways of being registered have in common: a socket served, and where it stands.

A stream of the device list is the only sign of life that a kubelet gives. One that lost us,
or that let an older plugin's end take ours along (1.36, kubernetes issue 121994), only ends
its stream; registering again heals both.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

import grpc
from structlog.typing import FilteringBoundLogger

from agent.deviceplugin import sockets
from agent.deviceplugin.pb import deviceplugin_pb2 as pb
from agent.deviceplugin.pb import deviceplugin_pb2_grpc as service
from agent.deviceplugin.server import Served
from agent.deviceplugin.service import GpuServicer
from agent.errors import UnreadableError

# How a kubelet learns of a plugin, and the one call for it that a plugin makes.

VERSION = "v1beta1"
"""The only version of the device plugin API that kubelets since 1.10 accept."""


DEADLINE_S = 12.0
"""The kubelet dials the plugin inside the call and gives that 10 s (1.36 plugin/v1beta1)."""


CHANNEL_OPTIONS = (
    # What the kubelet itself sends over a unix socket; a path would not be a valid authority.
    ("grpc.default_authority", "localhost"),
    # Channels to one address share their connection's back-off otherwise, so that a new
    # channel to a kubelet just restarted would wait out the old one's.
    ("grpc.use_local_subchannel_pool", 1),
)


class Registration(StrEnum):
    """By which way a kubelet learns of a resource.

    ``socket``: we call the kubelet on ``kubelet.sock``. ``watcher``: it finds our socket in its
    directory ``plugins_registry`` and asks. ``both``: either, whichever comes first.
    """

    SOCKET = "socket"
    WATCHER = "watcher"
    BOTH = "both"


class Registrar:
    """Call Register; :meth:`cancel` from another thread ends a call that hangs."""

    def __init__(self, kubelet_socket: Path) -> None:
        self._target = f"unix://{kubelet_socket.absolute()}"
        self._lock = Lock()
        self._call: Any = None  # grpcio's future has no public type
        self._is_cancelled = False

    def register(self, resource: str, endpoint: str) -> bool:
        """Register *resource* under the socket file name *endpoint*.

        Return whether that is news to the kubelet: since 1.37 it refuses a second registration
        of a socket that it is connected to.

        Raises:
            UnreadableError: the kubelet did not accept, with its words; or cancelled.
        """
        with grpc.insecure_channel(self._target, options=CHANNEL_OPTIONS) as channel:
            with self._lock:
                if self._is_cancelled:
                    raise UnreadableError("registration cancelled")
                self._call = service.RegistrationStub(channel).Register.future(
                    pb.RegisterRequest(
                        version=VERSION,
                        endpoint=endpoint,
                        resource_name=resource,
                        options=pb.DevicePluginOptions(get_preferred_allocation_available=True),
                    ),
                    timeout=DEADLINE_S,
                )
            problem = _problem(self._call)
        if problem is None:
            return True
        if "already connected" in problem:
            return False
        raise UnreadableError(
            f"the kubelet did not register {resource}: {problem}",
            "see whether the kubelet runs, and its log",
        )

    def cancel(self) -> None:
        """End the current call, and refuse every later one."""
        with self._lock:
            self._is_cancelled = True
            if self._call is not None:
                self._call.cancel()


def _problem(call: Any) -> str | None:
    """Wait for *call*; return what went wrong in the words of gRPC, or ``None``."""
    try:
        call.result()
    except grpc.FutureCancelledError:
        return "cancelled"
    except grpc.RpcError:
        return f"{call.code().name}: {call.details()}"
    return None


class Backoff:
    """Delays between attempts, doubling from *first_s* to *last_s*."""

    def __init__(self, first_s: float = 0.2, last_s: float = 30.0) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._next_s = first_s

    @property
    def last_s(self) -> float:
        """The longest delay."""
        return self._last_s

    def delay(self) -> float:
        """Return the seconds to wait before the next attempt."""
        delay, self._next_s = self._next_s, min(self._next_s * 2, self._last_s)
        return delay

    def reset(self) -> None:
        """Begin with the shortest delay again."""
        self._next_s = self._first_s


STREAM_GRACE_S = 0.1
"""No stream for this long is a loss; a kubelet that reconnects overlaps or is faster."""


STREAM_DUE_S = 10.0
"""A kubelet that registered us and has not watched after this long never will."""


RENEW_S = 0.15
"""What a kubelet gets to notice that we hung up: 1.36 would count the end of the old stream
against the new registration, 1.37 would refuse it."""


STOP_GRACE_S = 0.5
"""What a call in progress gets when we stop; answers come from memory, in milliseconds."""


@dataclass(slots=True)
class Standing:
    """What was so when the kubelet last accepted us."""

    since: float
    streams_opened: int
    unwatched_since: float | None = None


class Way(ABC):
    """Serve one resource on one socket, and keep it registered; one thread calls all this.

    Attributes:
        registrations: how often a kubelet has accepted the resource this way.
        last_problem: why the last attempt to serve or register failed; ``None`` after one
            that did not.
        is_detached: the directory was deleted while a mount held it.
    """

    def __init__(
        self, resource: str, directory: Path, servicer: GpuServicer, log: FilteringBoundLogger
    ) -> None:
        self._resource = resource
        self._directory = directory
        self._servicer = servicer
        self._log = log
        self._backoff = Backoff()
        self._served: Served | None = None
        self._standing: Standing | None = None
        self._next_attempt = 0.0
        self._is_cancelled = False
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
        return self._standing is not None

    @property
    def streams_open(self) -> int:
        """How many clients watch the device list through the socket."""
        served = self._served
        return served.streams.open if served else 0

    def look(self, now: float) -> None:
        """Serve where nothing is served, and notice what became of directory and socket."""
        self._see_directory()
        if self._served is not None and not self._served.is_reachable():
            self._log.warning("own socket vanished", endpoint=self._served.path.name)
            self._drop()
            self._next_attempt = now
        is_due = self._served is None and now >= self._next_attempt
        if is_due and sockets.identity(self._directory) is not None:
            self._serve(now)

    def see_streams(self, now: float) -> bool:
        """Tell whether the kubelet has just left."""
        standing, served = self._standing, self._served
        if standing is None or served is None:
            return False
        if served.streams.open:
            standing.unwatched_since = None
            return False
        if standing.unwatched_since is None:
            standing.unwatched_since = now
        has_watched = served.streams.opened > standing.streams_opened
        patience = STREAM_GRACE_S if has_watched else STREAM_DUE_S
        if now - standing.unwatched_since < patience:
            return False
        self._lose(standing, now)
        return True

    def register(self, now: float) -> bool:
        """Register if that is due; return whether it was tried."""
        if self._served is None or self._standing is not None or now < self._next_attempt:
            return False
        return self._attempt(self._served, now)

    def renew(self, now: float) -> None:
        """Register again soon, although nothing was lost."""
        self._standing = None
        self._backoff.reset()
        self._next_attempt = now + RENEW_S

    def cancel(self) -> None:
        """End an attempt that hangs, from any thread; none succeeds afterwards."""
        self._is_cancelled = True

    def stop(self) -> None:
        """End what is served."""
        if self._served is not None:
            self._served.stop(STOP_GRACE_S)
            self._served = self._standing = None

    @abstractmethod
    def see_kubelet(self, kubelet: sockets.Identity | None, now: float) -> None:
        """Take note that another kubelet runs now; ``None``: it has no socket."""

    @abstractmethod
    def hold(self) -> None:
        """Take note that another plugin shall not be disturbed."""

    @abstractmethod
    def _open(self) -> Served:
        """Serve on a new socket.

        Raises:
            OSError, RuntimeError: that cannot be done.
        """

    @abstractmethod
    def _attempt(self, served: Served, now: float) -> bool:
        """Try to register *served*; return whether something was tried."""

    def _see_directory(self) -> None:
        is_detached = sockets.is_deleted_directory(self._directory)
        if is_detached and not self.is_detached:
            self._log.error("socket directory deleted under its mount", path=str(self._directory))
        self.is_detached = is_detached

    def _serve(self, now: float) -> None:
        removed = sockets.remove_leftovers(self._resource, self._directory)
        try:
            self._served = self._open()
        except (OSError, RuntimeError) as error:  # the latter is grpcio's word
            self._failed(f"cannot serve in {self._directory}: {error}", now)
            return
        self._log.info("device plugin served", endpoint=self.endpoint, leftovers_removed=removed)

    def _drop(self) -> None:
        """Give the socket up; the next look makes another, under another name."""
        if self._served is not None:
            self._served.stop(grace_s=0)
        self._served = self._standing = None

    def _accepted(self, served: Served, streams_opened: int, now: float) -> None:
        self._standing = Standing(since=now, streams_opened=streams_opened)
        self.registrations += 1
        self.last_problem = None
        self._log.info("resource registered", endpoint=served.path.name)

    def _lose(self, standing: Standing, now: float) -> None:
        if now - standing.since > self._backoff.last_s:
            self._backoff.reset()
        self._standing = None
        self._next_attempt = now + self._backoff.delay()
        self._log.warning("device list stream lost", held_s=round(now - standing.since, 3))

    def _failed(self, problem: str, now: float) -> None:
        delay = self._backoff.delay()
        self._next_attempt = now + delay
        if self._is_cancelled:
            return
        self.last_problem = problem
        self._log.warning("registration failed", problem=problem, retry_in_s=delay)


# Registration by ``kubelet.sock``: the plugin serves beside it, and calls the kubelet.
#
# A kubelet that starts removes every socket in its directory, then makes ``kubelet.sock`` anew.


class SocketWay(Way):
    """Keep one resource registered with the kubelet that serves ``kubelet.sock``."""

    def __init__(
        self, resource: str, directory: Path, servicer: GpuServicer, log: FilteringBoundLogger
    ) -> None:
        super().__init__(resource, directory, servicer, log)
        self._registrar = Registrar(directory / sockets.KUBELET_SOCKET)
        self._has_kubelet = False

    def see_kubelet(self, kubelet: sockets.Identity | None, now: float) -> None:
        """Begin anew with whoever listens now."""
        self._has_kubelet = kubelet is not None
        self._standing = None
        self._backoff.reset()
        self._next_attempt = now

    def hold(self) -> None:
        """Do nothing: who does not call is not registered."""

    def cancel(self) -> None:
        """End a call that hangs."""
        super().cancel()
        self._registrar.cancel()

    def _open(self) -> Served:
        path = self._directory / sockets.endpoint_name(self._resource)
        return Served(self._servicer, path)

    def _attempt(self, served: Served, now: float) -> bool:
        if not self._has_kubelet:
            return False
        streams_opened = served.streams.opened
        try:
            is_new = self._registrar.register(self._resource, served.path.name)
        except UnreadableError as error:
            self._failed(str(error), now)
            return True
        if is_new or served.streams.open:
            self._accepted(served, streams_opened, monotonic())
            return True
        # It believes in a connection that is gone, and would for ever: 1.37 forgets the client
        # of a path that it refuses, and never learns of its end (plugin/v1beta1/handler.go).
        self._failed(f"the kubelet holds {served.path.name} for connected, which it is not", now)
        self._drop()
        return True
