"""Every client of ours, against servers whose answers never end."""

import ast
import gzip
import inspect
import io
import threading
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from urllib3 import HTTPResponse as Packed

from nodetopo.cli import support
from nodetopo.deviceplugin import conflict
from nodetopo.deviceplugin.registration import RegistrationClient, RegistrationError
from nodetopo.errors import AgentError, UnreadableError
from nodetopo.formats import responses
from nodetopo.formats.responses import EndlessError, body_of
from nodetopo.kubeapi import lists
from nodetopo.kubeapi.client import LEAST_RATE, MAX_LIST, Api
from nodetopo.kubeapi.lists import list_metadata, list_objects
from nodetopo.kubeapi.pods import ApiServer
from nodetopo.probes.kubelet import api as kubelet_api
from nodetopo.probes.kubelet.api import KubeletApi
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.tools.capture.scrub import Substitutes
from nodetopo.tools.capture.scrub_text import TextScrubber
from tests.kubeapi.fake_api_server import kubeconfig

PACKAGE = Path(responses.__file__).parents[1]

MEBIBYTE = b" " * (1 << 20)

SENT_AT_MOST = 48
"""MiB that a server gets rid of: what is read, and what the kernel's buffers hold."""


class Endless(ThreadingHTTPServer):
    """Answers each request with *status* and white space without end.

    Attributes:
        sent: MiB of the longest answer so far.
    """

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        self.sent = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                sent = 0
                try:
                    while sent < 1024:
                        self.wfile.write(b"100000\r\n" + MEBIBYTE + b"\r\n")
                        sent += 1
                        server.sent = max(server.sent, sent)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names of the base

            def log_message(self, *_: object) -> None:
                """Stay silent."""

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def endless() -> Iterator[Callable[[int], Endless]]:
    """Return a function that starts a server."""
    with ExitStack() as stack:

        def start(status: int = 200) -> Endless:
            server = Endless(status)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            return server

        yield start


CALLS: dict[str, Callable[[Api], object]] = {
    "get_metadata": lambda api: api.get_metadata("/a", {}),
    "list_metadata": lambda api: list(list_metadata(lambda: api, "/a", {})),
    "get": lambda api: api.get("/a", {}),
    "delete": lambda api: api.delete("/a"),
    "apply": lambda api: api.apply("/a", {}, {}),
    "create": lambda api: api.create("/a", {}, {}),
    "ask": lambda api: api.ask("/a", {}, grant="x", max_bytes=1 << 20),
    "watch": lambda api: list(api.watch("/a", {}, 60).events()),
    "watch_metadata": lambda api: list(api.watch_metadata("/a", {}, 60).events()),
}
"""Each request of :class:`Api`."""


def test_every_request_is_among_them() -> None:
    requests = {name for name, _ in inspect.getmembers(Api, inspect.isfunction) if name[0] != "_"}
    assert requests == CALLS.keys()


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("request_", CALLS)
def test_an_endless_answer_of_the_api_server_is_refused(
    endless: Callable[[int], Endless],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request_: str,
    status: int,
) -> None:
    monkeypatch.setattr(lists, "MAX_PAGE", 1 << 20)
    server = endless(status)
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}"))
    with pytest.raises(AgentError, match=r"more than|an event of over|watch .*HTTP 500"):
        CALLS[request_](Api(path))
    assert server.sent < SENT_AT_MOST


@pytest.mark.parametrize(
    "ask",
    [
        lambda api: list(list_objects(lambda: Api(api), "/a", 1 << 20)),
        lambda api: ApiServer(api).published("a"),
    ],
    ids=["objects", "slices"],
)
def test_an_endless_list_is_refused(
    endless: Callable[[], Endless], tmp_path: Path, ask: Callable[[Path], object]
) -> None:
    server = endless()
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}"))
    with pytest.raises(AgentError, match=r"the answer has more than . MiB — see what answers"):
        ask(path)
    assert server.sent < SENT_AT_MOST


