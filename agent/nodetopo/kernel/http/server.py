"""The HTTP server of /metrics, /healthz and /readyz."""

import dataclasses
import socket
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from types import MappingProxyType
from typing import Protocol
from urllib.parse import urlsplit

import structlog
from prometheus_client import PROCESS_COLLECTOR, CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from nodetopo.errors import InputError
from nodetopo.kernel.http.connections import BACKLOG, Connections, Request
from nodetopo.kernel.http.families import KERNEL, KernelReading, metrics
from nodetopo.model.digits import is_digits

_FAILED = b"HTTP/1.0 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"

STUCK_S = 300.0
"""The agent is not alive after this long without a heartbeat.

A scan waits up to 20 s for NVML, and a cold start of many nodes can stall a thread for a minute.
"""


class PageAnswer(Protocol):
    """An answer of the page: a body with its type, and further headers."""

    @property
    def content_type(self) -> str:
        """The MIME type of the body."""

    @property
    def body(self) -> bytes:
        """The body sent to a GET."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers in addition to type and length."""


Readings = Callable[[], Mapping[str, object]]
"""Returns the metrics readings by component."""

Page = Callable[[str], PageAnswer | None]
"""Answers a request for a path with its query; ``None`` where there is no such page."""


class MetricsServer:
    """A running server; *close* ends it."""

    def __init__(self, connections: Connections, host: str, port: int) -> None:
        self._connections = connections
        self._host = f"[{host}]" if ":" in host else host
        self._port = port

    @property
    def url(self) -> str:
        """Where the metrics are, with the port that the kernel chose for port 0."""
        return f"http://{self._host}:{self._port}/metrics"

    def close(self) -> None:
        """Stop serving and free the port; wait for that up to two seconds."""
        self._connections.close()


def serve_metrics(
    address: str,
    readings: Readings,
    not_ready: Callable[[], str | None] = lambda: None,
    heartbeat_age_s: Callable[[], float] = lambda: 0.0,
    *,
    page: Page | None = None,
    page_everywhere: bool = False,
) -> MetricsServer:
    """Serve /metrics, /healthz and /readyz on *address*, ``host:port``.

    The same port of localhost serves them too, which is where ``kubectl port-forward`` connects to.

    *readings* is called for every scrape, *not_ready*, which returns why the agent is not ready, by
    /readyz, and *heartbeat_age_s*, the seconds since the agent's loop last moved, by /healthz. All
    must be quick, open nothing, and be safe to call from any thread. /healthz does not depend on
    the hardware, so that a dead driver does not restart the agent for nothing; /readyz does. *page*
    answers all other paths, only to clients on localhost unless *page_everywhere* is set. Port 0
    selects a free port.

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
    try:
        listener = _listener(host, int(port))
    except OSError as error:
        raise InputError(
            f"cannot serve metrics on {address}: {error}",
            "choose another address with --metrics-address",
        ) from error
    bound: int = listener.getsockname()[1]
    answers = _Answers(readings, not_ready, heartbeat_age_s, page, page_everywhere=page_everywhere)
    connections = Connections(
        [listener, *_on_localhost(listener)],
        answers.make,
        quick={b"/healthz": answers.make},
        separate=frozenset({b"/readyz"}),
    )
    answers.connections = connections
    return MetricsServer(connections, host, bound)


def _listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens on *host*, a name or an address."""
    family, *_, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    address = (str(target[0]), port)
    is_every = target[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=is_every)


def _on_localhost(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield listeners on 127.0.0.1 and ::1 for the port, unless *listener* covers them.

    Container runtimes connect forwarded ports to localhost in the pod's network namespace
    (containerd internal/cri/server/sandbox_portforward_linux.go).
    """
    host, port = listener.getsockname()[:2]
    covered = {"0.0.0.0": ("127.0.0.1",), "::": ("127.0.0.1", "::1")}.get(host, (host,))  # noqa: S104
    for local in ("127.0.0.1", "::1"):
        if local in covered:
            continue
        try:
            yield _listener(local, port)
        except OSError as error:
            log = structlog.get_logger()
            say = log.warning if local == "127.0.0.1" else log.debug  # many nodes have no IPv6
            say("port not served on localhost", address=local, port=port, problem=str(error))


class _ReadingsCollector(Collector):
    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        return metrics(self._readings())


class _Answers:
    """Makes the answers to requests."""

    def __init__(
        self,
        readings: Readings,
        not_ready: Callable[[], str | None],
        heartbeat_age_s: Callable[[], float],
        page: Page | None,
        *,
        page_everywhere: bool,
    ) -> None:
        self.readings = readings
        self.not_ready = not_ready
        self.heartbeat_age_s = heartbeat_age_s
        self.page = page
        self.page_everywhere = page_everywhere
        self.registry = CollectorRegistry()
        self.registry.register(_ReadingsCollector(self._counted))
        self.registry.register(PROCESS_COLLECTOR)  # reads three files of /proc/self per scrape
        self.connections: Connections | None = None  # the server's connections, for the metrics
        self._problem: str | None = None

    def make(self, request: Request) -> bytes:
        """Return the whole answer to *request*."""
        try:
            answer = _Handler(self, request).wfile.getvalue()
        except Exception as error:  # noqa: BLE001 - a fault in one answer must not end the server
            self._report(error)
            return _FAILED
        return answer

    def _counted(self) -> Mapping[str, object]:
        """Return the readings, with the connections to this server."""
        readings = self.readings()
        kernel = readings[KERNEL]
        if self.connections is None or not isinstance(kernel, KernelReading):
            return readings
        counted = dataclasses.replace(
            kernel,
            connections=self.connections.count,
            connections_refused=self.connections.refused,
        )
        return {**readings, KERNEL: counted}

    def _report(self, error: Exception) -> None:
        """Log an internal error once, not at every request."""
        problem, self._problem = self._problem, repr(error)
        if problem != self._problem:
            structlog.get_logger().error("request failed: internal error", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    """Reads one request and writes its answer, both in memory."""

    server_version = "nodetopo"
    sys_version = ""
    wfile: BytesIO

    def __init__(self, answers: _Answers, request: Request) -> None:
        self._answers = answers
        self._request = request
        self.rfile = BytesIO(request.head)
        self.wfile = BytesIO()
        self.close_connection = True
        self.handle_one_request()

    def do_GET(self) -> None:
        answers = self._answers
        match urlsplit(self.path).path:
            case "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(HTTPStatus.OK, content_type, encode(answers.registry))
            case "/healthz":
                age_s = answers.heartbeat_age_s()
                is_stuck = age_s > STUCK_S
                self._answer_probe(
                    f"Stuck: the loop has not moved for {age_s:.0f} s" if is_stuck else None
                )
            case "/readyz":
                self._answer_probe(answers.not_ready())
            case _ if (found := self._page()) is not None:
                self._answer(HTTPStatus.OK, found.content_type, found.body, found.headers)
            case _:
                self._answer(
                    HTTPStatus.NOT_FOUND, "text/plain", b"try /metrics, /healthz or /readyz\n"
                )

    def _page(self) -> PageAnswer | None:
        """Return the page's answer, if there is one and this client may see it."""
        answers = self._answers
        if answers.page is None or not (answers.page_everywhere or self._request.is_local):
            return None
        return answers.page(self.path)

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
