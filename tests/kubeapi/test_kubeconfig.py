"""Plain kubeconfigs are read without the kubernetes package; all others are left to it."""

import base64
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from urllib3.util.ssl_ import create_urllib3_context

from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi import access as access_module
from nodetopo.kubeapi.client import Api
from nodetopo.kubeapi.kubeconfig import plain

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0


class Certificates:
    """A certificate authority in *home*, with a server of 127.0.0.1 and a client."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.authority = home / "ca.crt"
        self._openssl("req", "-x509", *self._key("ca"), "-subj", "/CN=authority")
        for name in ("server", "client"):
            self._openssl(
                *("req", "-x509", *self._key(name), "-subj", f"/CN={name}"),
                *("-CA", str(self.authority), "-CAkey", str(home / "ca.key")),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
                *("-addext", "basicConstraints=critical,CA:FALSE"),
            )

    def file(self, name: str) -> Path:
        """Return the path of ``server.crt``, ``client.key`` and the like."""
        return self._home / name

    def _key(self, name: str) -> tuple[str, ...]:
        key, certificate = str(self._home / f"{name}.key"), str(self._home / f"{name}.crt")
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
        return (*kind, "-keyout", key, "-out", certificate)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing of this machine decide how the server is reached."""
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)

    own, by_package = threading.current_thread(), access_module._by_package

    def fail(*given: Any, **more: Any) -> Any:
        if threading.current_thread() is not own:  # a daemon's watch that an earlier test has left
            return by_package(*given, **more)
        raise AssertionError("left to the package")

    monkeypatch.setattr(access_module, "_by_package", fail)


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let contexts be as Python 3.13 and urllib3 make them there."""

    def strictly(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
        def made(*arguments: Any, **more: Any) -> ssl.SSLContext:
            context = make(*arguments, **more)
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            return context

        return made

    monkeypatch.setattr(ssl, "create_default_context", strictly(ssl.create_default_context))
    for module in ("nodetopo.kubeapi.verification", "urllib3.connection"):
        name = f"{module}.create_urllib3_context"
        monkeypatch.setattr(name, strictly(create_urllib3_context))


@contextmanager
def serving(certificates: Certificates) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Run a server that wants no more than it gets; yield its URL, and who has asked it."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            peer = self.connection.getpeercert() or {}
            subject = dict(part[0] for part in peer.get("subject", ()))
            asked.append((self.headers.get("Authorization", ""), subject.get("commonName", "")))
            body = b'{"kind": "Node"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.authority)
    context.load_cert_chain(certificates.file("server.crt"), certificates.file("server.key"))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as Kubernetes' own server
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(TIMEOUT_S)


def written(home: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], **more: Any) -> Path:
    """Return a kubeconfig in *home* with one context."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
        **more,
    }
    path = home / "kubeconfig"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("authority", ["file", "data"])
