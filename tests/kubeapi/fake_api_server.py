"""An API server with one Node, and NodeFeatures: as much of server-side apply as labels need."""

import dataclasses
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi.client import MAX_OBJECT, Answer, Api
from tests.kubeapi.fake_node_features import FakeFeatures

_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
Reply = tuple[int, dict[str, Any]]


@dataclasses.dataclass
class FakeApi:
    """The Node's state, what to refuse, and what was asked.

    Attributes:
        owners: label → managers that own it.
        annotations: those of ours; nobody else writes any here.
        fail_with: answer every request so instead: status and headers.
        lose_with: carry out every write, and answer it with this status all the same; 0 for
            no answer.
        features: the NodeFeature objects; ``None`` where NFD is not installed.
        pods: path → metadata.
        patches: queries of all PATCH requests, in order.
    """

    node: str = "gpu-1"
    uid: str = "uid-1"
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    owners: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    version: int = 1
    fail_with: tuple[int, Mapping[str, str]] | None = None
    lose_with: int | None = None
    features: FakeFeatures | None = None
    pods: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    patches: list[dict[str, str]] = dataclasses.field(default_factory=list)
    reads: list[dict[str, str]] = dataclasses.field(default_factory=list)

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
        managers = sorted(
            {name for names in self.owners.values() for name in names}
            | ({"nodetopo"} if self.annotations else set())
        )
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
                "annotations": self.annotations,
                "managedFields": managed,
            },
        }

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Mapping[str, Any]
    ) -> tuple[int, Mapping[str, str], Mapping[str, Any]]:
        """Return status, headers and object that a request gets; status 0 for no answer."""
        (self.patches if method == "PATCH" else self.reads).append(query)
        if self.fail_with is not None:
            return *self.fail_with, {"message": "go away"}
        status, found = self._routed(method, path, query, body)
        if method == "PATCH" and "dryRun" not in query and self.lose_with is not None:
            status, found = self.lose_with, {"message": "timeout"}
        return status, {}, found

    def _routed(
        self, method: str, path: str, query: dict[str, str], body: Mapping[str, Any]
    ) -> Reply:
        if path == "/api/v1/nodes":
            return 200, self.page(int(query.get("continue", "0")))
        if path == f"/api/v1/nodes/{self.node}":
            return self.apply(query, body) if method == "PATCH" else (200, self.read())
        if path in self.pods:
            return 200, {"metadata": self.pods[path]}
        if "/nodefeatures/" in path and self.features is not None:
            return self.features.answer(method, path, query, body)
        return 404, {"message": "not found"}

    def page(self, number: int) -> dict[str, Any]:
        """Return one page of Nodes: this one, and after it one without labels of ours."""
        if number:
            return {"metadata": {}, "items": [self.read()]}
        return {"metadata": {"continue": "1"}, "items": [{"metadata": {"name": "other"}}]}

    def _fields(self, manager: str) -> dict[str, Any]:
        keys: dict[str, Any] = {
            f"f:{key}": {} for key, names in self.owners.items() if manager in names
        }
        fields: dict[str, Any] = {"f:labels": keys}
        if manager == "nodetopo":
            fields["f:annotations"] = {f"f:{key}": {} for key in self.annotations}
        return {"f:metadata": fields}

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
            self.annotations = dict(body["metadata"].get("annotations") or {})
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
            self._reply("GET", {})

        def do_DELETE(self) -> None:
            self._reply("DELETE", {})

        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.headers["Content-Type"] == "application/apply-patch+yaml"
            self._reply("PATCH", body)

        def _reply(self, method: str, sent: Mapping[str, Any]) -> None:
            if self.headers["Authorization"] != "Bearer secret":
                self._answer(401, {}, {"message": "Unauthorized"})
                return
            url = urlsplit(self.path)
            found = parse_qs(url.query, keep_blank_values=True)
            query = {key: value[0] for key, value in found.items()}
            self._answer(*api.answer(method, url.path, query, sent))

        def _answer(self, status: int, headers: Mapping[str, str], body: object) -> None:
            if not status:
                self.close_connection = True
                return
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


class DirectApi(Api):
    """The same server without a connection, for what is done a thousand times."""

    def __init__(self, api: FakeApi) -> None:
        self._fake = api

    @property
    def host(self) -> str:
        """Some URL."""
        return "http://fake"

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: str | None,
        *,
        max_bytes: int = MAX_OBJECT,
    ) -> Answer:
        del headers, max_bytes
        sent = json.loads(body) if body else {}
        status, said, found = self._fake.answer(method, path, dict(query), sent)
        if not status:
            raise ApiUnavailable("no answer")
        asked = said.get("Retry-After")
        return Answer(status=status, body=found, retry_after_s=float(asked) if asked else None)
