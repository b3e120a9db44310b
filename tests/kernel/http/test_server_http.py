"""The server of metrics: how it is scraped, probed, started and closed."""

import http.client
import socket
import threading
from typing import ClassVar

import pytest
from structlog.testing import capture_logs

from nodetopo.errors import InputError
from nodetopo.kernel.http.server import STUCK_S, MetricsServer, Page, serve_metrics
from tests.kernel.http.scraped import (
    BROKEN,
    GPU0,
    NOTHING,
    Readings,
    connected,
    fetch,
    samples,
    served,
    with_health,
)
from tests.kernel.readings import readings, with_facts

TIMEOUT_S = 60.0


def test_a_scraper_that_prefers_openmetrics_gets_it() -> None:
    with served(NOTHING) as server:
        _, text = fetch(server.url, accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


def test_the_agent_is_alive_before_the_first_scan() -> None:
    with served(NOTHING) as server:
        assert fetch(server.url.replace("/metrics", "/healthz")) == (200, "ok\n")


def test_nothing_of_the_hardware_makes_the_agent_dead() -> None:
    broken = with_facts(
        with_health({GPU0: BROKEN}), not_ready="NvmlUnresponsive: it hangs", nvml_failures=99
    )
    with served(broken) as server:
        assert fetch(server.url.replace("/metrics", "/healthz")) == (200, "ok\n")


def test_a_fault_in_the_state_does_not_fail_healthz() -> None:
    def broken() -> Readings:
        raise AssertionError("asked for")

    server = serve_metrics("127.0.0.1:0", broken)
    try:
        assert fetch(server.url.replace("/metrics", "/healthz")) == (200, "ok\n")
    finally:
        server.close()


@pytest.mark.parametrize(
    ("age_s", "answer"),
    [
        (STUCK_S, (200, "ok\n")),
        (STUCK_S + 1, (503, "Stuck: the loop has not moved for 301 s\n")),
    ],
)
def test_an_agent_whose_loop_stands_still_is_dead(age_s: float, answer: tuple[int, str]) -> None:
    server = serve_metrics("127.0.0.1:0", lambda: NOTHING, heartbeat_age_s=lambda: age_s)
    try:
        assert fetch(server.url.replace("/metrics", "/healthz")) == answer
    finally:
        server.close()


def test_a_ready_agent_answers_ok() -> None:
    with served(NOTHING) as server:
        assert fetch(server.url.replace("/metrics", "/readyz")) == (200, "ok\n")
    assert samples(NOTHING, "nodetopo_ready") == {(): 1.0}


def test_an_agent_that_is_not_ready_gives_its_reasons() -> None:
    state = readings(not_ready="ResourceConflict: one — two\nNotRegistered: x")
    with served(state) as server:
        answer = fetch(server.url.replace("/metrics", "/readyz"))
    assert answer == (503, "ResourceConflict: one — two\nNotRegistered: x\n")
    assert samples(state, "nodetopo_ready") == {(): 0.0}


def test_other_paths_are_not_found() -> None:
    with served(NOTHING) as server:
        assert fetch(server.url.replace("/metrics", "/debug"))[0] == 404


def test_a_closed_server_frees_its_port() -> None:
    refusals = []
    for _ in range(5):  # another process may be quicker with the free port, but not every time
        server = serve_metrics("127.0.0.1:0", lambda: NOTHING)
        port = server.url.removesuffix("/metrics").rpartition(":")[2]
        server.close()
        try:
            serve_metrics(f"127.0.0.1:{port}", lambda: NOTHING).close()
        except InputError as error:
            refusals.append(error)
    assert len(refusals) < 5


def test_an_answer_that_hangs_keeps_the_end_from_nobody() -> None:
    begun, released = threading.Event(), threading.Event()

    def stuck() -> Readings:
        begun.set()
        released.wait(TIMEOUT_S)
        return NOTHING

    server = serve_metrics("127.0.0.1:0", stuck)
    with connected(server) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert begun.wait(TIMEOUT_S)
        server.close()
        assert client.recv(1) == b""
        released.set()


def test_an_address_in_use_is_named_with_the_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InputError, match=f"{address}.*--metrics-address"):
            serve_metrics(address, lambda: NOTHING)


