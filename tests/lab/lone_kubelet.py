"""A real kubelet without a cluster, started on files and flags to see what it makes of them."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodetopo.errors import UnreadableError
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.probes.kubelet.api import KubeletApi
from nodetopo.probes.kubelet.config import read_kubelet_settings
from nodetopo.tools.capture.archive import unpack
from tests.lab import namespace
from tests.lab.build import binaries
from tests.lab.cluster import MACHINES, run_parent
from tests.lab.control_plane import free_port
from tests.lab.processes import Processes, Program
from tests.lab.runtime import Runtime
from tests.lab.waiting import wait_for

SHAPE = "h100x8-nvswitch-2numa-8cx7"
PROCESS = "7"
"""The id under which the kubelet is shown to our reader."""


class LoneKubelet:
    """A machine on which one kubelet after another is started; ``close`` ends the last one."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="nt-", dir=run_parent()))
        self.host = self.home / "host"
        self.port = free_port()
        self._programs = binaries()
        self._processes = Processes(self.home)
        self._runtime = Runtime("lone", self.home, self._programs / "fakecri", self._processes)
        self._kubelet: Program | None = None
        self._words: list[str] = []
        unpack((MACHINES / SHAPE / "sysfs.txt").read_text("utf-8"), self.host)
        self._token = self.home / "token"
        self._token.write_text("whoever", "utf-8")
        self._runtime.start()

    @property
    def api(self) -> KubeletApi:
        """Our client of the kubelet that runs, which signed its certificate itself."""
        url = f"https://127.0.0.1:{self.port}"
        return KubeletApi(url=url, token_file=self._token, insecure=True)

    @property
    def certificate(self) -> Path:
        """What the kubelet shows, by its path outside the namespace."""
        return self.directory / "pki" / "kubelet.crt"

    def start(self, files: Mapping[str, str], flags: Sequence[str]) -> bool:
        """Start a kubelet on *files* below ``/var/lib/kubelet``; return whether it serves.

        A text that begins with ``-> `` is a symbolic link.
        """
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        for name, text in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                path.symlink_to(text.removeprefix("-> "))
            else:
                path.write_text(text, "utf-8")
        self._words = [*flags, *self._surroundings()]
        return self.start_again()

    def start_again(self) -> bool:
        """Start a kubelet on what the last one left; return whether it serves."""
        self.stop()
        words = self._words
        self._registry.unlink(missing_ok=True)
        self._show(["kubelet", *words])
        self._kubelet = self._processes.start(
            "lone-kubelet",
            [self.home / "bin" / "kubelet", *words],
            prefix=namespace.entering(namespace.required_flags(), self.host, self._programs),
            directory=self._empty(),
        )
        return wait_for("the kubelet serves or ends", self._outcome) == "serves"

    def our_view(self) -> KubeletSettings:
        """Return what we make of the files and flags."""
        settings, issues = read_kubelet_settings(self.host, self.host / "proc")
        assert settings is not None, issues
        return settings

    def stop(self) -> None:
        """End the kubelet, if one runs."""
        if self._kubelet is not None:
            self._processes.kill(self._kubelet)

    def close(self) -> None:
        """End everything and remove the machine."""
        self._processes.stop_all()
        shutil.rmtree(self.home, ignore_errors=True)

    def log(self) -> str:
        """Return what the kubelets wrote."""
        return (self._processes.log_dir / "lone-kubelet.log").read_text("utf-8", "replace")

    @property
    def directory(self) -> Path:
        """``/var/lib/kubelet``, by its path outside the namespace."""
        return self.host / "var" / "lib" / "kubelet"

    @property
    def _registry(self) -> Path:
        """The socket for device plugins, which a kubelet makes once all its managers have started.

        Its server answers some 0.1 s before, and what is wrong with a state file ends it between.
        """
        return self.directory / "device-plugins" / "kubelet.sock"

    def _outcome(self) -> str | None:
        assert self._kubelet is not None
        if not self._kubelet.is_running:
            return "ended"
        if not self._registry.exists():
            return None
        try:
            self.api.configz()
        except UnreadableError:
            return None
        return "serves"

    def _show(self, words: Sequence[str]) -> None:
        process = self.host / "proc" / PROCESS
        process.mkdir(exist_ok=True)
        (process / "cmdline").write_bytes("".join(f"{word}\0" for word in words).encode())

    def _surroundings(self) -> tuple[str, ...]:
        """Return the flags that let a kubelet live here; none is among those that we read."""
        return (
            f"--port={self.port}",
            "--read-only-port=0",  # else 10255, which another kubelet may have
            "--address=127.0.0.1",
            "--healthz-port=0",
            "--anonymous-auth=true",
            "--authentication-token-webhook=false",
            "--authorization-mode=AlwaysAllow",
            f"--container-runtime-endpoint=unix://{self._runtime.socket}",
            "--volume-plugin-dir=/var/lib/kubelet/volume-plugins",
            "--cert-dir=/var/lib/kubelet/pki",
            "--resolv-conf=",
            "--fail-cgroupv1=false",
            "--cgroups-per-qos=false",
            "--local-storage-capacity-isolation=false",
            "--make-iptables-util-chains=false",
            "--hostname-override=lone",
        )

    def _empty(self) -> Path:
        directory = self.home / "empty"
        directory.mkdir(exist_ok=True)
        return directory
