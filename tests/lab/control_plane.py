"""etcd, kube-apiserver and kube-scheduler, real ones, on 127.0.0.1."""

import errno
import random
import secrets
import socket
import urllib.error
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import yaml
from msgspec import Struct

from tests.lab import deployment
from tests.lab.api import Api, ApiError
from tests.lab.audit import Audit
from tests.lab.processes import Processes
from tests.lab.release import PINNED, Release
from tests.lab.waiting import LabFailure, tail, wait_for

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "resources": [{"group": "", "resources": ["nodes", "nodes/status"]}]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""Who read and wrote Node objects, and all that service accounts asked for, our agent's among
them; one JSON line each: the evidence for "no write"."""

_NO_CONTROLLERS = "ServiceAccount,TaintNodesByCondition"
"""Admission plugins that need the controller manager, which the lab does not run: without it
nothing would create default service accounts or take the not-ready taint off a node."""


_PORTS = range(20_000, 30_000)
"""Where servers of the lab listen. Linux gives connections, and whoever asks for any port, those
from 32768 on (ip_local_port_range): one of them could be gone before its server has started, or
while it is started anew."""

_taken: list[socket.socket] = []
"""Holds the names of the ports that were given out, until this process ends."""


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on, and that nobody else is given.

    Who takes a port holds an abstract unix socket of its name, which other processes see as far
    as they see the port: in the same network namespace.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        name = socket.socket(socket.AF_UNIX)
        with socket.socket() as listener:
            if _is_bound(name, f"\0nodetopo-lab-port-{port}") and _is_bound(
                listener, ("127.0.0.1", port)
            ):
                _taken.append(name)
                return port
        name.close()
    raise LabFailure(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")


def _is_bound(to: socket.socket, address: str | tuple[str, int]) -> bool:
    try:
        to.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


class Alpha(Struct, frozen=True, kw_only=True):
    """What of Kubernetes differs from its defaults.

    Attributes:
        gates: features to switch on, in the API server and in the scheduler.
        off: features to switch off in both.
        apis: to serve, as ``<group>/<version>``.
    """

    gates: Sequence[str] = ()
    off: Sequence[str] = ()
    apis: Sequence[str] = ()

    def gate_flags(self) -> tuple[str, ...]:
        """Return the flag of either program, or none."""
        switched = [*_switched(self.gates, "true"), *_switched(self.off, "false")]
        return (f"--feature-gates={','.join(switched)}",) if switched else ()

    def api_flags(self) -> tuple[str, ...]:
        """Return the flag of the API server, or none."""
        return (f"--runtime-config={','.join(_switched(self.apis, 'true'))}",) if self.apis else ()


def _switched(names: Sequence[str], value: str) -> Sequence[str]:
    return [f"{name}={value}" for name in names]


class ControlPlane:
    """The cluster without its nodes.

    Attributes:
        api: speaks as a cluster administrator.
        release: of Kubernetes.
    """

    api: Api

    def __init__(
        self,
        run_dir: Path,
        programs: Path,
        processes: Processes,
        alpha: Alpha | None = None,
        release: Release = PINNED,
    ) -> None:
        self._dir = run_dir
        self.release = release
        self._alpha = alpha or Alpha()
        self._programs = programs
        self._processes = processes
        self._tokens = {name: secrets.token_hex(16) for name in ("admin", "system:kube-scheduler")}
        self._agent_kubeconfig: Path | None = None
        self._audit_log = run_dir / "audit.jsonl"
        self._audit = Audit(self._audit_log)

    def start(self) -> None:
        """Start all three; return when the API server is ready to serve."""
        self._write_credentials()
        store = self._start_etcd()
        self._start_apiserver(store)
        self._start_scheduler()

    def start_claim_controllers(self) -> None:
        """Start what makes claims from templates, frees them, and evicts from tainted devices."""
        kubeconfig = self.write_kubeconfig("admin", self._tokens["admin"])
        self._processes.start("claims", [self._programs / "claims", kubeconfig])

    def write_kubeconfig(self, name: str, token: str) -> Path:
        """Write a kubeconfig that speaks with *token*; return its path."""
        cluster = {"server": self.api.url, "certificate-authority": str(self.api.authority)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
            "current-context": "lab",
        }
        path = self._dir / f"{name.rpartition(':')[2]}.kubeconfig"
        fresh = path.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(document), "utf-8")
        fresh.chmod(0o600)
        fresh.replace(path)  # another program may be reading the one before
        return path

    def agent_kubeconfig(self) -> Path:
        """Return a kubeconfig with the rights that ``deploy/daemonset`` gives our agent."""
        if self._agent_kubeconfig is None:
            documents = deployment.manifests()
            deployment.apply(self.api, documents)
            token = deployment.service_account_token(self.api, documents)
            self._agent_kubeconfig = self.write_kubeconfig("agent", token)
        return self._agent_kubeconfig

    def agent_verbs(self, node: str, since: str = "") -> tuple[str, ...]:
        """Return what the agent asked of the Node object, as :meth:`Audit.verbs` does."""
        return self._audit.verbs(node, since)

    def agent_requests(self, since: str = "") -> Counter[tuple[str, str]]:
        """Return what the agents of all nodes asked, as :meth:`Audit.requests` does."""
        return self._audit.requests(since)

    def _write_credentials(self) -> None:
        self._dir.joinpath("audit-policy.yaml").write_text(yaml.safe_dump(_AUDIT_POLICY), "utf-8")
        groups = {"admin": "system:masters"}
        rows = (
            f'{token},{user},{user},"{groups.get(user, "")}"'
            for user, token in self._tokens.items()
        )
        tokens = self._dir / "tokens.csv"
        tokens.write_text("\n".join(rows) + "\n", "utf-8")
        tokens.chmod(0o600)

    def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        program = self._processes.start(
            "etcd",
            [
                self._programs / "etcd",
                "--unsafe-no-fsync",
                f"--data-dir={self._dir / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
            ],
        )

        def listens() -> bool:
            program.check_running()
            with socket.socket() as caller:
                return caller.connect_ex(("127.0.0.1", int(client.rpartition(":")[2]))) == 0

        wait_for("etcd listens", listens, evidence=lambda: tail(program.log))
        return client

    def _start_apiserver(self, store: str) -> None:
        port = free_port()
        # The server writes a key and a chain (its certificate, its authority) there before it
        # reads the keys of service accounts, so that its own key can serve for them too.
        certificates = self._dir / "certs"
        program = self._processes.start(
            "kube-apiserver",
            [
                self._programs / "kube-apiserver",
                f"--etcd-servers={store}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={certificates}",
                f"--token-auth-file={self._dir / 'tokens.csv'}",
                "--authorization-mode=Node,RBAC",
                f"--disable-admission-plugins={_NO_CONTROLLERS}",
                "--service-cluster-ip-range=10.0.0.0/24",
                f"--service-account-key-file={certificates / 'apiserver.key'}",
                f"--service-account-signing-key-file={certificates / 'apiserver.key'}",
                "--service-account-issuer=https://lab.invalid",
                f"--audit-policy-file={self._dir / 'audit-policy.yaml'}",
                f"--audit-log-path={self._audit_log}",
                "--endpoint-reconciler-type=none",
                *self.release.flags(),
                *self._alpha.gate_flags(),
                *self._alpha.api_flags(),
            ],
        )
        authority = certificates / "apiserver.crt"
        self.api = Api(f"https://127.0.0.1:{port}", self._tokens["admin"], authority)

        def is_ready() -> bool:
            program.check_running()
            try:
                return authority.exists() and self.api.text("/readyz") == "ok"
            except (ApiError, urllib.error.URLError, OSError):
                return False

        log = program.log
        wait_for("the API server is ready", is_ready, evidence=lambda: tail(log))
        # It makes this one a moment later (pkg/controlplane/controller/systemnamespaces).
        wait_for(
            "there is a namespace",
            lambda: self.api.find("/api/v1/namespaces/default"),
            evidence=lambda: tail(log),
        )

    def _start_scheduler(self) -> None:
        user = "system:kube-scheduler"
        kubeconfig = self.write_kubeconfig(user, self._tokens[user])
        self._processes.start(
            "kube-scheduler",
            [
                self._programs / "kube-scheduler",
                f"--kubeconfig={kubeconfig}",
                "--leader-elect=false",
                "--secure-port=0",
                *self.release.flags(),
                *self._alpha.gate_flags(),
            ],
        )
