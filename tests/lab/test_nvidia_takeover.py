"""NVIDIA's device plugin and ours one after the other, and both at once, under a real kubelet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from msgspec import Struct

from tests.deploy.kustomize import render
from tests.lab.cluster import Cluster
from tests.lab.control_plane import free_port
from tests.lab.deployment import BASE
from tests.lab.kubelet import Policies
from tests.lab.machine_node import Node
from tests.lab.nvidia.cases import GPU, SHARED, Case, sliced
from tests.lab.nvidia.plugin import NvidiaPlugin
from tests.lab.pods import guaranteed
from tests.lab.processes import Processes
from tests.lab.waiting import tail, wait_for

pytestmark = pytest.mark.lab

_PLAIN = "version: v1\n"
"""By it NVIDIA's plugin answers with a variable and ours with CDI: an answer tells whose it is."""

_SLICED = Case(
    machine="whole", amounts={SHARED: 32}, slicing=sliced((GPU, 4), renameByDefault=True)
).config


class Stage(Struct, frozen=True, kw_only=True):
    """A node with both plugins, neither started."""

    pods: Any
    node: Node
    nvidia: NvidiaPlugin
    config: Path

    def start_nvidia(self, config: str) -> None:
        """Start NVIDIA's plugin with the file *config*."""
        self.config.write_text(config, "utf-8")
        self.nvidia.start(self.config)

    def start_ours(self, config: str) -> None:
        """Start our daemon with the file *config*."""
        self.config.write_text(config, "utf-8")
        self.node.agent.start(["--config-file", str(self.config), "--device-list-strategy=cdi-cri"])

    def run(self, name: str, amount: int, resource: str = GPU) -> frozenset[str]:
        """Run a pod with *amount* of *resource*; return the ids that the kubelet gave it."""
        self.pods.run(guaranteed(name, self.node.name, {resource: amount}))
        return self.held(name, resource)

    def held(self, name: str, resource: str = GPU) -> frozenset[str]:
        """Return the ids that the kubelet's checkpoint says the pod holds."""
        uid = self.pods.get(name)["metadata"]["uid"]
        entries = (one for one in self.node.checkpoint().held if one.pod == uid)
        return frozenset(name for one in entries if one.resource == resource for name in one.ids)

    def answered(self, name: str) -> str:
        """Return whose answer the pod was started with: ``ours`` or ``nvidia``."""
        uid = self.pods.get(name)["metadata"]["uid"]
        (entry,) = (one for one in self.node.checkpoint().held if one.pod == uid)
        return "nvidia" if "NVIDIA_VISIBLE_DEVICES" in entry.answer.envs else "ours"

    def variable(self, name: str) -> frozenset[str]:
        """Return the GPUs that the variable of the pod's container names."""
        uid = self.pods.get(name)["metadata"]["uid"]
        (entry,) = (one for one in self.node.checkpoint().held if one.pod == uid)
        return frozenset(entry.answer.envs["NVIDIA_VISIBLE_DEVICES"].split(","))

    def offer(self, resource: str, amount: int) -> tuple[int | None, frozenset[str]]:
        """Wait for *amount* of *resource*; return the Node's capacity, and the ids behind it.

        Those of the checkpoint: the kubelet writes it after it took a list.
        """
        self.node.wait_allocatable(resource, amount)

        def written() -> frozenset[str] | None:
            found = self.node.checkpoint().registered.get(resource, frozenset())
            return found if len(found) == amount else None

        known = wait_for("the checkpoint has the devices", written, evidence=self.logs)
        return self.node.capacity(resource), known

    def logs(self) -> str:
        """Return the ends of the logs."""
        return f"{tail(self.nvidia.log)}\n{self.node.logs()}"


@pytest.fixture(scope="module")
def _node(cluster: Cluster) -> Iterator[Node]:
    policies = Policies(topology="none")
    yield cluster.add_node("swap", "h100x8-nvswitch-2numa-8cx7", policies=policies)
    cluster.remove_node("swap")


