"""Kueue's controller manager as a process of the lab, without its web hooks and certificates."""

import urllib.error
import urllib.request
from pathlib import Path
from shutil import copyfile

import yaml

from tests.lab.api import Api, Object
from tests.lab.control_plane import free_port
from tests.lab.processes import Processes, Program
from tests.lab.waiting import tail, wait_for
from tests.nightly.build import KUEUE, programs
from tests.nightly.own_etc import with_etc

_CERTIFICATES = Path("kueue/metrics/certs")
"""Below ``/etc``: where Kueue looks for them if it does not make its own (cmd/kueue/main.go)."""


def start(api: Api, kubeconfig: Path, processes: Processes) -> Program:
    """Start the manager; return when it says that it is ready."""
    home = processes.log_dir.with_name(KUEUE)
    certificates = home / "etc" / _CERTIFICATES
    certificates.mkdir(parents=True)
    for name, source in (("tls.crt", "apiserver.crt"), ("tls.key", "apiserver.key")):
        copyfile(api.authority.parent / source, certificates / name)
    health = f"127.0.0.1:{free_port()}"
    configuration = home / "kueue.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(health, certificates)), "utf-8")
    program = processes.start(
        KUEUE,
        [programs("kueue") / KUEUE, f"--config={configuration}", "--zap-log-level=2"],
        prefix=with_etc(home / "etc", KUEUE),
        environment={"KUBECONFIG": str(kubeconfig)},
    )

    def is_ready() -> bool:
        program.check_running()
        return _answers(f"http://{health}/readyz")

    wait_for("Kueue is ready", is_ready, evidence=lambda: tail(program.log))
    return program


def _configuration(health: str, certificates: Path) -> Object:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": free_port(), "certDir": str(certificates)},
        # It would wait for a Secret, mounted by a kubelet, to hold what it made itself.
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
        # An API server of its own, on every address of the machine.
        "featureGates": {"VisibilityOnDemand": False},
    }


def _answers(url: str) -> bool:
    past_proxies = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with past_proxies.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
