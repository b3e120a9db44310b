"""One simulated node: a real kubelet that is shown the machine of a test directory."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodetopo.model.pod import Pod
from tests.lab import checkpoint, namespace
from tests.lab.allocatable import assigned, healthy
from tests.lab.checkpoint import Checkpoint
from tests.lab.control_plane import ControlPlane
from tests.lab.kubelet import Policies, configuration
from tests.lab.node_agent import NodeAgent
from tests.lab.pods import GPU
from tests.lab.processes import Processes, Program
from tests.lab.runtime import Runtime
from tests.lab.waiting import PATIENCE_S, tail, wait_for

_START_TIMEOUT_S = 300.0
"""A kubelet is Ready after about 10 s on two idle cores; ten may start at once."""


class Node:
    """A simulated machine with a kubelet of its own, and the agent on request.

    Attributes:
        kubelet_dir: what the kubelet sees as ``/var/lib/kubelet``.
        host: root of the machine's files; ``sys``, ``proc`` and the kubelet's lie below it.
        agent: our daemon on this node; not started yet.
        runtime: its container runtime.
        kubelet_starts: how often a kubelet was started.
    """

    def __init__(
        self,
        name: str,
        machine_dir: Path,
        policies: Policies,
        *,
        tree: Path,
        home: Path,
        port: int,
        programs: Path,
        control_plane: ControlPlane,
        processes: Processes,
    ) -> None:
        self.name = name
        self.machine_dir = machine_dir
        self.host = home / "host"
        self.kubelet_dir = self.host / "var" / "lib" / "kubelet"
        self.runtime = Runtime(name, home, programs / "fakecri", processes)
        self._tree = tree
        self._policies = policies
        self._home = home
        self._programs = programs
        self._control_plane = control_plane
        self._processes = processes
        self._kubeconfig = control_plane.write_kubeconfig("admin", control_plane.api.token)
        self._port = port
        self.agent = self.another_agent("agent", home)
        self.kubelet_starts = 0
        self._kubelet: Program | None = None
        self._heartbeat_before: str | None = None

    def another_agent(self, log_name: str, home: Path) -> NodeAgent:
        """Return a daemon of ours beside :attr:`agent`, with files of its own in *home*."""
        return NodeAgent(
            self.name,
            self.machine_dir,
            home=home,
            host=self.host,
            kubeconfig=self._control_plane.agent_kubeconfig(),
            processes=self._processes,
            log_name=log_name,
        )

    @property
    def is_kubelet_running(self) -> bool:
        """Whether the kubelet's process is alive."""
        return self._kubelet is not None and self._kubelet.is_running

    @property
    def pod_resources_socket(self) -> Path:
        """The kubelet's PodResources socket, by its path outside the namespace."""
        return self.kubelet_dir / "pod-resources" / "kubelet.sock"

    @property
    def kubelet_url(self) -> str:
        """Where the kubelet answers, with a certificate that it signed itself."""
        return f"https://127.0.0.1:{self._port}"

    def launch(self) -> None:
        """Lay the machine out and start its runtime and kubelet; return before it is Ready."""
        self._lay_out()
        self.kubelet_dir.mkdir(parents=True, exist_ok=True)
        text = configuration(
            self._policies,
            host=self.host,
            runtime=self.runtime.socket,
            port=self._port,
            is_user_namespace=namespace.is_user_namespace(namespace.required_flags()),
            gates=self._control_plane.release.kubelet_gates,
        )
        self.kubelet_dir.joinpath("config.yaml").write_text(text, "utf-8")
        self.runtime.start()
        self._launch_kubelet()

    def start_kubelet(self) -> None:
        """Start the kubelet anew after :meth:`kill_kubelet`, and wait until it is Ready."""
        self._launch_kubelet()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the kubelet last started has reported Ready."""
        wait_for(
            f"node {self.name} is Ready",
            self._is_ready,
            timeout_s=_START_TIMEOUT_S,
            evidence=self.logs,
        )

    def end(self) -> None:
        """End every process of the node."""
        self.agent.end()
        if self._kubelet is not None:
            self.kill_kubelet()
        self.runtime.kill()

    def kill_kubelet(self) -> None:
        """End the kubelet with SIGKILL."""
        assert self._kubelet is not None, "the kubelet was not started"
        self._processes.kill(self._kubelet)

    def restart_kubelet(self) -> None:
        """Crash the kubelet and start it; return when it is Ready, with or without devices."""
        self.kill_kubelet()
        self.start_kubelet()

    def reboot(self) -> None:
        """Play a reboot: all programs crash, containers are gone, files under ``/var/lib`` stay.

        The kubelet and the runtime come back; the agent, which is a pod on a real node and
        may be late, is for the test to start.
        """
        self.agent.end()
        self.kill_kubelet()
        self.runtime.kill()
        self.runtime.start()
        self.start_kubelet()

    def object(self) -> dict[str, Any]:
        """Return the Node object."""
        return self._control_plane.api.get(f"/api/v1/nodes/{self.name}")

    def allocatable(self, resource: str) -> int | None:
        """Return how many of *resource* pods may ask for; ``None`` if the node has no such."""
        amount = self.object()["status"]["allocatable"].get(resource)
        return None if amount is None else int(amount)

    def capacity(self, resource: str) -> int | None:
        """Return how many of *resource* the node has; ``None`` if it never had one."""
        amount = self.object()["status"]["capacity"].get(resource)
        return None if amount is None else int(amount)

    def wait_allocatable(
        self, resource: str, amount: int, *, timeout_s: float = PATIENCE_S
    ) -> None:
        """Wait until the node offers *amount* of *resource*, as long as the agent runs.

        The kubelet itself has to have as many: its Node may tell of a daemon that is gone.
        """

        def offers() -> bool:
            self.agent.check_running()
            return len(self.healthy(resource)) == amount == self.allocatable(resource)

        wait_for(
            f"node {self.name} offers {resource}: {amount}",
            offers,
            timeout_s=timeout_s,
            evidence=self.logs,
        )

    def wait_settled(self, resource: str, amount: int) -> None:
        """Wait until the node offers *amount* of *resource*, and by its next report still does.

        A kubelet that takes one plugin for the other's end drops it, and soon gets it back.
        """
        self.wait_allocatable(resource, amount)
        before = self._heartbeat()
        wait_for("the kubelet reports", lambda: self._heartbeat() != before, evidence=self.logs)
        self.wait_allocatable(resource, amount)

    def labels(self) -> dict[str, str]:
        """Return the labels of the Node object."""
        labels: dict[str, str] = self.object()["metadata"]["labels"]
        return labels

    def wait_labels(self, wanted: Mapping[str, str]) -> None:
        """Wait until the Node object has *wanted*; what was there before may take a minute."""

        def lacking() -> dict[str, str]:
            return dict(wanted.items() - self.labels().items())

        wait_for(
            f"node {self.name} is labelled",
            lambda: not lacking(),
            evidence=lambda: f"{lacking()}\n{self.logs()}",
        )

    def pod_resources(self) -> tuple[Pod, ...]:
        """Return what the kubelet assigned to each pod."""
        return assigned(self.pod_resources_socket)

    def healthy(self, resource: str) -> frozenset[str]:
        """Return the ids of *resource* that the kubelet holds for healthy, given out or not."""
        return healthy(self.pod_resources_socket, resource)

    def given(self, pod: str, resource: str = GPU) -> dict[str, tuple[str, ...]]:
        """Return the ids of *resource* that each container of *pod* has, by its name.

        Without containers that have none; empty for a pod that the kubelet does not list.
        """
        return {
            container.name: devices.ids
            for found in self.pod_resources()
            if found.name == pod
            for container in found.containers
            for devices in container.devices or ()
            if devices.resource == resource
        }

    def checkpoint(self) -> Checkpoint:
        """Return what the kubelet would read back after a crash."""
        return checkpoint.read(self.agent.socket_dir)

    def logs(self) -> str:
        """Return the ends of the node's logs, for a failure message."""
        logs = self._processes.log_dir
        return "\n".join(tail(logs / f"{self.name}-{part}.log") for part in ("kubelet", "agent"))

    def _lay_out(self) -> None:
        """Give the node the machine's files: ``sys``, which nobody writes, is shared."""
        self.host.mkdir()
        for entry in self._tree.iterdir():
            if entry.name == "sys":
                self.host.joinpath("sys").symlink_to(entry)
            else:
                shutil.copytree(entry, self.host / entry.name, symlinks=True)

    def _launch_kubelet(self) -> None:
        self.kubelet_starts += 1
        self._heartbeat_before = self._heartbeat()
        self._kubelet = self._processes.start(
            f"{self.name}-kubelet",
            [
                self._home / "bin" / "kubelet",
                f"--config={namespace.KUBELET_DIR / 'config.yaml'}",
                f"--kubeconfig={self._kubeconfig}",
                f"--root-dir={namespace.KUBELET_DIR}",
                f"--cert-dir={namespace.KUBELET_DIR / 'pki'}",
                f"--hostname-override={self.name}",
            ],
            prefix=namespace.entering(namespace.required_flags(), self.host, self._programs),
            directory=self._empty_directory(),
        )

    def _empty_directory(self) -> Path:
        """Return where the kubelet may stand.

        Containers of the in-memory runtime have no log, and removing the log of such a one
        the kubelet deletes what matches ``*`` where it stands (1.36 container_log_manager.go,
        Clean).
        """
        directory = self._home / "empty"
        directory.mkdir(exist_ok=True)
        return directory

    def _heartbeat(self) -> str | None:
        found = self._control_plane.api.find(f"/api/v1/nodes/{self.name}")
        return _ready_condition(found).get("lastHeartbeatTime") if found else None

    def _is_ready(self) -> bool:
        """Tell whether the kubelet reported Ready since it was last started."""
        assert self._kubelet is not None
        self._kubelet.check_running()
        found = self._control_plane.api.find(f"/api/v1/nodes/{self.name}")
        ready = _ready_condition(found) if found else {}
        is_new = ready.get("lastHeartbeatTime") != self._heartbeat_before
        return is_new and ready.get("status") == "True"


def _ready_condition(node: dict[str, Any]) -> dict[str, str]:
    conditions = node["status"].get("conditions", ())
    return next((entry for entry in conditions if entry["type"] == "Ready"), {})
