"""Asking a kubelet's own address, against servers that answer and servers that do not."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.errors import UnreadableError
from nodetopo.probes.kubelet import api as kubelet_api
from nodetopo.probes.kubelet.api import MAX_CONFIGZ_BYTES, KubeletApi
from tests.kubeapi.test_kubeconfig import Certificates

OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
Server = Callable[[ssl.SSLSocket], None]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and a certificate for 127.0.0.1 that vouches for itself."""
    home = tmp_path_factory.mktemp("certificate")
    key, certificate = home / "key.pem", home / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=kubelet"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    certificate.write_text(certificate.read_text() + key.read_text())
    return certificate


@pytest.fixture
def kubelet(certificate: Path, tmp_path: Path) -> Iterator[Callable[[Server], KubeletApi]]:
    """Return a function from what a server does with one client to our client of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listeners, threads = [], []
    token = tmp_path / "token"
    token.write_text("abc.def\n")

    def start(server: Server) -> KubeletApi:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threads.append(threading.Thread(target=_serve, args=(listener, context, server)))
        threads[-1].start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        return KubeletApi(url=url, token_file=token, ca_file=certificate, timeout_s=60.0)

    yield start
    for listener in listeners:
        listener.close()
    for thread in threads:
        thread.join()


def _serve(listener: socket.socket, context: ssl.SSLContext, server: Server) -> None:
    try:
        line, _ = listener.accept()
        with context.wrap_socket(line, server_side=True) as client:
            server(client)
    except OSError:
        return


def answering(answer: bytes, asked: list[bytes] | None = None) -> Server:
    def server(client: ssl.SSLSocket) -> None:
        request = client.recv(65536)
        if asked is not None:
            asked.append(request)
        client.sendall(answer)

    return server


def refused(api: KubeletApi) -> UnreadableError:
    with pytest.raises(UnreadableError) as caught:
        api.configz()
    return caught.value


def test_both_pages_are_asked_for_with_the_token(
    kubelet: Callable[[Server], KubeletApi],
) -> None:
    asked: list[bytes] = []
    assert kubelet(answering(OK % (2, b"{}"), asked)).configz() == "{}"
    assert kubelet(answering(OK % (2, b"ab"), asked)).metrics() == "ab"
    assert [request.split(b"\r\n")[0] for request in asked] == [
        b"GET /configz HTTP/1.1",
        b"GET /metrics HTTP/1.1",
    ]
    assert all(b"\r\nAuthorization: Bearer abc.def\r\n" in request for request in asked)


def test_a_certificate_of_an_unknown_authority_is_not_trusted(
    kubelet: Callable[[Server], KubeletApi],
) -> None:
    api = kubelet(answering(OK % (2, b"{}")))
    error = refused(replace(api, ca_file=None))
    assert "its certificate is not trusted" in error.cause
    assert "--kubelet-insecure-tls" in error.cure


def test_a_certificate_that_kubectl_takes_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without the extensions that Python 3.13 wants (``VERIFY_X509_STRICT``)."""
    made, signed = ssl.create_default_context, Certificates(tmp_path)

    def strictly(**more: Any) -> ssl.SSLContext:
        context = made(**more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strictly)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(signed.file("server.crt"), signed.file("server.key"))
    listener = socket.create_server(("127.0.0.1", 0))
    arguments = (listener, server, answering(OK % (2, b"{}")))
    thread = threading.Thread(target=_serve, args=arguments)
    thread.start()
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    (tmp_path / "token").write_text("t")
    try:
        token, authority = tmp_path / "token", signed.authority
        api = KubeletApi(url=url, token_file=token, ca_file=authority, timeout_s=60.0)
        assert api.configz() == "{}"
    finally:
        listener.close()
        thread.join()


def test_any_certificate_is_taken_on_request(kubelet: Callable[[Server], KubeletApi]) -> None:
    api = kubelet(answering(OK % (2, b"{}")))
    assert replace(api, ca_file=None, insecure=True).configz() == "{}"


