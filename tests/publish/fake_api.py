"""An API server with one Node: as much of server-side apply as labels need."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
Reply = tuple[int, dict[str, Any]]


@dataclass
class FakeApi:
    """The Node's state, what to refuse, and what was asked.

    Attributes:
        owners: label → managers that own it.
        fail_with: answer every request so instead: status and headers.
        patches: queries of all PATCH requests, in order.
    """

    node: str = "gpu-1"
    uid: str = "uid-1"
    labels: dict[str, str] = field(default_factory=dict)
    owners: dict[str, set[str]] = field(default_factory=dict)
    version: int = 1
    fail_with: tuple[int, Mapping[str, str]] | None = None
    patches: list[dict[str, str]] = field(default_factory=list)
    reads: list[dict[str, str]] = field(default_factory=list)

    def set_by(self, manager: str, labels: Mapping[str, str]) -> None:
        """Have another program own *labels*."""
        self.labels |= labels
        self.owners |= {key: {manager} for key in labels}

    @property
    def writes(self) -> int:
        """PATCH requests that were meant to stay."""
        return sum("dryRun" not in query for query in self.patches)

    def read(self) -> dict[str, Any]:
        """Return the Node as a GET does."""
        managers = sorted({name for names in self.owners.values() for name in names})
        managed = [
            {"manager": name, "operation": "Apply", "fieldsV1": self._fields(name)}
            for name in managers
        ]
        return {
            "metadata": {
                "name": self.node,
                "uid": self.uid,
                "resourceVersion": str(self.version),
                "labels": self.labels,
                "managedFields": managed,
            },
        }

    def _fields(self, manager: str) -> dict[str, Any]:
        keys: dict[str, Any] = {
            f"f:{key}": {} for key, names in self.owners.items() if manager in names
        }
        return {"f:metadata": {"f:labels": keys}}

    def apply(self, query: Mapping[str, str], body: Mapping[str, Any]) -> Reply:
        """Return status and object as a PATCH does."""
        manager, sent = query["fieldManager"], body["metadata"]["labels"]
        if body["metadata"]["uid"] != self.uid:
            return 422, {"message": "metadata.uid: field is immutable"}
        if any(not _VALUE.fullmatch(value) for value in sent.values()):
            return 422, {"message": "metadata.labels: Invalid value"}
        conflicts = [
            {"reason": "FieldManagerConflict", "field": f".metadata.labels.{key}", "message": "x"}
            for key, value in sent.items()
            if self.labels.get(key, value) != value and self.owners.get(key, set()) - {manager}
        ]
        if conflicts and query.get("force") != "true":
            return 409, {"message": "conflicts", "details": {"causes": conflicts}}
        if "dryRun" not in query:
            self._store(manager, sent)
        return 200, self.read()

    def _store(self, manager: str, sent: Mapping[str, str]) -> None:
        for key in [key for key, names in self.owners.items() if manager in names]:
            if key not in sent:
                self.owners[key].discard(manager)
                if not self.owners[key]:
                    del self.owners[key], self.labels[key]
        for key, value in sent.items():
            if self.labels.get(key, value) != value:
                self.owners[key] = set()
            self.labels[key] = value
            self.owners.setdefault(key, set()).add(manager)
        self.version += 1


@contextmanager
def serving(api: FakeApi, directory: Path) -> Iterator[Path]:
    """Serve *api* on 127.0.0.1; yields a kubeconfig for it, written into *directory*."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
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


def kubeconfig(url: str) -> str:
    """Return a kubeconfig with a bearer token for *url*."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": url}}],
            "users": [{"name": "it", "user": {"token": "secret"}}],
        },
    )


def _handler(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            api.reads.append(self._query())
            self._answer(200, api.read())

        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api.patches.append(self._query())
            assert self.headers["Content-Type"] == "application/apply-patch+yaml"
            self._answer(*api.apply(self._query(), body))

        def _query(self) -> dict[str, str]:
            return {key: value[0] for key, value in parse_qs(urlsplit(self.path).query).items()}

        def _answer(self, status: int, body: Mapping[str, Any]) -> None:
            headers: Mapping[str, str] = {}
            if self.headers["Authorization"] != "Bearer secret":
                status, body = 401, {"message": "Unauthorized"}
            elif urlsplit(self.path).path != f"/api/v1/nodes/{api.node}":
                status, body = 404, {"message": "not found"}
            elif api.fail_with is not None:
                (status, headers), body = api.fail_with, {"message": "go away"}
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay silent."""

    return Handler