@pytest.fixture
def stage(cluster: Cluster, _node: Node, tmp_path: Path) -> Iterator[Stage]:
    """Return an H100 node that nobody serves yet."""
    processes = Processes(tmp_path)
    home = _node.host.parent
    nvidia = NvidiaPlugin(
        _node.name,
        host=_node.host,
        socket_dir=_node.agent.socket_dir,
        nvml=home / "nvml",
        processes=processes,
    )
    config = home / "config.yaml"
    yield Stage(pods=cluster.pods, node=_node, nvidia=nvidia, config=config)
    cluster.pods.delete_all()
    _node.agent.end()
    (home / "health.json").unlink(missing_ok=True)  # what a test broke is well again
    processes.stop_all()
    for resource in (GPU, SHARED):
        _wait_none(_node, resource)


@pytest.mark.parametrize(
    ("config", "resource", "amount"), [(_PLAIN, GPU, 8), (_SLICED, SHARED, 32)]
)
def test_each_takes_over_from_the_other_with_pods_running(
    stage: Stage, config: str, resource: str, amount: int
) -> None:
    stage.start_nvidia(config)
    under_nvidia = stage.offer(resource, amount)
    first = stage.run("first", 2, resource)

    stage.nvidia.stop()
    _wait_none(stage.node, resource)
    stage.start_ours(config)
    assert stage.offer(resource, amount) == under_nvidia
    second = stage.run("second", amount - 3, resource)
    assert (stage.held("first", resource), len(first | second)) == (first, amount - 1)

    stage.node.agent.stop()
    _wait_none(stage.node, resource)
    stage.start_nvidia(config)
    assert stage.offer(resource, amount) == under_nvidia
    third = stage.run("third", 1, resource)

    held = [stage.held(name, resource) for name in ("first", "second", "third")]
    assert held == [first, second, third]
    assert len(first | second | third) == amount
    assert [stage.pods.phase(name) for name in ("first", "second", "third")] == ["Running"] * 3


def test_the_drop_in_takes_over_and_gives_back_with_pods_running(stage: Stage) -> None:
    stage.start_nvidia(_PLAIN)
    stage.node.wait_allocatable(GPU, 8)
    first = stage.run("first", 2)

    stage.nvidia.stop()
    _wait_none(stage.node, GPU)
    stage.node.agent.start(_overlay("drop-in"))
    stage.node.wait_settled(GPU, 8)
    second = stage.run("second", 4)
    assert stage.node.agent.registrations() == 1
    # As NVIDIA's plugin hands them over.
    assert [stage.variable(name) for name in ("first", "second")] == [first, second]

    stage.node.agent.stop()
    _wait_none(stage.node, GPU)
    stage.start_nvidia(_PLAIN)
    stage.node.wait_settled(GPU, 8)
    third = stage.run("third", 2)
    assert [stage.held(name) for name in ("first", "second", "third")] == [first, second, third]
    assert len(first | second | third) == 8


def test_beside_nvidias_plugin_ours_registers_nothing_and_measures_its_pods(stage: Stage) -> None:
    stage.start_nvidia(_PLAIN)
    stage.node.wait_allocatable(GPU, 8)
    first = stage.run("first", 2)

    port = free_port()
    stage.node.agent.start([*_overlay("beside"), f"--metrics-address=127.0.0.1:{port}"])
    stage.node.wait_labels({"gpu.topology/interconnect": "nvswitch"})
    wait_for(  # another test's daemon may have written it
        "the keys of GFD are left to GFD",
        lambda: "nvidia.com/gpu.count" not in stage.node.labels(),
        evidence=stage.logs,
    )
    wait_for(  # the node's policy is none: the pod has GPUs of one NUMA node and CPUs of both
        "the pod is measured",
        lambda: _metric(port, 'nodetopo_pods_measured{verdict="misaligned"}') == 1,
        evidence=stage.logs,
    )
    second = stage.run("second", 4)

    assert (stage.answered("second"), len(first | second)) == ("nvidia", 6)
    assert stage.node.agent.registrations() == 0
    assert "conflict" not in stage.node.agent.log_since_start()
    assert _metric(port, "nodetopo_ready") == 1
    sockets = {path.name for path in stage.node.agent.socket_dir.glob("*.sock")}
    assert not any(name.startswith("nodetopo") for name in sockets)


def test_ours_steps_back_where_nvidias_serves_and_takes_over_when_it_dies(stage: Stage) -> None:
    stage.start_nvidia(_PLAIN)
    stage.node.wait_allocatable(GPU, 8)
    first = stage.run("first", 2)

    stage.start_ours(_PLAIN)
    _wait_logged(stage, '"event": "resource conflict"')
    second = stage.run("second", 2)
    assert (stage.answered("second"), stage.node.agent.registrations()) == ("nvidia", 0)

    stage.nvidia.kill()
    _wait_logged(stage, '"event": "resource registered"')
    stage.node.wait_settled(GPU, 8)
    third = stage.run("third", 4)
    assert stage.answered("third") == "ours"
    assert len(first | second | third) == 8


