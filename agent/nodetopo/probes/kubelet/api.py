"""The kubelet's own address: ``/configz`` and ``/metrics``.

Asked directly, with the account's token: ``get`` on ``nodes/configz`` and ``nodes/metrics`` is
enough (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/, since 1.33).
By way of the API server it would take ``nodes/proxy``, which allows running programs in pods too.
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from threading import Timer
from typing import Self
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.errors import AgentError, DecodeError, UnreadableError
from nodetopo.formats.responses import EndlessError, body_of
from nodetopo.formats.safe import load_json
from nodetopo.model.kubelet import CONFIGZ, KubeletSettings
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.host import service_account
from nodetopo.probes.host.service_account import read_token
from nodetopo.probes.kubelet.fields import settings_of

PORT = 10250
"""Where the kubelet serves (kubernetes pkg/cluster/ports/ports.go)."""

TIMEOUT_S = 10.0
"""Longest time for one answer, from connecting to the last byte."""

MAX_CONFIGZ_BYTES = 1 << 20
"""A kubelet's configuration is under 10 KiB."""

MAX_METRICS_BYTES = 16 << 20
"""The kubelet's own metrics are under 1 MiB on a node with 250 pods."""

_REFUSALS = {
    401: (
        "it does not take the token",
        "see that the kubelet accepts tokens (authentication.webhook.enabled: true)",
    ),
    403: (
        "the account may not get {right}",
        "grant get on {right} to the agent's account, with Kubernetes 1.33 or newer",
    ),
    404: (
        "it does not serve that",
        "see that the kubelet serves it (enableDebuggingHandlers: true)",
    ),
}
"""HTTP status → meaning and cure; ``right`` is such as ``nodes/configz``."""

COMPONENT = "kubeletconfig"
"""The name of its configuration in the answer (cmd/kubelet/app/server.go, initConfigz)."""

_ASK = "ask the kubelet's own address for /configz"

_ALWAYS_THERE = "cpuManagerPolicy"
"""A field that defaulting fills, and that has been in the answer since Kubernetes 1.10."""

AGAIN_S = 86_400.0
"""Longest validity of an answer, in case a restart of the kubelet goes unnoticed: it reads its
settings at its start, and creates its socket then. For each request it checks our permission with
the API server.
"""

RETRY_S = 300.0
"""Pause after a question that was not answered, mostly for lack of a right."""