@pytest.mark.parametrize(
    ("status", "cure"),
    [
        (401, "authentication.webhook.enabled"),
        (403, "get on nodes/configz"),
        (404, "enableDebuggingHandlers"),
        (302, "see its log"),
    ],
)
def test_a_refusal_has_a_cure(
    kubelet: Callable[[Server], KubeletApi], status: int, cure: str
) -> None:
    answer = f"HTTP/1.1 {status} No\r\nLocation: https://127.0.0.2/\r\nContent-Length: 0\r\n\r\n"
    error = refused(kubelet(answering(answer.encode())))
    assert f"HTTP status {status}" in error.cause
    assert cure in error.cure


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "SSH-2.0-OpenSSH"),
        (b"", "closed connection without response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "the answer ended early"),
        (OK % (MAX_CONFIGZ_BYTES + 1, b"x" * (MAX_CONFIGZ_BYTES + 1)), "more than 1 MiB"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "got more than 100 headers"),
    ],
    ids=range(5),
)
def test_an_incomplete_answer_is_refused(
    kubelet: Callable[[Server], KubeletApi], answer: bytes, reason: str
) -> None:
    assert reason in refused(kubelet(answering(answer))).cause


class Alarm:
    """A timer that rings when a test says so."""

    def __init__(self, seconds: float, ring: Callable[[], None]) -> None:
        self.seconds = seconds
        self.ring = ring
        self.is_set = False
        self.daemon = False

    def start(self) -> None:
        """Begin, in place of a thread."""
        self.is_set = True

    def cancel(self) -> None:
        """End."""

    join = cancel


def test_an_answer_that_comes_byte_by_byte_is_cut_off(
    kubelet: Callable[[Server], KubeletApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    alarms: list[Alarm] = []

    def timer(seconds: float, ring: Callable[[], None]) -> Alarm:
        alarms.append(Alarm(seconds, ring))
        return alarms[-1]

    def drip(client: ssl.SSLSocket) -> None:
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(20):
            client.sendall(b"x")
        alarms[0].ring()
        while True:
            client.sendall(b"x")

    monkeypatch.setattr(kubelet_api, "Timer", timer)
    error = refused(kubelet(drip))
    assert "no whole answer in 60 s" in error.cause
    assert [(alarm.seconds, alarm.is_set) for alarm in alarms] == [(60.0, True)]


def test_a_refused_connection_is_unreadable(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
        error = refused(KubeletApi(url=url, token_file=token, insecure=True))
    assert error.cause.startswith(f"the kubelet at {url} does not give /configz: ")
    assert "Connection refused" in error.cause


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:10255", "127.0.0.1:10250", "https://", "https://["]
)
def test_the_token_is_sent_to_https_addresses_only(url: str, tmp_path: Path) -> None:
    error = refused(KubeletApi(url=url, token_file=tmp_path / "none"))
    assert error.cause.startswith("not an address of a kubelet")


@pytest.mark.parametrize("content", ["", "two words", "a\r\nX-Evil: b", "é", "x" * 70_000])
def test_an_invalid_token_is_not_sent(tmp_path: Path, content: str) -> None:
    token = tmp_path / "token"
    token.write_text(content)
    error = refused(KubeletApi(url="https://127.0.0.1:1", token_file=token, insecure=True))
    assert error.cause == f"{token} holds no token"


def test_a_missing_token_is_unreadable(tmp_path: Path) -> None:
    error = refused(KubeletApi(url="https://127.0.0.1:1", token_file=tmp_path / "token"))
    assert error.cause.endswith("token: No such file or directory")


def test_an_invalid_authority_file_is_unreadable(tmp_path: Path) -> None:
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("abc")
    authority.write_text("no certificate")
    api = KubeletApi(url="https://127.0.0.1:1", token_file=token, ca_file=authority)
    assert refused(api).cause.startswith(f"cannot read the certificates of {authority}")
