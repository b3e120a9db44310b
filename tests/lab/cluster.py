"""The lab: a control plane and as many simulated GPU nodes as a test wants."""

import shutil
import tempfile
from pathlib import Path

from tests.lab.api import Api
from tests.lab.build import binaries
from tests.lab.control_plane import ControlPlane
from tests.lab.kubelet import Policies
from tests.lab.machine_node import Node
from tests.lab.pods import Pods
from tests.lab.processes import Processes

MACHINES = Path(__file__).parents[1] / "nodes"


class Cluster:
    """Real Kubernetes on simulated machines.

    Attributes:
        run_dir: sockets, logs and keys; below ``/tmp`` because a unix socket's path has at
            most 107 bytes, and the plugins' directory lies deep.
        nodes: by name.
        pods: makes pods and watches them.
    """

    def __init__(self, *, is_detached: bool = False) -> None:
        self.run_dir = Path(tempfile.mkdtemp(prefix="nt-", dir="/tmp"))
        self.nodes: dict[str, Node] = {}
        self._programs = binaries()
        self._processes = Processes(self.run_dir, is_detached=is_detached)
        self.control_plane = ControlPlane(self.run_dir, self._programs, self._processes)

    @property
    def api(self) -> Api:
        """The API server, spoken to as administrator."""
        return self.control_plane.api

    @property
    def pods(self) -> Pods:
        """The pods of the namespace that the tests use."""
        return Pods(self.api)

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of an administrator."""
        return self.control_plane.write_kubeconfig("admin", self.api.token)

    def start(self) -> None:
        """Start the control plane; on failure nothing is left running."""
        try:
            self.control_plane.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process; the run directory, with the logs, is removed."""
        self._processes.stop_all()
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def add_node(
        self,
        name: str,
        shape: str,
        *,
        policies: Policies | None = None,
    ) -> Node:
        """Add a Ready node that is the machine of ``tests/nodes/<shape>``, without our agent."""
        home = self.run_dir / "n" / name
        home.mkdir(parents=True)
        node = Node(
            name,
            MACHINES / shape,
            policies or Policies(),
            home=home,
            programs=self._programs,
            control_plane=self.control_plane,
            processes=self._processes,
        )
        self.nodes[name] = node
        node.start()
        return node
