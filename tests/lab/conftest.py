"""The lab as fixtures: one cluster and two nodes for the whole session, tidied after each test."""

import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.lab.build import binaries
from tests.lab.cluster import Cluster
from tests.lab.kubelet import Policies
from tests.lab.machine_node import Node
from tests.lab.namespace import unshare_flags
from tests.lab.pods import GPU
from tests.lab.waiting import has_tail

_NO_NAMESPACES = "the lab needs root or user namespaces (unshare --mount, or --user --mount)"
_LOGS: pytest.StashKey[Cluster] = pytest.StashKey()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test, whose time limit a cold build would exceed."""
    wanted = any(item.get_closest_marker("lab") for item in session.items)
    if wanted and not session.config.option.collectonly and unshare_flags() is not None:
        capture: Any = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            binaries()


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
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Return a running control plane without nodes."""
    if unshare_flags() is None:
        if os.environ.get("CI") == "true":
            pytest.fail(_NO_NAMESPACES)
        pytest.skip(_NO_NAMESPACES)
    lab = Cluster()
    lab.start()
    pytestconfig.stash[_LOGS] = lab
    yield lab
    lab.stop()


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
    yield _h100
    _tidy(cluster, _h100)


@pytest.fixture
def v100(cluster: Cluster, _v100: Node) -> Iterator[Node]:
    """Return a hybrid cube mesh node under policy ``none``, empty and offering all GPUs."""
    yield _v100
    _tidy(cluster, _v100)


def _with_agent(node: Node) -> Node:
    node.agent.start()
    node.wait_allocatable(GPU, 8)
    return node


def _tidy(cluster: Cluster, node: Node) -> None:
    """Bring the node back to how a test may expect to find it."""
    node.agent.heal()
    if not node.is_kubelet_running:
        node.start_kubelet()
    cluster.pods.delete_all()
    node.wait_allocatable(GPU, 8)
