"""The HTTP server of /metrics, /healthz and /readyz."""

import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from agent.errors import InputError
from agent.formats.harmless import harmless
from agent.model.digits import is_digits
from agent.model.nvml_event import NvmlStatus, NvmlTrouble
from agent.model.snapshot import Snapshot
from agent.publish.metrics.families import families
from agent.publish.metrics.process import process_metrics
from agent.publish.metrics.state import MetricsState

__all__ = ["MetricsServer", "MetricsState", "serve_metrics"]

_CLIENT_TIMEOUT_S = 10
"""A client that is silent for longer loses its connection, and its thread is free again."""


CLOSE_S = 2.0
"""How long the end of a server waits for each of its threads; a stop of the daemon takes less than
a second where nothing hangs."""

STUCK_S = 300.0
"""Without a heartbeat for this long the agent is not alive. A scan waits for NVML some 20 s at
most, and a cold start of many nodes may keep a thread from running for a minute."""

PATIENCE = 3
"""Consecutive failures to read NVML that are tolerated while devices are offered."""


LONGEST_LINE = 1000
"""Characters of a reason of /readyz: drivers and other plugins wrote parts of some."""


_VERSION_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH (nvml.h)


_REASONS = {
    NvmlTrouble.NO_ANSWER: "NvmlUnresponsive",
    NvmlTrouble.REFUSED: "NvmlRefuses",
    NvmlTrouble.DIED: "NvmlDied",
    NvmlTrouble.NO_LIBRARY: "NvmlLibraryGone",
}
"""The reasons of the Events that report the same."""


class PageAnswer(Protocol):
    """What a page answers: a body with its type, and more headers."""

    @property
    def content_type(self) -> str:
        """The MIME type of the body."""

    @property
    def body(self) -> bytes:
        """What a GET is sent."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers beside type and length."""


Page = Callable[[str], PageAnswer | None]
"""Answers a request for a path with its query; ``None`` where there is no such page."""


