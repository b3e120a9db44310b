"""An API server that takes Events, by server-side apply or created."""

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubeapi.fake_api_server import kubeconfig


@dataclasses.dataclass
class FakeEvents:
    """The Events, how each write is answered, and what was asked.

    Attributes:
        stored: by path; the last write wins, as with server-side apply and *force*.
        answer_with: answer every write so instead, and store nothing.
        writes: bodies of all writes, refused ones too, in order.
        queries: their queries.
        details: more of the object that every write is answered with.
    """

    stored: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    answer_with: tuple[int, Mapping[str, str]] | None = None
    writes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    queries: list[dict[str, str]] = dataclasses.field(default_factory=list)
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def apply(self, path: str, query: dict[str, str], body: dict[str, Any]) -> int:
        """Return the status of a write."""
        self.writes.append(body)
        self.queries.append(query)
        if self.answer_with is not None:
            return self.answer_with[0]
        status = 200 if path in self.stored else 201
        self.stored[path] = body
        return status

    def create(self, path: str, query: dict[str, str], body: dict[str, Any]) -> int:
        """Return the status of a creation in the collection at *path*."""
        self.writes.append(body)
        self.queries.append(query)
        if self.answer_with is not None:
            return self.answer_with[0]
        place = f"{path}/{body['metadata']['name']}"
        if place in self.stored:
            return 409
        self.stored[place] = body
        return 201


def bound(events: FakeEvents) -> ThreadingHTTPServer:
    """Return a server of *events* that has a port of 127.0.0.1, and refuses connections yet."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(events), bind_and_activate=False)
    server.server_bind()
    return server


@contextmanager
def serving(
    events: FakeEvents, directory: Path, server: ThreadingHTTPServer | None = None
) -> Iterator[Path]:
    """Serve *events*, by *server* if given; yields a kubeconfig, written into *directory*."""
    server = server or bound(events)
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        path = directory / "kubeconfig"
        path.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}"))
        yield path
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(events: FakeEvents) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PATCH(self) -> None:
            assert self.headers["Content-Type"] == "application/apply-patch+yaml"
            self._answer(events.apply)

        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/json"
            self._answer(events.create)

        def _answer(self, take: Callable[[str, dict[str, str], dict[str, Any]], int]) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            url = urlsplit(self.path)
            query = {key: value[0] for key, value in parse_qs(url.query).items()}
            status = take(url.path, query, body)
            headers = events.answer_with[1] if events.answer_with else {}
            content = json.dumps({"message": f"answered {status}", **events.details}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay silent."""

    return Handler