@pytest.mark.parametrize("address", ["", "9430", "localhost", "localhost:", ":9430", "h:99999"])
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="not an address"):
        serve_metrics(address, lambda: NOTHING)


def test_an_address_in_brackets_is_taken_of_either_family() -> None:
    server = serve_metrics("[127.0.0.1]:0", lambda: NOTHING)
    server.close()
    assert server.url.startswith("http://127.0.0.1:")


class Shown:
    """The answer of a page."""

    content_type = "text/html"
    body = b"<p>here</p>"
    headers: ClassVar = {"X-Own": "yes"}


def _asked(method: str, path: str, page: Page | None) -> tuple[int, dict[str, str], bytes]:
    server = serve_metrics("127.0.0.1:0", lambda: NOTHING, page=page)
    try:
        host = server.url.split("/")[2]
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request(method, path)
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return found
    finally:
        server.close()


def test_a_page_answers_what_nothing_else_does() -> None:
    page = {"/": Shown(), "/metrics": Shown()}.get
    status, headers, body = _asked("GET", "/", page)
    assert (status, headers["X-Own"], body) == (200, "yes", Shown.body)
    assert _asked("GET", "/elsewhere", page)[0] == 404
    assert Shown.body not in _asked("GET", "/metrics", page)[2]


def test_without_a_page_there_is_none() -> None:
    assert _asked("GET", "/", None)[0] == 404


def test_head_has_the_headers_alone() -> None:
    status, headers, body = _asked("HEAD", "/", {"/": Shown()}.get)
    assert (status, headers["Content-Length"], body) == (200, str(len(Shown.body)), b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused(method: str) -> None:
    assert _asked(method, "/", {"/": Shown()}.get)[0] == 501


def _page_of(address: str, *, everywhere: bool = False) -> MetricsServer:
    page = {"/": Shown()}.get
    return serve_metrics(address, lambda: NOTHING, page=page, page_everywhere=everywhere)


def _at(server: MetricsServer, host: str, path: str) -> int:
    """Return the status of *path* on the port of *server*, but on *host*."""
    port = server.url.split("/")[2].rpartition(":")[2]
    return fetch(f"http://{host}:{port}{path}")[0]


def test_the_page_is_on_localhost_alone_and_the_rest_on_both() -> None:
    server = _page_of("127.0.0.2:0")  # stands for the address of a pod
    try:
        assert [_at(server, "127.0.0.2", path) for path in ("/", "/metrics", "/healthz")] == [
            404,
            200,
            200,
        ]
        assert [_at(server, "127.0.0.1", path) for path in ("/", "/metrics", "/readyz")] == 3 * [
            200
        ]
    finally:
        server.close()


def test_the_page_is_everywhere_where_that_is_asked_for() -> None:
    server = _page_of("127.0.0.2:0", everywhere=True)
    try:
        assert (_at(server, "127.0.0.2", "/"), _at(server, "127.0.0.1", "/")) == (200, 200)
    finally:
        server.close()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "127.0.0.1:0", "localhost:0"])
def test_localhost_is_served_beside_or_by_any_address(address: str) -> None:
    server = _page_of(address)
    try:
        assert _at(server, "127.0.0.1", "/") == 200
    finally:
        server.close()


def test_a_port_that_is_taken_on_localhost_is_served_elsewhere_and_told_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, capture_logs() as lines:
        server = _page_of(f"127.0.0.2:{taken.getsockname()[1]}")
        assert _at(server, "127.0.0.2", "/metrics") == 200
        server.close()
    warned = [line for line in lines if line["log_level"] == "warning"]
    assert [(line["event"], line["address"]) for line in warned] == [
        ("port not served on localhost", "127.0.0.1")
    ]
