"""Strangers' connections cost the metrics port little, and probes always get through."""

import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from nodetopo.kernel.http import connections as module
from nodetopo.kernel.http.connections import MOST, MOST_HEAD, MOST_WAITING
from nodetopo.kernel.http.server import MetricsServer, serve_metrics
from tests.deviceplugin.eventually import eventually
from tests.kernel.http.scraped import NOTHING, Readings, connected, fetch, served

HALF = b"GET /metrics HTTP/1.1\r\nX: "
SCRAPE = b"GET /metrics HTTP/1.0\r\n\r\n"
TIMEOUT_S = 120.0
ROOT = Path(__file__).parents[3]


@contextmanager
def many(server: MetricsServer, count: int, sent: bytes = HALF) -> Iterator[list[socket.socket]]:
    """Yield *count* connections that have each sent *sent*."""
    clients = []
    try:
        for _ in range(count):
            client = connected(server)
            client.sendall(sent)
            clients.append(client)
        yield clients
    finally:
        for client in clients:
            client.close()


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:  # it had sent more than was read
        return True


def count_of(server: MetricsServer) -> int:
    return server._connections.count


def probe(server: MetricsServer, path: str) -> tuple[int, str]:
    return fetch(server.url.replace("/metrics", path))


def test_the_oldest_half_request_makes_room_and_probes_are_answered() -> None:
    with served(NOTHING) as server, many(server, MOST + 5) as clients:
        assert all(is_closed(client) for client in clients[:5])
        assert eventually(lambda: count_of(server) == MOST)
        for path in ("/healthz", "/readyz"):
            assert probe(server, path) == (200, "ok\n")
        assert fetch(server.url)[0] == 200
        assert server._connections.refused["limit"] >= 5


def test_a_request_that_takes_too_long_is_closed_however_it_trickles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.3)
    with served(NOTHING) as server, connected(server) as client:
        client.sendall(HALF)
        client.settimeout(0.01)
        trickled = 0
        while trickled < 10_000:
            try:
                client.sendall(b"a")
                trickled += 1
                if client.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert trickled < 10_000
        assert eventually(lambda: count_of(server) == 0)
        assert server._connections.refused["deadline"] == 1


def test_a_client_that_does_not_take_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.3)

    class Large:
        content_type, body = "text/plain", b"x" * (64 << 20)
        headers: ClassVar[dict[str, str]] = {}

    server = serve_metrics("127.0.0.1:0", lambda: NOTHING, page=lambda _: Large())
    try:
        with connected(server) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert eventually(lambda: server._connections.refused["deadline"] == 1)
    finally:
        server.close()


def test_half_a_request_that_hangs_up_is_not_answered() -> None:
    asked = []

    def state() -> Readings:
        asked.append(1)
        return NOTHING

    server = serve_metrics("127.0.0.1:0", state)
    try:
        with connected(server) as client:
            client.sendall(HALF)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        assert asked == []
    finally:
        server.close()


def test_a_whole_request_is_answered_though_the_client_sends_no_more() -> None:
    with served(NOTHING) as server, connected(server) as client:
        client.sendall(SCRAPE)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(15) == b"HTTP/1.0 200 OK"


def test_one_answer_at_a_time_is_made_and_shared() -> None:
    lock, making, made, most = threading.Lock(), [0], [0], [0]
    first, go_on = threading.Event(), threading.Event()

    def state() -> Readings:
        with lock:
            making[0] += 1
            made[0] += 1
            most[0] = max(most[0], making[0])
        first.set()
        go_on.wait(TIMEOUT_S)
        with lock:
            making[0] -= 1
        return NOTHING

    server = serve_metrics("127.0.0.1:0", state)
    try:
        with connected(server) as begun:
            begun.sendall(SCRAPE)
            assert first.wait(TIMEOUT_S)
            with many(server, MOST_WAITING - 1, SCRAPE) as clients:
                assert eventually(lambda: _waiting(server) == MOST_WAITING)
                assert probe(server, "/healthz") == (200, "ok\n")
                with connected(server) as late:
                    late.sendall(SCRAPE)
                    assert late.recv(12) == b"HTTP/1.0 503"
                go_on.set()
                for client in (begun, *clients):
                    assert client.recv(15) == b"HTTP/1.0 200 OK"
        assert (made[0], most[0]) == (2, 1)
    finally:
        server.close()


def _waiting(server: MetricsServer) -> int:
    return sum(it.is_made for it in tuple(server._connections._open))