@pytest.mark.parametrize("page", ["configz", "metrics"])
def test_an_endless_answer_of_the_kubelet_is_refused(
    endless: Callable[[], Endless], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    class Plain(HTTPConnection):
        """In place of a connection with TLS, whose tests are those of the kubelet's address."""

        def __init__(self, host: str, port: int, **_: object) -> None:
            super().__init__(host, port)

    class NoTls:
        def wrap_socket(self, line: Any, **_: object) -> Any:
            return line

    monkeypatch.setattr(kubelet_api, "HTTPSConnection", Plain)
    monkeypatch.setattr("nodetopo.probes.kubelet.api.ssl.SSLContext", lambda _: NoTls())
    (tmp_path / "token").write_text("a.b\n")
    server = endless()
    url = f"https://127.0.0.1:{server.server_port}"
    api = KubeletApi(url=url, token_file=tmp_path / "token", insecure=True)
    with pytest.raises(UnreadableError, match=f"give /{page}: the answer has more than"):
        getattr(api, page)()
    assert server.sent < SENT_AT_MOST


def test_an_endless_answer_of_the_daemon_is_refused(
    endless: Callable[[], Endless], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = endless()
    address = f"127.0.0.1:{server.server_port}"
    monkeypatch.setattr(support, "settings", lambda _: Namespace(metrics_address=address))
    with pytest.raises(AgentError, match=f"no answer from {address}: the answer has more than 4"):
        support._served(Namespace(), "/metrics", TextScrubber(Substitutes()), is_of_node=True)
    assert server.sent < SENT_AT_MOST


def test_a_compressed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b'{"a": "' + b" " * (1 << 20) + b'"}')
    answer = Packed(io.BytesIO(packed), {"Content-Encoding": "gzip"}, 200, preload_content=False)
    assert len(body_of(answer, 1 << 16, 60)) == len(packed)


class Drip:
    """An answer in pieces, each of which takes a second of its clock; byte by byte, without end."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, pieces: Iterable[bytes] = repeat(b" ")) -> None:
        self.seconds = 0.0
        self._pieces = iter(pieces)

    def read1(self, _size: int, **_: object) -> bytes:
        """Return the next piece."""
        self.seconds += 1
        return next(self._pieces, b"")

    def close(self) -> None:
        """Do nothing."""

    release_conn = close


def test_an_answer_that_comes_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    drip = Drip()
    monkeypatch.setattr("nodetopo.formats.responses.time.monotonic", lambda: drip.seconds)
    with pytest.raises(EndlessError, match="no whole answer in 10 s"):
        body_of(drip, 1 << 20, 10)
    assert drip.seconds == 11


LISTS: dict[str, Callable[[Api], object]] = {
    "metadata": lambda api: list(list_metadata(lambda: api, "/a", {})),
    "objects": lambda api: list(list_objects(lambda: api, "/a")),
    "daemon": lambda api: list(list_objects(lambda: api, "/a", MAX_LIST)),
}


@pytest.mark.parametrize(
    ("name", "piece", "problem"),
    [
        ("metadata", MEBIBYTE, None),
        ("objects", MEBIBYTE, None),
        ("objects", MEBIBYTE[: LEAST_RATE // 2], r"no whole answer in 19\.5 s"),
        ("objects", b" ", "no whole answer in 10 s"),
        ("daemon", MEBIBYTE[: LEAST_RATE // 2], "no whole answer in 10 s"),
    ],
)
def test_a_page_of_a_command_may_take_as_long_as_it_flows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, piece: bytes, problem: str | None
) -> None:
    drip = Drip([b'{"items": []', *[piece] * 40, b"}"])
    monkeypatch.setattr("nodetopo.formats.responses.time.monotonic", lambda: drip.seconds)
    monkeypatch.setattr(Api, "_request", lambda *_: drip)
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig("http://127.0.0.1:1"))
    with nullcontext() if problem is None else pytest.raises(AgentError, match=problem):
        assert LISTS[name](Api(path)) == []


@pytest.fixture
def huge() -> Iterator[Path]:
    """Return the socket of a gRPC server that answers everything with 17 MiB."""
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:
            # A device's name, then a field of an unknown number, which every message may have.
            answer = (
                b"\x0a\x07\x0a\x05GPU-0\xfa\x3f"
                + bytes([0x80, 0x80, 0x80, 0x08 | 0x80, 0x00])
                + MEBIBYTE * 17
            )
            if details.method.endswith("ListAndWatch"):
                return stream(lambda _request, _context: iter([answer]))
            return unary(lambda _request, _context: answer)

    with (
        TemporaryDirectory(prefix="nodetopo-") as directory,
        ThreadPoolExecutor(2) as threads,
    ):
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((Handlers(),))
        server.add_insecure_port(f"unix://{directory}/kubelet.sock")
        server.start()
        yield Path(directory, "kubelet.sock")
        server.stop(None).wait()


def test_a_huge_message_of_the_kubelet_is_refused(huge: Path) -> None:
    with (
        closing(PodResources(huge, timeout_s=60.0)) as kubelet,
        pytest.raises(UnreadableError, match=r"RESOURCE_EXHAUSTED.*larger than max"),
    ):
        kubelet.assigned()
    with pytest.raises(RegistrationError, match=r"RESOURCE_EXHAUSTED.*larger than max"):
        RegistrationClient(huge, 60.0).register("a/b", "c.sock")


def test_a_huge_message_of_another_plugin_is_no_answer(huge: Path) -> None:
    assert not conflict.offers(huge, {"GPU-0"}, 60.0)


def test_no_other_code_reads_what_a_server_answers() -> None:
    clients: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = getattr(node, "attr", getattr(node, "module", getattr(node, "id", "")))
            if name in ("read1", "getresponse", "urlopen", "urllib3", "insecure_channel"):
                clients.setdefault(name, set()).add(str(path.relative_to(PACKAGE)))
    assert clients == {
        "read1": {"formats/responses.py"},
        "getresponse": {"cli/support.py", "probes/kubelet/api.py"},
        "urllib3": {"kubeapi/access.py", "kubeapi/client.py", "kubeapi/verification.py"},
        "insecure_channel": {
            "deviceplugin/conflict.py",
            "deviceplugin/fake_kubelet.py",
            "deviceplugin/registration.py",
            "probes/kubelet/podresources.py",
        },
    }
