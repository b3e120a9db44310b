"""The slices of a node: known only when complete, and never older than the API server's."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from nodetopo.kubeapi.slices import SliceWatch
from tests.deviceplugin.eventually import eventually
from tests.kubeapi.fake_api_server import kubeconfig

END: Mapping[str, Any] = {
    "type": "BOOKMARK",
    "object": {
        "metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
    },
}


def event(kind: str, name: str, version: int = 1) -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}}


class FakeSlices:
    """Answers each watch with the lines of its turn, and keeps the last one open."""

    def __init__(
        self,
        *turns: Sequence[Mapping[str, Any]],
        status: int = 200,
        listed: Mapping[str, Any] | None = None,
    ) -> None:
        self.turns = turns
        self.status = status
        self.listed = listed
        """What a list answers, where no watch can begin with the present objects."""
        self.queries: list[Mapping[str, str]] = []
        self.more: list[Mapping[str, Any]] = []
        self.is_over = threading.Event()

    @contextmanager
    def followed(self, directory: Path) -> Iterator[SliceWatch]:
        """Yield a watch that runs."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        path = directory / "kubeconfig"
        path.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}"))
        watch, stopping = SliceWatch(path, "n"), threading.Event()
        thread = threading.Thread(target=watch.run, args=(stopping,), daemon=True)
        thread.start()
        try:
            yield watch
        finally:
            self.is_over.set()
            stopping.set()
            thread.join(60)
            server.shutdown()
            server.server_close()
            serving.join(60)
            assert not thread.is_alive()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = {key: it[0] for key, it in parse_qs(urlsplit(self.path).query).items()}
                if api.listed is not None and "watch" not in query:
                    self._answer(200, json.dumps(api.listed).encode())
                    return
                if api.listed is not None and "sendInitialEvents" in query:
                    self._answer(422, b"{}")
                    return
                turn = min(len(api.queries), len(api.turns) - 1)
                api.queries.append(query)
                if api.status != 200:
                    self._answer(api.status, b"")
                    return
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for line in api.turns[turn]:
                    self._send(line)
                if turn < len(api.turns) - 1:
                    api.is_over.wait(1.2)  # an end that comes at once counts as a failure
                    self.wfile.write(b"0\r\n\r\n")
                    return
                sent = 0
                while not api.is_over.wait(0.01):
                    for line in api.more[sent:]:
                        self._send(line)
                        sent += 1

            def _answer(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _send(self, line: Mapping[str, Any]) -> None:
                text = json.dumps(line).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
                self.wfile.flush()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                del format, args

        return Handler


def names(watch: SliceWatch) -> set[str] | None:
    return None if watch.slices is None else set(watch.slices)


def test_slices_are_known_once_the_present_ones_are_complete(tmp_path: Path) -> None:
    api = FakeSlices([event("ADDED", "a"), event("ADDED", "b")])
    with api.followed(tmp_path) as watch:
        assert eventually(lambda: bool(api.queries))
        assert not eventually(lambda: watch.slices is not None, timeout_s=0.3)
        api.more.append(END)
        assert eventually(lambda: names(watch) == {"a", "b"})
        assert watch.is_sound
    (query,) = api.queries
    assert query["fieldSelector"] == "spec.nodeName=n"
    assert (query["sendInitialEvents"], query["resourceVersionMatch"]) == ("true", "NotOlderThan")


def test_no_slices_is_an_answer(tmp_path: Path) -> None:
    with FakeSlices([END]).followed(tmp_path) as watch:
        assert eventually(lambda: names(watch) == set())


def test_changes_are_followed_and_heard_of(tmp_path: Path) -> None:
    api = FakeSlices([event("ADDED", "a"), END])
    heard: list[set[str] | None] = []
    with api.followed(tmp_path) as watch:
        watch.subscribe(lambda: heard.append(names(watch)))
        assert eventually(lambda: names(watch) == {"a"})
        api.more += [event("ADDED", "b", 10), event("DELETED", "a", 11)]
        assert eventually(lambda: names(watch) == {"b"})
    assert heard[-2:] == [{"a", "b"}, {"b"}]


def test_a_watch_that_is_opened_again_forgets_slices_that_are_gone(tmp_path: Path) -> None:
    api = FakeSlices([event("ADDED", "a"), END], [event("ADDED", "b"), END])
    with api.followed(tmp_path) as watch:
        assert eventually(lambda: names(watch) == {"a"})
        assert eventually(lambda: names(watch) == {"b"})
        assert watch.connections == 2


def test_an_api_server_without_streaming_lists_is_asked_for_a_list_before(tmp_path: Path) -> None:
    listed = {
        "metadata": {"resourceVersion": "41"},
        "items": [event("ADDED", name)["object"] for name in ("a", "b")],
    }
    api = FakeSlices([event("DELETED", "a", 42)], [event("ADDED", "c", 43)], listed=listed)
    with api.followed(tmp_path) as watch:
        assert eventually(lambda: names(watch) == {"b"})
        assert eventually(lambda: names(watch) == {"a", "b", "c"}), "listed again"
        assert watch.is_sound
    assert {query["resourceVersion"] for query in api.queries} == {"41"}


def test_a_cluster_without_dra_has_no_slices(tmp_path: Path) -> None:
    with FakeSlices([], status=404).followed(tmp_path) as watch:
        assert eventually(lambda: names(watch) == set())
        assert eventually(lambda: not watch.is_sound)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_leaves_slices_unknown(status: int, tmp_path: Path) -> None:
    with FakeSlices([], status=status).followed(tmp_path) as watch:
        assert eventually(lambda: watch.problem is not None)
        assert watch.slices is None
