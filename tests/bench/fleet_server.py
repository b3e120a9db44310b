"""etcd and the API server of a fleet, real ones, and what they have cost so far."""

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.request import urlopen

from msgspec import Struct

from tests.deploy.kustomize import render
from tests.lab.build import binaries
from tests.lab.control_plane import ControlPlane
from tests.lab.deployment import BASE
from tests.lab.granted import wait_granted
from tests.lab.processes import Processes, Program
from tests.lab.schedulers import objects

COMPONENTS = ("own-node", "flow-schema")
"""Of deploy/daemonset, made for large clusters."""

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Cost(Struct, frozen=True, kw_only=True):
    """What was spent, since the start or between two moments.

    Attributes:
        api_s, etcd_s: CPU time, seconds.
        node_writes: updates of Nodes that the API server sent to etcd.
        logged: bytes that etcd wrote to its log.
    """

    api_s: float
    etcd_s: float
    node_writes: float
    logged: float

    def since(self, before: "Cost") -> "Cost":
        """Return the part that came after *before*."""
        return Cost(
            api_s=self.api_s - before.api_s,
            etcd_s=self.etcd_s - before.etcd_s,
            node_writes=self.node_writes - before.node_writes,
            logged=self.logged - before.logged,
        )

    def part(self, share: float) -> "Cost":
        """Return a *share* of it."""
        return Cost(
            api_s=self.api_s * share,
            etcd_s=self.etcd_s * share,
            node_writes=self.node_writes * share,
            logged=self.logged * share,
        )

    def less(self, idle: "Cost", seconds: float) -> "Cost":
        """Return what is left without what *idle* is in each of so many *seconds*."""
        return self.since(idle.part(seconds))


class Server(ControlPlane):
    """A control plane without a scheduler, whose API server can go away and come back."""

    def __init__(self, components: Sequence[str] = COMPONENTS) -> None:
        """Start nothing yet; *components* are those of ``deploy/daemonset`` to apply."""
        self._components = components
        memory = Path("/dev/shm")
        self._home = Path(tempfile.mkdtemp(prefix="nt-", dir=memory if memory.is_dir() else None))
        self._named = NamedProcesses(self._home)
        self._store = ""
        super().__init__(self._home, binaries(), self._named)

    def start(self) -> None:
        """Start both, and apply what ``deploy/daemonset`` has."""
        super().start()
        rendered = render(BASE, *(BASE / "components" / name for name in self._components))
        documents = [one for one in rendered if one["kind"] != "DaemonSet"]
        for document in documents:
            objects.apply(self.api, document)
        wait_granted(self.api, documents)

    def stop(self) -> None:
        """End both and leave nothing behind."""
        self._named.stop_all()
        shutil.rmtree(self._home, ignore_errors=True)

    def go_away(self) -> None:
        """End the API server as a crash would; what it stored stays."""
        self._named.kill(self._named.programs["kube-apiserver"])

    def come_back(self) -> None:
        """Start the API server again; return when it is ready."""
        self._start_apiserver(self._store)

    def cost(self) -> Cost:
        """Return what both have cost since each was started."""
        metrics = self.api.text("/metrics")
        writes = total(metrics, "etcd_requests_total", operation="update", resource="nodes")
        with urlopen(f"{self._store}/metrics", timeout=10) as answer:
            logged = total(answer.read().decode(), "etcd_disk_wal_write_bytes_total")
        api_s, etcd_s = (cpu_s(self._named.programs[name]) for name in ("kube-apiserver", "etcd"))
        return Cost(api_s=api_s, etcd_s=etcd_s, node_writes=writes, logged=logged)

    def served(self) -> Counter[str]:
        """Return the requests for single Nodes that the API server has answered, by its verb."""
        metrics = self.api.text("/metrics")
        return Counter(
            {
                verb: round(total(metrics, "apiserver_request_total", verb=verb, resource="nodes"))
                for verb in ("GET", "APPLY", "PATCH")
            }
        )

    def _start_etcd(self) -> str:
        self._store = super()._start_etcd()
        return self._store

    def _start_scheduler(self) -> None:
        """Start none: its own watch of all Nodes is not what agents cost."""


class NamedProcesses(Processes):
    """Processes that are found by name; the last of a name counts."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.programs: dict[str, Program] = {}

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> Program:
        """Start *command* as the base does, and remember it."""
        program = super().start(
            name, command, prefix=prefix, environment=environment, directory=directory
        )
        self.programs[name] = program
        return program


def total(metrics: str, name: str, **labels: str) -> float:
    """Return the sum of the samples *name* that have these *labels*, in Prometheus' text form."""
    return sum(
        float(found[3])
        for found in _SAMPLE.finditer(metrics)
        if found[1] == name and labels.items() <= dict(_LABEL.findall(found[2] or "")).items()
    )


def cpu_s(program: Program) -> float:
    """Return the CPU time of *program*, of the user and the system (proc(5), stat, 14 and 15)."""
    text = Path(f"/proc/{program.process.pid}/stat").read_text("utf-8")
    numbers = text.rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / _TICKS
