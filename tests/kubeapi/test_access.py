"""The ways to the API server: a pod's service account, and the kubernetes package."""

import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi.access import access
from nodetopo.probes.host import service_account
from tests.kubeapi.fake_api_server import kubeconfig

ROOT = Path(__file__).parents[2]


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the account of the pod that this process seems to be."""
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(service_account, "DIRECTORY", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_text("certificate")
    return tmp_path


@pytest.mark.parametrize(
    ("host", "url"),
    [("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")],
)
def test_the_server_is_that_of_the_cluster(
    account: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    found = access(None)
    assert found.host == url
    assert found.pool.connection_pool_kw["ca_certs"] == str(account / "ca.crt")
    assert found.pool.connection_pool_kw["cert_reqs"] == "CERT_REQUIRED"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("by", ["account", "kubeconfig", "package"])
def test_a_server_that_is_gone_is_noticed_by_the_kernel(
    account: Path, monkeypatch: pytest.MonkeyPatch, by: str, scheme: str
) -> None:
    path = account / "kubeconfig"
    path.write_text(kubeconfig(f"{scheme}://127.0.0.1:1"))
    if by == "package":
        pytest.importorskip("kubernetes.config")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
    found = access(None if by == "account" else path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        pool = found.pool.connection_from_url(f"{scheme}://127.0.0.1:{server.getsockname()[1]}")
        with closing(pool._new_conn()._new_conn()) as line:
            assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, every, times = (
                line.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + every * times == 45
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_token_that_was_replaced_is_sent(account: Path) -> None:
    found = access(None)
    assert found.credentials() == {"authorization": "Bearer one"}
    (account / "token").write_text("two")
    assert found.credentials() == {"authorization": "Bearer two"}


def test_a_token_that_is_gone_is_named(account: Path) -> None:
    found = access(None)
    (account / "token").unlink()
    with pytest.raises(ApiUnavailable, match=r"service account token .*token: No such file"):
        found.credentials()


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda it: (it / "token").unlink(), "cannot read the service account token"),
        (lambda it: (it / "token").write_text(" \n"), "holds no token"),
        (lambda it: (it / "token").write_bytes(b"t\r\nX-Other: y"), "holds no token"),
        (lambda it: (it / "token").write_bytes(b"x" * 70_000), "holds no token"),
        (lambda it: (it / "ca.crt").unlink(), "cannot use the service account of this pod: .*ca"),
        (lambda it: (it / "ca.crt").write_text(""), "ca.crt is empty"),
    ],
    ids=["no token", "empty", "two lines", "huge", "no certificate", "empty certificate"],
)
def test_an_account_that_cannot_be_used_is_named(
    account: Path, spoil: Callable[[Path], None], problem: str
) -> None:
    spoil(account)
    with pytest.raises(ApiUnavailable, match=problem):
        access(None)


@pytest.mark.usefixtures("account")
def test_a_proxy_is_left_to_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    config = pytest.importorskip("kubernetes.config")
    asked = []

    def load(client_configuration: object) -> None:
        asked.append(client_configuration)
        raise config.ConfigException("no account")

    monkeypatch.setattr(config, "load_incluster_config", load)
    with pytest.raises(ApiUnavailable, match="service account of this pod: no account"):
        access(None)
    assert len(asked) == 1


def test_a_pod_needs_no_kubernetes_package(account: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from nodetopo.probes.host import service_account\n"
        f"service_account.DIRECTORY = Path({str(account)!r})\n"
        "from nodetopo.kubeapi.client import Api\n"
        "print(Api(None).host, 'kubernetes' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert shown.stdout.split() == ["https://10.0.0.1:6443", "False"]
