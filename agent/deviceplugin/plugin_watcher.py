"""What a kubelet asks a socket in ``plugins_registry``, answered from memory.

It gives GetInfo one second (1.36 pkg/kubelet/pluginmanager/operationexecutor).
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
from structlog.typing import FilteringBoundLogger

from agent.deviceplugin import sockets
from agent.deviceplugin.pb import pluginregistration_pb2 as pb
from agent.deviceplugin.pb import pluginregistration_pb2_grpc as service
from agent.deviceplugin.registration import VERSION, Way
from agent.deviceplugin.server import Served
from agent.deviceplugin.service import GpuServicer

TYPE = "DevicePlugin"
"""What the kubelet calls the kind of plugin that offers devices."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What a kubelet told after it tried; *problem* is ``None`` if it took the resource."""

    problem: str | None


class Announcer(service.RegistrationServicer):
    """Tell which resource is served on this socket, and keep the latest notice."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._notice: Notice | None = None

    def take_notice(self) -> Notice | None:
        """Return a notice that was not returned before, if there is one."""
        notice, self._notice = self._notice, None
        return notice

    def GetInfo(  # noqa: N802 - the service's own name
        self, request: pb.InfoRequest, context: grpc.ServicerContext
    ) -> pb.PluginInfo:
        """Name the resource; without an endpoint the kubelet goes on with this socket."""
        del request, context
        return pb.PluginInfo(type=TYPE, name=self._resource, supported_versions=[VERSION])

    def NotifyRegistrationStatus(  # noqa: N802 - the service's own name
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """Remember how it went."""
        del context
        problem = None if request.plugin_registered else request.error or "no reason given"
        self._notice = Notice(problem)
        return pb.RegistrationStatusResponse()


# Registration by ``plugins_registry``: the kubelet finds the socket and calls the plugin.
#
# The kubelet watches that directory below its ``--root-dir`` for sockets, asks each for what it
# is, and connects to it. It empties nothing there; one that starts walks the directory and asks
# again, so the socket outlives it, and a notice and a new stream say that it came back.
#
# A kubelet that only ended our stream does not ask again by itself. A socket file that appears
# under the same name makes it leave the old connection and connect anew, one after the other,
# within two rounds of one second (1.36 pkg/kubelet/pluginmanager/reconciler): so the file is
# hidden behind a dot and shown again. It is also bound behind the dot, and shown when it
# answers: whoever sees it can use it.

NOTICE_DUE_S = 30.0
"""A kubelet asks within seconds; one that starts does so when it has heard from the API server."""


class WatcherWay(Way):
    """Keep one resource's socket in the directory that the kubelet watches."""

    def __init__(
        self, resource: str, directory: Path, servicer: GpuServicer, log: FilteringBoundLogger
    ) -> None:
        super().__init__(resource, directory, servicer, log)
        self._announcer = Announcer(resource)
        self._streams_before = 0

    def see_kubelet(self, kubelet: sockets.Identity | None, now: float) -> None:
        """Leave it at that: the next kubelet finds the socket by itself."""
        del kubelet, now
        self._backoff.reset()

    def see_streams(self, now: float) -> bool:
        """Tell whether the kubelet has just left; take its notice first."""
        notice, served = self._announcer.take_notice(), self._served
        if notice is not None and served is not None:
            if notice.problem is not None:  # it tries again by itself
                self.last_problem = f"the kubelet refused {self._resource}: {notice.problem}"
                self._log.warning("registration failed", problem=self.last_problem)
            elif self._standing is None:
                self._accepted(served, self._streams_before, now)
        return super().see_streams(now)

    def hold(self) -> None:
        """Hide the socket, unless a kubelet is connected to it."""
        served = self._served
        if served is not None and not served.streams.open and not _is_hidden(served):
            with suppress(OSError):
                _hide(served)

    def _open(self) -> Served:
        name = sockets.HIDDEN + sockets.endpoint_name(self._resource)
        self._announcer = Announcer(self._resource)  # a notice is about one socket
        return Served(self._servicer, self._directory / name, self._announcer)

    def _attempt(self, served: Served, now: float) -> bool:
        """Show the socket; the rest is up to the kubelet."""
        self._next_attempt = now + NOTICE_DUE_S
        self._streams_before = served.streams.opened
        was_shown = not _is_hidden(served)
        try:
            if was_shown:
                _hide(served)
            served.rename(served.path.with_name(served.path.name.removeprefix(sockets.HIDDEN)))
        except OSError as error:  # where the file is gone, the next look makes another
            self._failed(f"cannot show a socket in {self._directory}: {error}", now)
            return True
        self._log.info("resource announced", endpoint=served.path.name, is_again=was_shown)
        return True


def _hide(served: Served) -> None:
    served.rename(served.path.with_name(sockets.HIDDEN + served.path.name))


def _is_hidden(served: Served) -> bool:
    return served.path.name.startswith(sockets.HIDDEN)