def test_ours_steps_back_when_nvidias_comes_and_takes_over_when_it_dies(stage: Stage) -> None:
    stage.start_ours(_PLAIN)
    stage.node.wait_allocatable(GPU, 8)
    first = stage.run("first", 2)

    stage.start_nvidia(_PLAIN)
    _wait_logged(stage, '"event": "resource conflict"')
    wait_for("NVIDIA's plugin registers", lambda: "Registered device plugin" in _said(stage))
    stage.node.wait_settled(GPU, 8)
    second = stage.run("second", 2)
    assert (stage.answered("second"), stage.node.agent.registrations()) == ("nvidia", 1)

    stage.nvidia.kill()
    wait_for(
        "our daemon registers again",
        lambda: stage.node.agent.registrations() > 1,
        evidence=stage.logs,
    )
    stage.node.wait_settled(GPU, 8)
    third = stage.run("third", 4)
    assert stage.answered("third") == "ours"
    assert len(first | second | third) == 8


def test_the_conflict_names_the_other_plugin_and_its_socket(stage: Stage) -> None:
    stage.start_nvidia(_PLAIN)
    stage.node.wait_allocatable(GPU, 8)
    stage.start_ours(_PLAIN)
    _wait_logged(stage, '"event": "resource conflict"')

    (line,) = (
        line
        for line in stage.node.agent.log_since_start().splitlines()
        if '"event": "resource conflict"' in line
    )
    assert f"NVIDIA's device plugin serves {GPU} on " in line
    assert "nvidia-gpu.sock" in line


def test_xid_79_takes_all_replicas_of_a_gpu_from_the_node(stage: Stage) -> None:
    before = _watched(stage)
    stage.start_ours(_SLICED)
    stage.node.wait_allocatable(SHARED, 32)
    wait_for("all GPUs are watched", lambda: _watched(stage) >= before + 8, evidence=stage.logs)

    stage.node.agent.xid(0, 79)

    stage.node.wait_allocatable(SHARED, 28)
    assert stage.node.capacity(SHARED) == 32


def _overlay(name: str) -> list[str]:
    """Return the flags that stand for the variables which an overlay adds to the base."""
    variables = [
        {item["name"]: item["value"] for item in _container(folder)["env"] if "value" in item}
        for folder in (BASE / "overlays" / name, BASE / "base")
    ]
    flags = []
    for variable, value in variables[0].items() - variables[1].items():
        flag = variable.removeprefix("NODETOPO_").lower().replace("_", "-")
        flags.append(f"--no-{flag}" if value == "false" else f"--{flag}={value}")
    return sorted(flags)


def _container(folder: Path) -> dict[str, Any]:
    (daemonset,) = (one for one in render(folder) if one["kind"] == "DaemonSet")
    (found,) = daemonset["spec"]["template"]["spec"]["containers"]
    return dict(found)


def _metric(port: int, name: str) -> float | None:
    """Return the value of the series *name*; ``None`` where there is none, or nobody answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return None
    values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"{name} ")]
    return float(values[0]) if values else None


def _wait_none(node: Node, resource: str) -> None:
    """Wait until the node has none of *resource* to give, or never had any."""
    wait_for(
        f"node {node.name} offers no {resource}",
        lambda: not node.healthy(resource) and not node.allocatable(resource),
        evidence=node.logs,
    )


def _wait_logged(stage: Stage, text: str) -> None:
    wait_for(
        f"our daemon says {text}",
        lambda: text in stage.node.agent.log_since_start(),
        evidence=stage.logs,
    )


def _watched(stage: Stage) -> int:
    """Return how many registrations for the events of a GPU there were so far."""
    text = (stage.node.host.parent / "nvml" / "registered").read_text("utf-8")
    return len(
        [
            line
            for line in text.splitlines(keepends=True)
            if line.endswith("\n") and "freed" not in line
        ]
    )


def _said(stage: Stage) -> str:
    return stage.nvidia.log.read_text("utf-8", errors="replace")