class KubeletApi(Struct, frozen=True, kw_only=True):
    """The kubelet at *url*, such as ``https://10.0.0.7:10250``."""

    url: str
    token_file: Path  # read before each question, since tokens are renewed
    # The authority of the kubelet's certificate; None for the system's authorities.
    ca_file: Path | None = None
    # Whether to skip verification of the certificate, which is self-signed unless
    # ``serverTLSBootstrap`` is on; an impostor then gets the token.
    insecure: bool = False
    timeout_s: float = TIMEOUT_S

    def configz(self) -> str:
        """Return the text of ``/configz``."""
        return self._get("/configz", MAX_CONFIGZ_BYTES)

    def metrics(self) -> str:
        """Return the text of ``/metrics``."""
        return self._get("/metrics", MAX_METRICS_BYTES)

    def _get(self, path: str, limit: int) -> str:
        try:
            address = urlsplit(self.url)
            is_usable = address.scheme == "https" and address.hostname and address.port != 0
        except ValueError:
            is_usable = False
        if not is_usable:
            raise UnreadableError(
                f"not an address of a kubelet: {self.url!r}", f"write https://<address>:{PORT}"
            )
        headers = {"Authorization": f"Bearer {read_token(self.token_file)}"}
        try:
            with self._connection(address) as (connection, deadline):
                connection.request("GET", path, headers=headers)
                with closing(connection.getresponse()) as answer:
                    body = body_of(answer, limit, self.timeout_s)
                deadline.check()
        except ssl.SSLCertVerificationError as error:
            raise self._unreadable(
                path,
                f"its certificate is not trusted: {error.verify_message}",
                "name the authority with --kubelet-ca-file, or take any certificate with "
                "--kubelet-insecure-tls",
            ) from error
        except EndlessError as error:
            raise self._unreadable(path, str(error), "see what serves there") from error
        except (OSError, HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise self._unreadable(path, reason, "see whether the kubelet runs") from error
        if answer.status != 200:
            meaning, cure = _REFUSALS.get(answer.status, ("", "see its log"))
            right = f"nodes{path}"
            reason = f"HTTP status {answer.status}{': ' * bool(meaning)}{meaning}"
            raise self._unreadable(path, reason.format(right=right), cure.format(right=right))
        if answer.length:
            raise self._unreadable(path, "the answer ended early", "see whether the kubelet runs")
        return body.decode("utf-8", "replace")

    def _unreadable(self, path: str, reason: str, cure: str) -> UnreadableError:
        return UnreadableError(f"the kubelet at {self.url} does not give {path}: {reason}", cure)

    @contextmanager
    def _connection(self, address: SplitResult) -> Iterator[tuple[HTTPSConnection, "_Deadline"]]:
        """Connect, and shut the connection down at the deadline, regardless of its state."""
        host, port = address.hostname or "", address.port or PORT
        if self.insecure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            try:
                context = ssl.create_default_context(cafile=self.ca_file)
                # Python 3.13 wants more of an authority than Kubernetes' own clients do.
                context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            except (OSError, ssl.SSLError) as error:
                raise UnreadableError(
                    f"cannot read the certificates of {self.ca_file}: {error.strerror or error}",
                    "name the authority of the kubelets with --kubelet-ca-file",
                ) from error
        line = socket.create_connection((host, port), self.timeout_s)
        with (
            _Deadline(line.dup(), self.timeout_s) as deadline,
            deadline.translating(),
            closing(HTTPSConnection(host, port, context=context)) as connection,
        ):
            connection.sock = context.wrap_socket(line, server_hostname=host)
            yield connection, deadline


class _Deadline:
    """Shuts a connection down after a time: timeouts of sockets start again with each byte."""

    def __init__(self, line: socket.socket, timeout_s: float) -> None:
        self._line = line
        self._timeout_s = timeout_s
        self._timer = Timer(timeout_s, self._shut_down)
        self._is_late = False

    def __enter__(self) -> Self:
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._line.close()

    def check(self) -> None:
        """Raise TimeoutError if the connection was shut down."""
        if self._is_late:
            raise TimeoutError(f"no whole answer in {self._timeout_s:g} s")

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Raise TimeoutError for errors that the shutdown caused."""
        try:
            yield
        except (OSError, HTTPException):
            self.check()
            raise

    def _shut_down(self) -> None:
        self._is_late = True
        try:
            self._line.shutdown(socket.SHUT_RDWR)
        except OSError:  # it ended by itself
            return


def kubelet_at(url: str, ca_file: Path | None, *, insecure: bool) -> KubeletApi:
    """Return the kubelet at *url*, for the service account of the own pod."""
    return KubeletApi(
        url=url,
        token_file=service_account.DIRECTORY / "token",
        ca_file=ca_file or service_account.DIRECTORY / "ca.crt",
        insecure=insecure,
    )


def with_running(snapshot: Snapshot, running: KubeletSettings | None) -> Snapshot:
    """Return *snapshot* with the running kubelet's settings, if known.

    Facts known only from files and flags are kept: the kubelet's directories, its distribution, its
    version.
    """
    on_disk = snapshot.kubelet_on_disk or snapshot.kubelet
    if running is None or on_disk is None:
        return replace(snapshot, kubelet=running or snapshot.kubelet, kubelet_on_disk=on_disk)
    known = replace(
        running,
        embedded_in=on_disk.embedded_in,
        root_directory=on_disk.root_directory,
        version=running.version or on_disk.version,
    )
    return replace(snapshot, kubelet=known, kubelet_on_disk=on_disk)


def settings_from_configz(text: str) -> KubeletSettings:
    """Return the settings in the answer of a kubelet's ``/configz``.

    It is ``{"kubeletconfig": {…}}``, the KubeletConfiguration after files, drop-ins, flags and
    defaults (k8s.io/component-base v0.36.3 configz/configz.go). Since 1.36 it carries kind and
    apiVersion. Flags without a field, such as ``--root-dir``, are missing; of feature gates only
    set ones are listed.

    Raises:
        DecodeError: *text* has another form.
    """
    try:
        answer = load_json(text)
    except ValueError as error:
        raise DecodeError("", str(error), _ASK) from None
    config = answer.get(COMPONENT) if isinstance(answer, dict) else None
    if not isinstance(config, dict) or _ALWAYS_THERE not in config:
        raise DecodeError(COMPONENT, "no configuration of a kubelet", _ASK)
    try:
        return settings_of(config, CONFIGZ)
    except DecodeError as error:
        raise error.under(COMPONENT) from None


class RunningKubelet:
    """Asks one kubelet for its settings as seldom as they can change; for one thread.

    Args:
        configz: asks; raises :class:`~nodetopo.errors.AgentError`.
        socket: a socket that the kubelet creates whenever it starts.
        clock: monotonic seconds.
    """

    def __init__(
        self, configz: Callable[[], str], socket: Path, *, clock: Callable[[], float]
    ) -> None:
        """Ask nothing yet."""
        self._configz = configz
        self._socket = socket
        self._clock = clock
        self._start: tuple[int, int] | None = None
        self._due = float("-inf")
        self._answer: KubeletSettings | None = None
        self._problem: str | None = None

    def put_into(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the kubelet's last answer, or an issue without one.

        A restarted kubelet may have other settings: until it answers, its files' settings count.
        """
        try:
            status = self._socket.stat()
            start: tuple[int, int] | None = (status.st_ino, status.st_ctime_ns)
        except OSError:
            start = self._start  # gone for the seconds that a start takes
        if start != self._start:
            self._start, self._answer, self._due = start, None, float("-inf")
        if self._clock() >= self._due:
            try:
                self._answer = settings_from_configz(self._configz())
                self._problem, self._due = None, self._clock() + AGAIN_S
            except AgentError as error:
                self._problem, self._due = error.cause, self._clock() + RETRY_S
        known = with_running(snapshot, self._answer)
        if self._problem is None:
            return known
        issue = ProbeIssue(probe="kubelet", subject="configz", reason=self._problem)
        return replace(known, issues=(*known.issues, issue))
