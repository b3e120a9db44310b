"""Node Feature Discovery, on the lab's cluster: its master, its worker and what clears up."""

import json
from pathlib import Path

from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.processes import Processes, Program
from tests.lab.waiting import tail
from tests.nightly.build import NFD_GC, NFD_MASTER, NFD_WORKER, programs
from tests.nightly.own_etc import with_etc

NAMESPACE = "node-feature-discovery"
FEATURES = Path("kubernetes/node-feature-discovery/features.d")
"""Below ``/etc``, compiled in (nfd v0.19.0, source/local/local.go)."""

_NO_SERVER = "-port=-1"
"""It would listen on every address of the machine, and runs on where it cannot."""


class Nfd:
    """The programs, one of each, for one node.

    Attributes:
        features: where the worker looks for feature files.
    """

    def __init__(self, cluster: Cluster, home: Path, node: str) -> None:
        """Start nothing; logs and what stands for the node's ``/etc`` are in *home*."""
        self._kubeconfig = cluster.kubeconfig
        self._etc = home / "etc"
        self._node = node
        self._processes = Processes(home)
        self._running: dict[str, Program] = {}
        self.features = self._etc / FEATURES
        self.features.mkdir(parents=True)

    def start_master(self, options: Object | None = None) -> None:
        """Run the master, by *options* in the manner of its file, in the place of one that runs."""
        self._start(NFD_MASTER, ["-v=2", *_options(options or {})])

    def start_worker(self, look_every: str = "1s") -> None:
        """Run a worker that reads feature files alone, in the place of one that runs.

        It looks after each *look_every*, and when something happens in its directory; with
        ``0s`` only then.
        """
        flags = ["-feature-sources=local", "-label-sources=local", "-owner-refs="]
        flags += _options({"core": {"sleepInterval": look_every}})
        self._start(NFD_WORKER, flags, prefix=with_etc(self._etc, NFD_WORKER))

    def start_gc(self) -> None:
        """Run what deletes the objects of a node that was deleted."""
        self._start(NFD_GC, [])

    def logs(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(tail(one.log) for one in self._running.values())

    def stop(self) -> None:
        """End all of it."""
        self._processes.stop_all()

    def _start(self, program: str, flags: list[str], *, prefix: tuple[str, ...] = ()) -> None:
        if program in self._running:
            self._processes.stop(self._running[program])
        self._running[program] = self._processes.start(
            program,
            [programs("nfd") / program, f"-kubeconfig={self._kubeconfig}", _NO_SERVER, *flags],
            prefix=prefix,
            environment={"NODE_NAME": self._node, "KUBERNETES_NAMESPACE": NAMESPACE},
        )


def _options(options: Object) -> list[str]:
    return [f"-options={json.dumps(options)}"]
