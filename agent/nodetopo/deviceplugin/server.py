"""A running gRPC server on its own socket, and the watchers of its device list."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import grpc

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.pb import pluginregistration_pb2_grpc as registration
from nodetopo.deviceplugin.peers import Peers
from nodetopo.deviceplugin.service import PluginServicer

POOL_THREADS = 16
"""A stream holds a thread for its life; Allocate must always find one free."""

SOCKET_MODE = 0o600
"""To connect takes the right to write. The daemon's umask withholds it from others until then."""

STUCK_S = 0.2
"""Time for a call that outlives its grace before it is abandoned."""


class PluginServer:
    """A server on the socket *path*, from its construction to :meth:`stop`."""

    def __init__(
        self,
        servicer: PluginServicer,
        path: Path,
        announcer: registration.RegistrationServicer | None = None,
        *,
        users: frozenset[int] | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve *servicer* and *announcer* for *users*; ``None``: root and our own user.

        *on_end* is called at the end of each stream, by a gRPC thread.
        """
        self.path = path  # of the socket file now
        self.streams = Streams(on_end)  # of the device list, through this socket
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix=path.stem)
        guard = Guard(Peers(path, users))
        self._server = grpc.server(self._pool, interceptors=[guard, self.streams])
        service.add_DevicePluginServicer_to_server(servicer, self._server)
        if announcer is not None:
            registration.add_RegistrationServicer_to_server(announcer, self._server)
        try:
            self._server.add_insecure_port(f"unix://{path.absolute()}")
            self._server.start()  # gRPC stops only what was started
            with suppress(FileNotFoundError):  # a kubelet that starts removes every socket
                path.chmod(SOCKET_MODE)
        except (OSError, RuntimeError):
            self.stop(grace_s=0)
            raise
        self._identity = sockets.identity(path)

    @property
    def stamp_ns(self) -> int:
        """When the socket was made or last stamped, by the file system's clock; 0 if it is gone."""
        return 0 if self._identity is None else self._identity[2]

    def stamp(self) -> None:
        """Stamp the socket file with the time of now, for other instances to see."""
        with suppress(OSError):  # it vanished
            os.utime(self.path)
        self._identity = sockets.identity(self.path) or self._identity

    def rename(self, path: Path) -> None:
        """Rename the socket file to *path*, on the same file system."""
        self.path.rename(path)
        self.path = path

    def is_reachable(self) -> bool:
        """Return whether the socket file is still the bound one."""
        now = sockets.identity(self.path)
        if now is None or self._identity is None:
            return False
        return now[:2] == self._identity[:2]  # a chmod changes the ctime, and nothing else

    def stop(self, grace_s: float, *, hangs_up: bool = False) -> None:
        """End all calls within *grace_s* and remove the socket file unless replaced.

        With *hangs_up* streams end at once. Otherwise they have time to send their last list.
        """
        ended = self._server.stop(grace_s)  # no call begins after this
        if hangs_up:
            self.streams.cancel()
        ended.wait(grace_s + STUCK_S)
        self._pool.shutdown(wait=False)
        with suppress(OSError):  # a closed directory keeps it, and nobody listens
            self.path.unlink()  # its name is unique, so no other process owns it


class Guard(grpc.ServerInterceptor):
    """Refuses every call while a foreign user is connected, and disconnects that user.

    A call cannot be attributed to a connection, so a call of the kubelet can be refused along with
    a foreign one; its next call succeeds.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Pass the call on, unless a stranger was connected; gRPC calls this once for each."""
        handler = continuation(details)
        if handler is None or self._peers.are_trusted():
            return handler

        def refuse(_request: Any, context: grpc.ServicerContext) -> Any:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "only for the kubelet")

        # Before any byte of the request is decoded.
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(refuse)
        return grpc.unary_unary_rpc_method_handler(refuse)


class Streams(grpc.ServerInterceptor):
    """Count the streams of the device list that one server carries."""

    def __init__(self, on_end: Callable[[], None] = lambda: None) -> None:
        self.open = 0  # now
        self.opened = 0  # ever
        self._on_end = on_end
        self._contexts: set[grpc.ServicerContext] = set()
        self._lock = Lock()

    def cancel(self) -> None:
        """End the currently open streams."""
        with self._lock:
            contexts = tuple(self._contexts)
        for context in contexts:
            context.cancel()

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Pass every call on, counted if it is a stream; gRPC calls this once for each."""
        handler = continuation(details)
        if handler is None or not details.method.endswith("/ListAndWatch"):
            return handler

        def counted(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            def ended() -> None:
                with self._lock:
                    self.open -= 1
                    self._contexts.discard(context)
                self._on_end()

            with self._lock:
                if not context.add_callback(ended):  # called once, whichever side ends the stream
                    return  # the client is gone already
                self.open += 1
                self.opened += 1
                self._contexts.add(context)
            yield from handler.unary_stream(request, context)

        return grpc.unary_stream_rpc_method_handler(
            counted, handler.request_deserializer, handler.response_serializer
        )