def test_a_readyz_that_hangs_keeps_healthz_from_nobody() -> None:
    go_on = threading.Event()

    def state() -> Readings:
        go_on.wait(TIMEOUT_S)
        return NOTHING

    server = serve_metrics("127.0.0.1:0", state)
    try:
        with many(server, 5, b"GET /readyz HTTP/1.0\r\n\r\n"), many(server, 5, SCRAPE):
            assert probe(server, "/healthz") == (200, "ok\n")
            go_on.set()
            assert probe(server, "/readyz") == (200, "ok\n")
    finally:
        server.close()


class Refused(threading.Thread):
    """A thread at the limit of processes."""

    def start(self) -> None:
        """Refuse, in Python's words for EAGAIN."""
        raise RuntimeError("can't start new thread")


def test_at_the_limit_of_threads_probes_get_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HURRY_S", 0.1)
    with served(NOTHING) as server:
        monkeypatch.setattr(module, "Thread", Refused)
        with many(server, 3):
            for path in ("/healthz", "/readyz"):
                assert probe(server, path) == (200, "ok\n")
        assert server._connections.refused["deadline"] >= 3
        # An answer that takes long would keep probes waiting.
        assert fetch(server.url)[0] == 503


def test_requests_that_share_an_answer_end_with_it_where_it_cannot_be_made() -> None:
    is_asked, may_fail = threading.Event(), threading.Event()

    def broken(_: module.Request) -> bytes:
        is_asked.set()
        may_fail.wait(TIMEOUT_S)
        raise MemoryError

    maker = module._Maker(broken, threading.Event())
    request = module.Request(head=SCRAPE, is_local=True)
    failed = list[type[BaseException]]()

    def ask() -> None:
        try:
            maker.answer(request)
        except MemoryError as error:
            failed.append(type(error))

    first = threading.Thread(target=ask)
    first.start()
    assert is_asked.wait(TIMEOUT_S)
    sharing = [threading.Thread(target=ask) for _ in range(3)]
    for thread in sharing:
        thread.start()
    may_fail.set()
    for thread in (first, *sharing):
        thread.join(TIMEOUT_S)
    assert failed == [MemoryError] * 4


def test_headers_without_an_end_are_refused() -> None:
    with served(NOTHING) as server, connected(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * MOST_HEAD)
        answer = client.recv(12)
    assert answer == b"HTTP/1.0 431"


def test_a_fault_of_ours_is_an_error_and_not_the_end() -> None:
    def broken() -> Readings:
        raise KeyError("of ours")

    server = serve_metrics("127.0.0.1:0", broken)
    try:
        for _ in range(2):
            assert fetch(server.url)[0] == 500
        assert probe(server, "/healthz") == (200, "ok\n")
    finally:
        server.close()


LAST_DESCRIPTORS = """
import os, resource, socket, sys, time
from nodetopo.kernel.http.server import serve_metrics
from tests.kernel.readings import readings
server = serve_metrics("127.0.0.1:0", readings)
port = int(server.url.split("/")[2].rpartition(":")[2])
clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
while server._connections.count < 2:
    time.sleep(0.01)
used = max(map(int, os.listdir("/proc/self/fd")))
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1 + int(sys.argv[1]), hard))
mine = []
def take_all():
    try:
        while True:
            mine.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
take_all()
def answer(client):
    client.settimeout(60)
    try:
        client.sendall(b"GET /healthz HTTP/1.0\\r\\n\\r\\n")
        return client.recv(15)
    except ConnectionError:
        return b""
print(answer(clients[0]))
while server._connections.count > 1:
    time.sleep(0.01)
take_all()
os.close(mine.pop())
late = socket.socket()  # takes the one descriptor that was left
late.connect(("127.0.0.1", port))
while not server._connections.refused["descriptors"]:
    time.sleep(0.01)
print(answer(clients[1]))
for descriptor in mine:
    os.close(descriptor)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
print(answer(late) or answer(socket.create_connection(("127.0.0.1", port))))
server.close()
"""


def test_without_descriptors_those_who_are_there_are_served_and_others_later() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAST_DESCRIPTORS, "8"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=ROOT,
        check=False,
    )
    ok = "b'HTTP/1.0 200 OK'"
    assert done.stdout.splitlines() == [ok, ok, ok], done.stderr


def test_no_connection_takes_the_last_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = 4, resource.RLIM_INFINITY  # fewer than are open
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    with served(NOTHING) as server:
        with connected(server) as client:
            assert is_closed(client)
        assert server._connections.refused["descriptors"] >= 1
        monkeypatch.undo()
        assert probe(server, "/healthz") == (200, "ok\n")
