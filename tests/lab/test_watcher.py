"""Registration by ``plugins_registry``, with a real kubelet.

The plugins are made here, beside the agent's own, for a resource that nobody else offers.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.registration import Registration
from nodetopo.deviceplugin.response import GpuAnswers
from nodetopo.deviceplugin.settings import PluginSettings
from tests.deviceplugin.machines import GPUS, first
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

RESOURCE = "lab.example/watched"
Serve = Callable[[Registration], DevicePlugin]


@pytest.fixture
def serve(h100: Node) -> Iterator[Serve]:
    """Return what starts a plugin that is stopped after the test."""
    with ExitStack() as stack:
        # A kubelet that hears of this end later drops the next one for it.
        stack.callback(wait_for, "it has left", lambda: not h100.healthy(RESOURCE))

        def start(registration: Registration) -> DevicePlugin:
            plugin = DevicePlugin(
                RESOURCE,
                h100.agent.socket_dir,
                first,
                GpuAnswers(PluginSettings()),
                registration=registration,
                plugins_registry=h100.kubelet_dir / "plugins_registry",
            )
            stack.callback(plugin.stop)
            plugin.update(GPUS)
            plugin.start()
            return plugin

        yield start


def test_the_kubelet_finds_a_watched_plugin_and_finds_it_again(
    cluster: Cluster, h100: Node, serve: Serve
) -> None:
    plugin = serve(Registration.WATCHER)
    h100.wait_allocatable(RESOURCE, 8)
    job: dict[str, str | int] = {"cpu": 1, "memory": "64Mi", RESOURCE: 2}
    cluster.pods.run(guaranteed("watched", "h100", job))

    _wait_registered(h100, plugin, 1)
    plugin._servicer.hang_up()
    _wait_registered(h100, plugin, 2)

    h100.kill_kubelet()
    h100.start_kubelet()
    _wait_registered(h100, plugin, 3)
    h100.wait_allocatable(RESOURCE, 8)


def test_a_plugin_that_is_found_both_ways_is_offered_once(h100: Node, serve: Serve) -> None:
    plugin = serve(Registration.BOTH)
    _wait_registered(h100, plugin, 2)
    # The end of the socket before, of another test, makes kubelets up to 1.36 drop this one.
    wait_for(
        "the kubelet watches the plugin on both sockets",
        lambda: plugin.state.stream_count == 2,
        evidence=lambda: f"{plugin.state}\n{h100.logs()}",
    )
    h100.wait_allocatable(RESOURCE, 8)


def _wait_registered(node: Node, plugin: DevicePlugin, times: int) -> None:
    wait_for(
        f"the kubelet took the plugin {times} times",
        lambda: plugin.state.registrations >= times and plugin.state.is_registered,
        evidence=lambda: f"{plugin.state}\n{node.logs()}",
    )
