"""The lab: a control plane and as many simulated GPU nodes as a test wants."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nodetopo.tools.capture.archive import unpack
from tests.lab.api import Api
from tests.lab.build import binaries
from tests.lab.control_plane import Alpha, ControlPlane, free_port
from tests.lab.kubelet import Policies
from tests.lab.machine_node import Node
from tests.lab.pods import Pods
from tests.lab.processes import Processes
from tests.lab.release import chosen

_ENOUGH_BYTES = 1 << 30
MACHINES = Path(__file__).parents[1] / "nodes"


class Cluster:
    """Real Kubernetes on simulated machines.

    Attributes:
        run_dir: machines, sockets, logs and keys. Its path is short because a unix socket's
            has at most 107 bytes, and the plugins' directory lies deep.
        nodes: by name.
        release: of Kubernetes.
        pods: makes pods and watches them.
    """

    def __init__(
        self,
        *,
        is_detached: bool = False,
        alpha: Alpha | None = None,
        release: str | None = None,
    ) -> None:
        """Lay it out; *release* of Kubernetes is as :func:`tests.lab.release.chosen` takes it."""
        self.run_dir = Path(tempfile.mkdtemp(prefix="nt-", dir=run_parent()))
        self.nodes: dict[str, Node] = {}
        self.release = chosen(release)
        self._programs = binaries(release)
        self._processes = Processes(self.run_dir, is_detached=is_detached)
        self.control_plane = ControlPlane(
            self.run_dir, self._programs, self._processes, alpha, self.release
        )

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

    def add_node(self, name: str, shape: str, *, policies: Policies | None = None) -> Node:
        """Add a Ready node that is the machine of ``tests/nodes/<shape>``, without our agent."""
        (node,) = self.add_nodes({name: (shape, policies or Policies())})
        return node

    def add_nodes(self, wanted: Mapping[str, tuple[str, Policies]]) -> tuple[Node, ...]:
        """Add a node for each name, as :meth:`add_node` does, all starting at once."""
        nodes = tuple(self._node(name, *what) for name, what in wanted.items())
        # In this one thread: the kernel ends a program with the thread that started it.
        for node in nodes:
            self.nodes[node.name] = node
            node.launch()
        for node in nodes:
            node.wait_ready()
        return nodes

    def remove_node(self, name: str) -> None:
        """End the node's processes, if it was added, and delete it; its logs stay."""
        if name not in self.nodes:
            return
        self.nodes.pop(name).end()
        self.api.delete(f"/api/v1/nodes/{name}")

    def _node(self, name: str, shape: str, policies: Policies) -> Node:
        home = self.run_dir / "n" / name
        home.mkdir(parents=True)
        return Node(
            name,
            MACHINES / shape,
            policies,
            tree=self._tree(shape),
            home=home,
            port=free_port(),
            programs=self._programs,
            control_plane=self.control_plane,
            processes=self._processes,
        )

    def _tree(self, shape: str) -> Path:
        """Return the machine's files, unpacked once: a large machine has ten thousand."""
        tree = self.run_dir / "m" / shape
        if not tree.exists():
            unpack((MACHINES / shape / "sysfs.txt").read_text("utf-8"), tree)
        return tree


def run_parent() -> str:
    """Return where to put the lab: in memory where there is room.

    A kubelet flushes its checkpoints to the disk for each pod. Ten nodes on a busy disk took
    five times as long. They take 170 MiB, and a container may have 64 MiB there.
    """
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= _ENOUGH_BYTES:
        return str(memory)
    return "/tmp"