@pytest.mark.parametrize("user", ["token", "token file", "certificate", "certificate data", "none"])
def test_a_server_is_asked_by_a_plain_kubeconfig(
    authority: str, user: str, certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    crt, key = certificates.file("client.crt"), certificates.file("client.key")
    users = {
        "token": ({"token": "t"}, ("Bearer t", "")),
        "token file": ({"tokenFile": "token"}, ("Bearer from-file", "")),
        "certificate": (
            {"client-certificate": str(crt), "client-key": str(key)},
            ("", "client"),
        ),
        "certificate data": (
            {"client-certificate-data": encoded(crt), "client-key-data": encoded(key)},
            ("", "client"),
        ),
        "none": ({}, ("", "")),
    }
    trust = {"certificate-authority-data": encoded(certificates.authority)}
    if authority == "file":
        trust = {"certificate-authority": str(certificates.authority)}
    given, expected = users[user]
    with serving(certificates) as (url, asked):
        api = Api(written(tmp_path, {"server": url, **trust}, given))
        assert api.get("/api/v1/nodes/n", {}).body == {"kind": "Node"}
    assert asked == [expected]


def test_a_server_of_another_authority_is_not_trusted(
    certificates: Certificates, tmp_path: Path
) -> None:
    other = Certificates(tmp_path)
    with serving(certificates) as (url, asked):
        cluster = {"server": url, "certificate-authority": str(other.authority)}
        with pytest.raises(ApiUnavailable, match="certificate verify failed"):
            Api(written(tmp_path, cluster, {"token": "t"})).get("/", {})
    assert asked == []


def test_an_authority_that_was_replaced_is_not_trusted_any_more(
    certificates: Certificates, tmp_path: Path
) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(certificates.authority.read_bytes())
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    with serving(certificates) as (url, asked):
        cluster = {"server": url, "certificate-authority": str(authority)}
        api = Api(written(tmp_path, cluster, {"token": "t"}))
        assert api.get("/", {}).status == 200
        authority.write_bytes(other.authority.read_bytes())
        with pytest.raises(ApiUnavailable, match="certificate verify failed"):
            api.get("/", {})
    assert len(asked) == 1


def test_a_token_file_is_read_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    found = plain(written(tmp_path, {"server": "http://a"}, {"tokenFile": str(token)}), None)
    assert found is not None
    assert found.credentials() == {"authorization": "Bearer one"}
    token.write_text("two")
    assert found.credentials() == {"authorization": "Bearer two"}
    token.unlink()
    with pytest.raises(ApiUnavailable, match="No such file"):
        found.credentials()


def test_a_context_is_chosen_by_name(tmp_path: Path) -> None:
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("here", "there")
    ]
    file = written(tmp_path, {"server": "http://a/path/"}, {}, contexts=contexts)
    assert plain(file, "elsewhere") is None
    found = plain(file, "there")
    assert found is not None
    assert (found.host, found.credentials()) == ("http://a/path", {})


HTTP = {"server": "http://a"}
ODD: tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("plugin", HTTP, {"exec": {"command": "aws"}}),
    ("provider", HTTP, {"auth-provider": {"name": "gcp"}}),
    ("password", HTTP, {"username": "u", "password": "p"}),
    ("another name", HTTP, {"token": "t", "as": "somebody"}),
    ("two tokens", HTTP, {"token": "t", "tokenFile": "kubeconfig"}),
    ("a token of two lines", HTTP, {"token": "t\nX: y"}),
    ("a number", HTTP, {"token": 7}),
    ("no token file", HTTP, {"tokenFile": "none"}),
    ("proxy", {**HTTP, "proxy-url": "http://p"}, {}),
    ("no server", {}, {}),
    ("no scheme", {"server": "a:6443"}, {}),
    ("not verified", {"server": "https://a", "insecure-skip-tls-verify": True}, {}),
    ("no authority", {"server": "https://a"}, {}),
    ("another server name", {"server": "https://a", "tls-server-name": "b"}, {}),
    ("authority not there", {"server": "https://a", "certificate-authority": "none"}, {}),
    ("authority no text", {"server": "https://a", "certificate-authority-data": "?"}, {}),
    (
        "key without certificate",
        {"server": "https://a", "certificate-authority": "kubeconfig"},
        {"client-key": "kubeconfig"},
    ),
    (
        "certificate that is none",
        {"server": "https://a", "certificate-authority": "kubeconfig"},
        {"client-certificate-data": "eA==", "client-key-data": "eA=="},
    ),
)


@pytest.mark.parametrize(("cluster", "user"), [it[1:] for it in ODD], ids=[it[0] for it in ODD])
def test_what_is_not_plain_is_left_to_the_package(
    cluster: Mapping[str, Any], user: Mapping[str, Any], tmp_path: Path
) -> None:
    assert plain(written(tmp_path, cluster, user), None) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "a: b\n---\nc: d", "clusters: 7", "contexts: [7]", "x" * (1 << 21), "\xff"],
    ids=["empty", "list", "broken", "two", "number", "entry", "huge", "no text"],
)
def test_a_file_that_is_no_kubeconfig_is_left_to_the_package(text: str, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(text.encode("latin-1"))
    assert plain(file, None) is None
    assert plain(tmp_path, None) is None
    assert plain(tmp_path / "none", None) is None


def test_a_plain_kubeconfig_needs_no_kubernetes_package(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from nodetopo.kubeapi.client import Api\n"
        f"print(Api(Path({str(written(tmp_path, HTTP, {'token': 't'}))!r})).host)\n"
        "print('kubernetes' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert shown.stdout.split() == ["http://a", "False"]
