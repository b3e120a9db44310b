"""Registration by ``plugins_registry``: the kubelet finds the socket and calls the plugin.

The kubelet watches that directory below its ``--root-dir`` for sockets, asks each for what it
is, and connects to it. It empties nothing there; one that starts walks the directory and asks
again, so the socket outlives it, and a notice and a new stream say that it came back.

A kubelet that only ended our stream does not ask again by itself. A socket file that appears
under the same name makes it leave the old connection and connect anew, one after the other,
within two rounds of one second (1.36 pkg/kubelet/pluginmanager/reconciler): so the file is
hidden behind a dot and shown again. It is also bound behind the dot, and shown when it
answers: whoever sees it can use it.
"""

from contextlib import suppress
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from agent.deviceplugin import sockets
from agent.deviceplugin.plugin_watcher import Announcer
from agent.deviceplugin.registration import Way
from agent.deviceplugin.server import Served
from agent.deviceplugin.service import GpuServicer

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
