"""Registration by ``kubelet.sock``: the plugin serves beside it, and calls the kubelet.

A kubelet that starts removes every socket in its directory, then makes ``kubelet.sock`` anew.
"""

from pathlib import Path
from time import monotonic

from structlog.typing import FilteringBoundLogger

from agent.deviceplugin import sockets
from agent.deviceplugin.registration import Way
from agent.deviceplugin.registration_part import Registrar
from agent.deviceplugin.server import Served
from agent.deviceplugin.service import GpuServicer
from agent.errors import UnreadableError


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
