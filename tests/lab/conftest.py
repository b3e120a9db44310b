"""The lab as fixtures: one cluster and two nodes for the whole session, tidied after each test."""

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import nvidia
from tests.lab.build import binaries
from tests.lab.cluster import Cluster
from tests.lab.helm import chart
from tests.lab.kubelet import Policies
from tests.lab.machine_node import Node
from tests.lab.namespace import unshare_flags
from tests.lab.nvidia.desk import Desk
from tests.lab.nvidia.machines import MACHINES
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import has_tail, wait_for

_NO_NAMESPACES = "the lab needs root or user namespaces (unshare --mount, or --user --mount)"
_LOGS: pytest.StashKey[Cluster] = pytest.StashKey()
_TIME_LIMIT_S = 1500
"""Of one test with what it is the first to start: ten nodes, perhaps, on a machine that is busy
with much else. Each wait has a limit of its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of the lab the time that they may take, unless they say it themselves."""
    for item in items:
        if item.get_closest_marker("lab") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_TIME_LIMIT_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test, whose time limit a cold build would exceed."""
    wanted = [item.path.stem for item in session.items if item.get_closest_marker("lab")]
    if wanted and not session.config.option.collectonly and unshare_flags() is not None:
        capture: Any = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            binaries()
            if any(name.startswith("test_nvidia") for name in wanted):
                nvidia.programs()
            if any(name.startswith("test_helm") for name in wanted):
                chart.program()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the nodes' logs to the report of a test that failed."""
    report = yield
    cluster = item.config.stash.get(_LOGS, None)
    if report.failed and cluster is not None and not has_tail(report.longreprtext):
        for name, node in cluster.nodes.items():
            report.sections.append((f"logs of node {name}", node.logs()))
    return report


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip what needs a mount namespace where there can be none; in CI, fail."""
    if unshare_flags() is None:
        if os.environ.get("CI") == "true":
            pytest.fail(_NO_NAMESPACES)
        pytest.skip(_NO_NAMESPACES)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config, namespaces: None) -> Iterator[Cluster]:
    """Return a running control plane without nodes."""
    del namespaces
    lab = Cluster()
    lab.start()
    pytestconfig.stash[_LOGS] = lab
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def desk(namespaces: None) -> Iterator[Callable[[str], Desk]]:
    """Return a function from a name of a machine to it with both plugins, laid out once."""
    del namespaces
    home = Path(tempfile.mkdtemp(prefix="nt-"))
    desks: dict[str, Desk] = {}

    def of(machine: str) -> Desk:
        if machine not in desks:
            desks[machine] = Desk(home / machine, MACHINES[machine]())
        return desks[machine]

    yield of
    for one in desks.values():
        one.close()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def _h100(cluster: Cluster) -> Node:
    return _with_agent(cluster.add_node("h100", "h100x8-nvswitch-2numa-8cx7"))


@pytest.fixture(scope="session")
def _v100(cluster: Cluster) -> Node:
    policies = Policies(topology="none")
    return _with_agent(cluster.add_node("v100", "v100x8-cubemesh-2numa-4cx4", policies=policies))


@pytest.fixture
def h100(cluster: Cluster, _h100: Node) -> Iterator[Node]:
    """Return an 8-GPU NVSwitch node under ``single-numa-node``, empty and offering all GPUs."""
    starts = _h100.kubelet_starts
    yield _h100
    _tidy(cluster, _h100, is_new_kubelet=_h100.kubelet_starts > starts)


@pytest.fixture
def v100(cluster: Cluster, _v100: Node) -> Iterator[Node]:
    """Return a hybrid cube mesh node under policy ``none``, empty and offering all GPUs."""
    starts = _v100.kubelet_starts
    yield _v100
    _tidy(cluster, _v100, is_new_kubelet=_v100.kubelet_starts > starts)


def _with_agent(node: Node) -> Node:
    node.agent.start()
    node.wait_allocatable(GPU, 8)
    return node


def _tidy(cluster: Cluster, node: Node, *, is_new_kubelet: bool) -> None:
    """Bring the node back to how a test may expect to find it."""
    node.agent.heal()
    if not node.is_kubelet_running:
        node.start_kubelet()
    cluster.pods.delete_all()
    if is_new_kubelet:
        # It holds the GPUs of pods that are gone for taken until it has heard from the API
        # server (1.36 devicemanager, UpdateAllocatedDevices), which a pod that runs shows.
        cluster.pods.run(guaranteed("plain", node.name, {"cpu": 1, "memory": "64Mi"}))
        cluster.pods.delete("plain")
    # What it lists counts as taken, and it hears of the end of a pod from the API server.
    wait_for("the kubelet lists no pod", lambda: not node.pod_resources(), evidence=node.logs)
    # The Node may tell of the daemon before for two seconds more.
    wait_for("the daemon is registered", node.agent.registrations, evidence=node.logs)
    node.wait_allocatable(GPU, 8)
