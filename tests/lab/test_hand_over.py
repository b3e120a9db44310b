"""Pods with GPUs start by whatever way the node hands devices over, and while that changes."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.runtime import Created
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_CONTAINERD = """\
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
_PLACES = ("etc/cdi", "run/cdi", "etc/containerd", "etc/nvidia-container-runtime")
_VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"
_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"


class Setup:
    """The files of the node that decide how devices reach containers."""

    def __init__(self, host: Path) -> None:
        self._host = host
        self.write("etc/containerd/config.toml", _CONTAINERD)
        self.toolkit(variable=True, mounts=False)

    def write(self, path: str, text: str) -> None:
        """Replace the file at *path* as a program does that writes another beside it."""
        place = self._host / path
        place.parent.mkdir(parents=True, exist_ok=True)
        made = place.with_name(f".{place.name}")
        made.write_text(text, "utf-8")
        made.replace(place)

    def toolkit(self, *, variable: bool, mounts: bool) -> None:
        """Let the toolkit take GPUs from a variable or from volume mounts."""
        text = f"{_VARIABLE} = {str(variable).lower()}\n{_MOUNTS} = {str(mounts).lower()}\n"
        self.write("etc/nvidia-container-runtime/config.toml", text)

    def specify(self, *uuids: str) -> None:
        """Write the CDI specification of the GPUs *uuids*; of none, remove it."""
        if not uuids:
            (self._host / "run/cdi/nvidia.json").unlink()
            return
        devices = [{"name": uuid, "containerEdits": {"env": ["A=1"]}} for uuid in uuids]
        document = {"cdiVersion": "0.6.0", "kind": GPU, "devices": devices}
        self.write("run/cdi/nvidia.json", json.dumps(document))


@pytest.fixture
def setup(v100: Node) -> Iterator[Setup]:
    """Return the setup of a node whose runtime resolves CDI names; no daemon runs on it."""
    v100.agent.stop()
    found = Setup(v100.host)
    v100.runtime.resolve_cdi(*(v100.host / place for place in _PLACES[:2]))
    yield found
    v100.agent.end()
    v100.runtime.resolve_cdi()
    for place in _PLACES:
        shutil.rmtree(v100.host / place, ignore_errors=True)


def test_pods_start_whatever_the_node_is_set_up_for(
    cluster: Cluster, v100: Node, setup: Setup
) -> None:
    v100.agent.start()
    _wait_chosen(v100, "envvar")
    without = _run(cluster, v100, "without")
    uuids = sorted(v100.healthy(GPU))
    assert (_variable(without) <= set(uuids), without.cdi) == (True, ())

    setup.specify(*uuids)
    _wait_chosen(v100, "cdi-cri")
    by_name = _run(cluster, v100, "by-name")
    assert len(by_name.cdi) == 1
    assert not _variable(by_name)

    # A GPU that the specification loses: no container could have it by name any more.
    setup.specify(*uuids[:-1])
    _wait_chosen(v100, "envvar")
    stale = _run(cluster, v100, "stale")
    assert (len(_variable(stale)), stale.cdi) == (1, ())

    setup.toolkit(variable=False, mounts=True)
    _wait_chosen(v100, "volume-mounts")
    mounted = _run(cluster, v100, "mounted")
    assert "/dev/null" in mounted.mounts
    assert mounted.cdi == ()

    setup.specify(*uuids)
    _wait_chosen(v100, "cdi-cri")
    assert len(_run(cluster, v100, "again").cdi) == 1

    said = v100.agent.log_since_start()
    assert said.count('"reason": "HandOverChanged"') == 4
    assert "does not name" in said
    phases = {cluster.pods.phase(name) for name in ("without", "by-name", "stale", "mounted")}
    assert phases == {"Running"}


def test_a_setting_wins_even_where_no_container_starts_by_it(
    cluster: Cluster, v100: Node, setup: Setup
) -> None:
    setup.specify("GPU-of-another-node")
    v100.agent.start(["--device-list-strategy=cdi-cri"])
    v100.wait_settled(GPU, 8)
    cluster.pods.create(guaranteed("named", v100.name, {GPU: 1}))
    wait_for(
        "the runtime refuses the name",
        lambda: "unresolvable CDI devices" in json.dumps(cluster.pods.get("named")["status"]),
        evidence=v100.logs,
    )
    assert "hand-over chosen" not in v100.agent.log_since_start()


def _run(cluster: Cluster, node: Node, name: str) -> Created:
    """Run a pod with one GPU; return its container as the runtime was asked for it."""
    node.wait_settled(GPU, 8)
    cluster.pods.run(guaranteed(name, node.name, {GPU: 1}))
    (created,) = node.runtime.created(name)
    return created


def _variable(created: Created) -> set[str]:
    return set(filter(None, created.env.get("NVIDIA_VISIBLE_DEVICES", "").split(",")))


def _wait_chosen(node: Node, strategy: str) -> None:
    """Wait until the daemon hands over by *strategy*, and the kubelet has it from there."""

    def is_chosen() -> bool:
        lines = node.agent.log_since_start().splitlines()
        chosen = [line for line in lines if '"event": "hand-over chosen"' in line]
        return bool(chosen) and f'"strategy": "{strategy}"' in chosen[-1]

    wait_for(f"the daemon hands over by {strategy}", is_chosen, evidence=node.logs)