class MetricsServer:
    """A running server; *close* ends it."""

    def __init__(self, server: ThreadingHTTPServer, host: str) -> None:
        self._server = server
        self._host = f"[{host}]" if ":" in host else host
        self._thread = threading.Thread(
            target=server.serve_forever,
            kwargs={"poll_interval": None},  # until a client comes, or the end
            name="metrics",
            daemon=True,
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are, with the port that the kernel chose for port 0."""
        return f"http://{self._host}:{self._server.server_address[1]}/metrics"

    def close(self) -> None:
        """Stop serving and free the port."""
        # A daemon, as it waits for the server's thread without a limit of its own.
        stop = threading.Thread(target=self._server.shutdown, daemon=True)
        stop.start()
        self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes that thread
        stop.join(CLOSE_S)
        self._server.server_close()
        self._thread.join(CLOSE_S)


def serve_metrics(
    address: str,
    state: Callable[[], MetricsState],
    heartbeat_age_s: Callable[[], float] = lambda: 0.0,
    *,
    page: Page | None = None,
) -> MetricsServer:
    """Serve /metrics, /healthz and /readyz on *address*, ``host:port``, from threads of its own.

    *state* is called for every scrape and by /readyz, *heartbeat_age_s*, the seconds since the
    agent's loop last moved, by /healthz; both must be quick, open nothing, and be safe to call from
    any thread.
    /healthz does not depend on the hardware, so that a dead driver does not restart the agent for
    nothing; /readyz does. *page* answers what else is asked for, where it can. Port 0 selects a
    free one.

    Raises:
        InputError: *address* is malformed or cannot be listened on.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not is_digits(port) or int(port) > 65535:
        raise InputError(
            f"not an address: {address!r}",
            "write --metrics-address as host:port, e.g. 127.0.0.1:9430",
        )
    host = host.removeprefix("[").removesuffix("]")
    registry = CollectorRegistry()
    registry.register(_StateCollector(state))
    try:
        family, *_, target = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        handler = partial(_Handler, registry, state, heartbeat_age_s, page)
        server = _Server(family, (str(target[0]), int(port)), handler)
    except OSError as error:
        raise InputError(
            f"cannot serve metrics on {address}: {error}",
            "choose another address with --metrics-address",
        ) from error
    return MetricsServer(server, host)


class _StateCollector(Collector):
    def __init__(self, state: Callable[[], MetricsState]) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        yield from families(state)
        yield from process_metrics(state.process)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self,
        family: socket.AddressFamily,
        address: tuple[str, int],
        handler: Callable[..., BaseHTTPRequestHandler],
    ) -> None:
        self.address_family = family
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # HTTPServer would ask DNS for the name of this host here, which can take seconds.
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up in the middle of an answer."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_TIMEOUT_S
    server_version = "nodetopo"
    sys_version = ""

    def __init__(
        self,
        registry: CollectorRegistry,
        state: Callable[[], MetricsState],
        heartbeat_age_s: Callable[[], float],
        page: Page | None,
        *args: Any,
    ) -> None:
        self._page = page
        self._registry = registry
        self._state = state
        self._heartbeat_age_s = heartbeat_age_s
        super().__init__(*args)

    def do_GET(self) -> None:
        match urlsplit(self.path).path:
            case "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(HTTPStatus.OK, content_type, encode(self._registry))
            case "/healthz":
                age_s = self._heartbeat_age_s()
                is_stuck = age_s > STUCK_S
                self._answer_probe(
                    f"Stuck: the loop has not moved for {age_s:.0f} s" if is_stuck else None
                )
            case "/readyz":
                self._answer_probe(self._state().not_ready)
            case _ if self._page is not None and (found := self._page(self.path)) is not None:
                self._answer(HTTPStatus.OK, found.content_type, found.body, found.headers)
            case _:
                self._answer(
                    HTTPStatus.NOT_FOUND, "text/plain", b"try /metrics, /healthz or /readyz\n"
                )

    def _answer_probe(self, problem: str | None) -> None:
        """Answer a probe of the kubelet, for which any status from 400 on is a failure."""
        status = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, "text/plain; charset=utf-8", f"{problem or 'ok'}\n".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited name
        """Write nothing: a scrape is not an event."""

    do_HEAD = do_GET  # noqa: N815 - http.server's own name for the method

    def _answer(
        self,
        status: HTTPStatus,
        content_type: str,
        body: bytes,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def not_ready(
    *,
    snapshot: Snapshot | None,
    nvml: NvmlStatus,
    is_registered: Mapping[str, bool],
    conflicts: Mapping[str, str],
    refusals: Sequence[str] = (),
    cdi_problem: str | None = None,
    hand_over_problem: str | None = None,
    dra_problem: str | None = None,
) -> str | None:
    """Return what keeps the node's GPUs from pods, a line ``Reason: sentence`` each.

    ``None`` means ready; so is a node without GPUs, which has nothing to offer. An agent that is
    not ready is alive: it is not restarted, and the kubelet goes on using its devices. The
    Kubernetes probe asks several times before it believes a no, which tolerates what passes by
    itself, such as a restart of the kubelet.

    Args:
        snapshot: the latest; ``None`` before the first scan has ended.
        nvml: how the last attempt to read NVML ended.
        is_registered: resource → whether the kubelet has it; empty while nothing is offered.
        conflicts: resource → which competing plugin serves it, a sentence.
        refusals: why a configured resource is not offered, a sentence each.
        cdi_problem: why our CDI specification is not what it should be, a sentence.
        hand_over_problem: why no way hands GPUs to containers, a sentence.
        dra_problem: why claims of GPUs do not reach our DRA driver, a sentence.
    """
    if snapshot is None:
        return "NotScanned: the node has not been read yet"
    lines = [f"ResourceConflict: {text}" for _, text in sorted(conflicts.items())]
    lines += [
        f"NotRegistered: the kubelet does not have {resource}"
        for resource, is_there in sorted(is_registered.items())
        if not is_there and resource not in conflicts
    ]
    lines += [f"NotOffered: {text}" for text in refusals]
    if hand_over_problem is not None and is_registered:
        lines.append(f"NoHandOver: {hand_over_problem}")
    if cdi_problem is not None:
        lines.append(f"CdiNotWritten: {cdi_problem}")
    if dra_problem is not None:
        lines.append(f"DraNotServed: {dra_problem}")
    is_nvml_missed = nvml.failures >= PATIENCE or not is_registered
    if is_nvml_missed and nvml.trouble is not None and (snapshot.gpus or snapshot.pci_gpus):
        is_mismatch = nvml.code == _VERSION_MISMATCH
        reason = "NvmlVersionMismatch" if is_mismatch else _REASONS[nvml.trouble]
        lines.append(f"{reason}: {nvml.cause or 'it gave no reading'}")
    return "\n".join(harmless(line, LONGEST_LINE) for line in lines) or None
