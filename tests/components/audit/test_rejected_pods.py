"""The watch of rejected pods, against a server that streams what a test says."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest

from nodetopo.components.audit.rejected_pods import REASONS, RejectedPods
from nodetopo.kubeapi.watch import Watch
from tests.kubeapi.fake_api_server import kubeconfig

TIMEOUT_S = 240
Object = dict[str, Any]
W = TypeVar("W", bound=Watch)


def rejected(name: str, reason: str = "TopologyAffinityError", **status: Any) -> Object:
    return {
        "kind": "Pod",
        "metadata": {"namespace": "ml", "name": name, "uid": f"u-{name}", "resourceVersion": "9"},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "c"}]},
        "status": {"phase": "Failed", "reason": reason, **status},
    }


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
def following(api: FakePods, directory: Path) -> Iterator[tuple[RejectedPods, list[str]]]:
    """Serve *api* and follow it until it has nothing more; yields the watch and what it gave."""
    seen: list[str] = []

    def watch(config: Path) -> RejectedPods:
        return RejectedPods(config, "gpu-1", lambda pod: seen.append(pod["metadata"]["name"]))

    with followed(api, directory, watch) as found:
        yield found, seen


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


def test_only_pods_that_the_managers_rejected_are_reported(tmp_path: Path) -> None:
    elsewhere = rejected("elsewhere")
    elsewhere["spec"]["nodeName"] = "gpu-2"
    events = [
        *(added(rejected(f"by-{reason.lower()}", reason)) for reason in sorted(REASONS)),
        added(rejected("evicted", "Evicted")),
        added(rejected("crashed", "")),
        added(rejected("running", phase="Running")),
        added(elsewhere),
        {"type": "DELETED", "object": rejected("deleted")},
        {"type": "MODIFIED", "object": rejected("modified")},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}},
    ]
    with following(FakePods(events), tmp_path) as (_, seen):
        assert seen == [
            "by-smtalignmenterror",
            "by-topologyaffinityerror",
            "by-unexpectedadmissionerror",
            "modified",
        ]


def test_only_failed_pods_of_the_own_node_are_watched(tmp_path: Path) -> None:
    api = FakePods([added(rejected("a"))])
    with following(api, tmp_path):
        path, query, accept = api.asked[0]
    assert (path, accept) == ("/api/v1/pods", "application/json")
    assert query["fieldSelector"] == "spec.nodeName=gpu-1,status.phase=Failed"
    assert (query["watch"], query["resourceVersion"]) == ("true", "0")


def test_a_watch_that_ends_is_taken_up_where_it_was(tmp_path: Path) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}
    api = FakePods([added(rejected("a")), bookmark], [added(rejected("b"))])
    with following(api, tmp_path) as (_, seen):
        assert seen == ["a", "b"]
    assert [query["resourceVersion"] for _, query, _ in api.asked[:2]] == ["0", "12"]


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "ADDED", "object": {"spec": [], "metadata": {}}},
        {"type": "ADDED", "object": {"status": "x", "metadata": {}}},
        {"type": "ADDED", "object": {"metadata": []}},
        {"type": "ADDED", "object": 3},
        {"type": "ERROR", "object": {"code": 500, "message": "overloaded"}},
    ],
    ids=["spec", "status", "metadata", "object", "error"],
)
def test_an_invalid_object_ends_the_watch_but_not_the_loop(tmp_path: Path, broken: Object) -> None:
    with following(FakePods([broken], [added(rejected("b"))]), tmp_path) as (_, seen):
        assert seen == ["b"]


def test_a_missing_right_is_named_as_the_problem(tmp_path: Path) -> None:
    with following(FakePods(), tmp_path) as (watch, _):
        assert watch.problem is not None
        assert watch.problem.endswith("HTTP 403 — grant `watch` on pods to the account")
