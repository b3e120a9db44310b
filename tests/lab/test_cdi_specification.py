"""A driver container that is late, and one that leaves: what the node offers meanwhile."""

import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deviceplugin.driver_tree import VERSION, install
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_DRIVER = Path("run", "nvidia", "driver")
_NODES = ("nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(8)))
_FLAGS = (f"--driver-root=/{_DRIVER}", "--cdi-spec=write", "--cdi-spec-dir=/run/cdi")
_NOTICED_S = 300.0


@pytest.fixture
def node(v100: Node) -> Iterator[Node]:
    """Return a node whose daemon writes the CDI specification; it has no driver yet."""
    v100.agent.stop()
    v100.agent.start(_FLAGS)
    yield v100
    v100.agent.stop()
    for directory in (_DRIVER, "run/cdi"):
        shutil.rmtree(v100.host / directory, ignore_errors=True)


def test_gpus_are_offered_once_containers_can_use_them_and_as_long_as_the_specification_is_there(
    cluster: Cluster, node: Node
) -> None:
    _wait_event(cluster, node, "CdiNotWritten", f"no libcuda.so.{VERSION} was found below /run")
    wait_for("GPUs are registered", node.agent.registrations, evidence=node.logs)
    node.wait_allocatable(GPU, 0)
    assert node.capacity(GPU) == 8
    assert "CdiNotWritten: CDI specification not written, there is none" in _readiness(node)

    _install(node.host / _DRIVER)

    node.wait_allocatable(GPU, 8, timeout_s=_NOTICED_S)
    _wait_event(cluster, node, "CdiWritten", "all advertised devices")
    assert _readiness(node) == "ok\n"
    (file,) = (node.host / "run/cdi").iterdir()
    written = json.loads(file.read_text("utf-8"))
    cluster.pods.run(guaranteed("first", node.name, {GPU: 1}))
    (created,) = node.runtime.created("first")
    names = {f"{written['kind']}={device['name']}" for device in written["devices"]}
    assert set(created.cdi) < names

    shutil.rmtree(node.host / _DRIVER)

    wait_for(
        "the daemon is not ready",
        lambda: "the one from before stays" in _readiness(node),
        timeout_s=_NOTICED_S,
        evidence=node.logs,
    )
    assert json.loads(file.read_text("utf-8")) == written
    cluster.pods.run(guaranteed("second", node.name, {GPU: 7}))
    assert node.allocatable(GPU) == 8


def _install(root: Path) -> None:
    """Lay out the driver and its device nodes as a driver container does, all at once."""
    made = root.with_name("made")
    install(made, "/usr/lib64")
    (made / "dev").mkdir()
    for name in _NODES:
        (made / "dev" / name).touch()
    made.rename(root)


def _readiness(node: Node) -> str:
    (url,) = re.findall(r'"url": "([^"]+)"', node.agent.log_since_start())
    try:
        with urllib.request.urlopen(url.replace("/metrics", "/readyz"), timeout=10) as answer:
            text: str = answer.read().decode()
    except urllib.error.HTTPError as refusal:
        text = refusal.read().decode()
    return text


def _wait_event(cluster: Cluster, node: Node, reason: str, words: str) -> None:
    query = f"involvedObject.kind=Node,involvedObject.name={node.name},reason={reason}"
    path = f"/api/v1/namespaces/default/events?fieldSelector={query}"
    wait_for(
        f"an Event {reason} with {words!r} about node {node.name}",
        lambda: any(words in it["message"] for it in cluster.control_plane.api.get(path)["items"]),
        timeout_s=_NOTICED_S,
        evidence=node.logs,
    )
