"""A server that streams what happens to pods as a test says, and a watch that follows it."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from nodetopo.kubeapi.watch import Watch
from tests.kubeapi.fake_api_server import kubeconfig

TIMEOUT_S = 240
Object = dict[str, Any]
W = TypeVar("W", bound=Watch)


class FakePods:
    """Streams one batch of events for each request, then ends it; forbids where it has none.

    Attributes:
        objects: what is served besides, by path.
    """

    def __init__(self, *batches: list[Object]) -> None:
        self.batches = list(batches)
        self.objects: dict[str, Object] = {}
        self.asked: list[tuple[str, dict[str, str], str]] = []


@contextmanager
def followed(api: FakePods, directory: Path, make: Callable[[Path], W]) -> Iterator[W]:
    """Serve *api*, and follow it by the watch made with its kubeconfig, until it has no more."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    config = directory / "kubeconfig"
    config.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}"))
    watch = make(config)
    stopping = threading.Event()
    loop = threading.Thread(target=watch.run, args=(stopping,))
    loop.start()
    try:
        while api.batches or watch.problem is None or "HTTP 403" not in watch.problem:
            stopping.wait(0.01)
        yield watch
    finally:
        stopping.set()
        loop.join(TIMEOUT_S)
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(api: FakePods) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {key: value[0] for key, value in parse_qs(url.query).items()}
            api.asked.append((url.path, query, self.headers["Accept"]))
            if url.path != "/api/v1/pods":
                self.answer(api.objects.get(url.path))
                return
            events = api.batches.pop(0) if api.batches else None
            self.send_response(403 if events is None else 200)
            self.end_headers()
            for event in events or ():
                self.wfile.write(json.dumps(event).encode() + b"\n")

        def answer(self, found: Object | None) -> None:
            """Send an object, or that there is none."""
            body = json.dumps(found or {"kind": "Status", "code": 404}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay silent."""

    return Handler


def added(pod: Mapping[str, Any]) -> Object:
    return {"type": "ADDED", "object": pod}
