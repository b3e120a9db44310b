"""Registration by ``plugins_registry``: the kubelet finds the plugin's socket and calls it.

The kubelet watches that directory below its ``--root-dir`` for sockets, asks each for its identity,
and connects to it. It never removes sockets; a starting kubelet walks the directory and asks again,
so the socket outlives a restart, which is visible by a notification and a new stream.

A kubelet that only ended the stream does not ask again by itself. A socket file that reappears
under the same name makes it replace the connection, within two rounds of one second (1.36
pkg/kubelet/pluginmanager/reconciler). So the file is hidden behind a dot and shown again. It is
also bound behind the dot, and shown once it answers, so that a visible socket is usable.
"""

from __future__ import annotations

from contextlib import suppress

import grpc
from msgspec import Struct

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.pb import pluginregistration_pb2 as pb
from nodetopo.deviceplugin.pb import pluginregistration_pb2_grpc as service
from nodetopo.deviceplugin.registration import VERSION, Registrar
from nodetopo.deviceplugin.server import PluginServer

TYPE = "DevicePlugin"
"""The kubelet's name for plugins that offer devices."""

NOTIFICATION_DUE_S = 30.0
"""A kubelet asks within seconds; a starting one asks once the API server has answered it."""


class PluginWatcherRegistrar(Registrar):
    """Keep one resource's socket in the directory that the kubelet watches."""

    def _prepare(self) -> None:
        self._announcer: Announcer | None = None  # of the current socket
        self._streams_before = 0

    def kubelet_changed(self, now: float, kubelet: sockets.Identity | None) -> None:
        """Only reset the delays: the next kubelet finds the socket by itself."""
        del now, kubelet
        self._backoff.reset()

    def check_streams(self, now: float) -> bool:
        """Process the kubelet's notification; return whether the kubelet dropped the resource."""
        server = self._server
        notification = self._announcer.take_notification() if self._announcer else None
        if notification is not None and server is not None:
            if notification.problem is not None:  # the kubelet retries by itself
                self._note(f"the kubelet refused {self._resource}: {notification.problem}")
            else:
                if self._accepted is not None:  # a kubelet was back before its loss was noticed
                    self._streams_before = server.streams.opened - server.streams.open
                self._succeeded(server, self._streams_before, now)
        return super().check_streams(now)

    def withdraw(self) -> None:
        """Hide the socket, unless a kubelet is connected to it."""
        server = self._server
        if server is not None and not server.streams.open and not _is_hidden(server):
            with suppress(OSError):
                _hide(server)

    def _new_server(self) -> PluginServer:
        endpoint = sockets.endpoint_name(self._resource, self.directory, self._instance)
        name = sockets.HIDDEN + endpoint
        self._announcer = Announcer(self._resource)  # a notification is about one socket
        path = self.directory / name
        return PluginServer(self._servicer, path, self._announcer, on_end=self._on_stream_end)

    def _attempt(self, server: PluginServer, now: float) -> bool:
        """Show the socket; the kubelet does the rest."""
        self._next_attempt = now + NOTIFICATION_DUE_S
        self._streams_before = server.streams.opened
        was_shown = not _is_hidden(server)
        try:
            if was_shown:
                _hide(server)
            server.rename(server.path.with_name(server.path.name.removeprefix(sockets.HIDDEN)))
        except OSError as error:  # if the file is gone, the next check makes another
            self._failed(f"cannot show a socket in {self.directory}: {error}", now)
            return True
        self._log.info("resource announced", endpoint=server.path.name, is_again=was_shown)
        return True


def _hide(server: PluginServer) -> None:
    server.rename(server.path.with_name(sockets.HIDDEN + server.path.name))


def _is_hidden(server: PluginServer) -> bool:
    return server.path.name.startswith(sockets.HIDDEN)


class Notification(Struct, frozen=True):
    """How a registration ended; *problem* is ``None`` if the kubelet took the resource."""

    problem: str | None


class Announcer(service.RegistrationServicer):
    """Answers a kubelet's questions about a socket in ``plugins_registry``, from memory.

    The kubelet allows GetInfo one second (1.36 pkg/kubelet/pluginmanager/operationexecutor).
    """

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._notification: Notification | None = None

    def take_notification(self) -> Notification | None:
        """Return the latest notification, once; ``None`` if there is no new one."""
        notification, self._notification = self._notification, None
        return notification

    def GetInfo(  # noqa: N802 - the service's own name
        self, request: pb.InfoRequest, context: grpc.ServicerContext
    ) -> pb.PluginInfo:
        """Return the resource; without an endpoint the kubelet continues with this socket."""
        del request, context
        return pb.PluginInfo(type=TYPE, name=self._resource, supported_versions=[VERSION])

    def NotifyRegistrationStatus(  # noqa: N802 - the service's own name
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        del context
        problem = None if request.plugin_registered else request.error or "no reason given"
        self._notification = Notification(problem)
        return pb.RegistrationStatusResponse()
