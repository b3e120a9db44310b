"""An API server that is watched: one Node, its versions, and what can go wrong with a watch."""

import dataclasses
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubeapi.fake_api_server import kubeconfig

POLL_S = 0.01


@dataclasses.dataclass
class FakeWatch:
    """The Node, its history, and what was asked.

    Attributes:
        labels: ``None`` while there is no such Node.
        history: (version, event) of every change, oldest first.
        oldest: the first version that is remembered; an older one is answered by 410.
        refuse_with: answer every request so instead: status and headers.
        lines: what every watch holds instead, and then ends.
        queries: of all watches, in order.
        open: watches that are open now.
    """

    node: str = "gpu-1"
    labels: dict[str, str] | None = dataclasses.field(default_factory=dict)
    version: int = 7
    history: list[tuple[int, dict[str, Any]]] = dataclasses.field(default_factory=list)
    oldest: int = 0
    refuse_with: tuple[int, Mapping[str, str]] | None = None
    lines: Sequence[bytes] | None = None
    queries: list[dict[str, str]] = dataclasses.field(default_factory=list)
    accepted: list[str] = dataclasses.field(default_factory=list)
    open: int = 0
    epoch: int = 0
    changed: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def label(self, **labels: str) -> None:
        """Set labels of the Node; an underscore stands for a dot."""
        with self.changed:
            is_new, self.labels = self.labels is None, dict(labels)
            self._add("ADDED" if is_new else "MODIFIED")

    def delete(self) -> None:
        """Delete the Node."""
        with self.changed:
            self._add("DELETED")
            self.labels = None

    def bookmark(self) -> None:
        """Tell watchers of a version, as other Nodes change."""
        with self.changed:
            self._add("BOOKMARK")

    def fail(self, code: int) -> None:
        """Say in the stream that it failed."""
        with self.changed:
            self.history.append((self.version + 1, {"type": "ERROR", "object": _status(code)}))

    def drop(self) -> None:
        """End every watch that is open."""
        self.epoch += 1

    def forget(self) -> None:
        """Know no version but the present one."""
        with self.changed:
            self.version += 10
            self.oldest = self.version
            self.history.clear()

    def count(self, more: int) -> None:
        """Note that so many more watches are open."""
        with self.changed:
            self.open += more

    def serve(self, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the lines of one watch, empty ones too, until it is dropped."""
        if self.lines is not None:
            yield from self.lines
            return
        epoch, begin = self.epoch, query["resourceVersion"]
        with self.changed:
            after = self.version
            if begin in ("", "0"):
                first = [] if self.labels is None else [self._event("ADDED")]
            elif int(begin) < self.oldest:
                first, after = [{"type": "ERROR", "object": _status(410)}], 1 << 30
            else:
                first, after = [], int(begin)
        yield from map(_line, first)
        while self.epoch == epoch:
            with self.changed:
                news = [(version, event) for version, event in self.history if version > after]
            for version, event in news:
                after = version
                yield _line(event)
            yield b""

    def _add(self, kind: str) -> None:
        self.version += 1
        self.history.append((self.version, self._event(kind)))

    def _event(self, kind: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {"resourceVersion": str(self.version)}
        if kind != "BOOKMARK":
            metadata |= {"name": self.node, "labels": dict(self.labels or {})}
        return {"type": kind, "object": {"kind": "PartialObjectMetadata", "metadata": metadata}}


@contextmanager
def watched(api: FakeWatch, directory: Path, port: int = 0) -> Iterator[Path]:
    """Serve *api* on *port* of 127.0.0.1; yields a kubeconfig, written into *directory*."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(api))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        path = directory / "kubeconfig"
        path.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}"))
        yield path
    finally:
        api.drop()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(api: FakeWatch) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            found = parse_qs(url.query, keep_blank_values=True)
            query = {key: value[0] for key, value in found.items()}
            api.queries.append(query)
            api.accepted.append(self.headers["Accept"])
            if api.refuse_with is not None:
                self._refuse(*api.refuse_with)
                return
            assert url.path == "/api/v1/nodes"
            assert query["watch"] == "true"
            assert query["fieldSelector"] == f"metadata.name={api.node}"
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            api.count(1)
            try:
                self._stream(query)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            finally:
                api.count(-1)

        def _stream(self, query: Mapping[str, str]) -> None:
            pause = threading.Event()
            for line in api.serve(query):
                if line:  # in two chunks, as a line may come over the network
                    for part in (line[:5], line[5:]):
                        self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                    self.wfile.flush()
                elif self._is_left():
                    raise BrokenPipeError
                pause.wait(POLL_S)
            self.wfile.write(b"0\r\n\r\n")

        def _is_left(self) -> bool:
            """Tell whether the client has closed its end."""
            self.connection.setblocking(False)
            try:
                return not self.connection.recv(1)
            except BlockingIOError:
                return False
            finally:
                self.connection.setblocking(True)

        def _refuse(self, status: int, headers: Mapping[str, str]) -> None:
            content = json.dumps(_status(status)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay silent."""

    return Handler


def _status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "message": f"failed with {code}"}


def _line(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event).encode() + b"\n"
