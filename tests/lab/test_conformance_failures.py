"""A plugin that fails the kubelet: what the node shows, and that ours comes back.

The cases are those of Kubernetes' own end-to-end tests of device plugins (v1.36.3,
test/e2e_node/device_plugin_failures_test.go), told anew about our daemon; see
``docs/internals/conformance.md``. Their plugin is made to fail; ours is not, so a tap between it
and the kubelet fails in its place. Where theirs stays away for good, ours must register again.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.lab.grpc_proxy import Tap
from tests.lab.machine_node import Node
from tests.lab.pods import GPU
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab


@pytest.fixture
def tap(v100: Node) -> Iterator[Tap]:
    """Return a tap on the node; the daemon is for the test to start, with :func:`_start`."""
    v100.agent.stop()
    agent_side = v100.host.parent / "tap"
    with closing(Tap(agent_side=agent_side, kubelet_side=v100.agent.socket_dir)) as tap:
        yield tap
        v100.agent.end()
    shutil.rmtree(agent_side)


def test_a_plugin_whose_options_fail_is_not_used_and_ours_asks_again(v100: Node, tap: Tap) -> None:
    """It "when GetDevicePluginOptions fails, device plugin will not be used"."""
    tap.refuse("GetDevicePluginOptions")

    resource = _start(v100, tap, "options")
    _wait_calls(v100, tap, "GetDevicePluginOptions", 2)

    assert set(tap.calls) == {"GetDevicePluginOptions"}
    assert _amounts(v100, resource) == (None, None)
    tap.refuse()
    _wait_amounts(v100, resource, 8, 8)
    # The one line of the registration says what came before.
    assert "the tap refuses" in v100.agent.log_since_start()


def test_a_device_list_that_fails_at_once_leaves_nothing_and_ours_registers_again(
    v100: Node, tap: Tap
) -> None:
    """It "when ListAndWatch fails immediately, node allocatable will be set to zero and …"."""
    tap.refuse("ListAndWatch")

    resource = _start(v100, tap, "at-once")

    _wait_amounts(v100, resource, 0, 0)
    # The kubelet does not ask twice; each further call is a registration of ours.
    _wait_calls(v100, tap, "ListAndWatch", 2)
    tap.refuse()
    _wait_amounts(v100, resource, 8, 8)


def test_a_device_list_that_fails_later_leaves_the_capacity_and_ours_registers_again(
    v100: Node, tap: Tap
) -> None:
    """It "when ListAndWatch fails after provisioning devices, node allocatable will be …"."""
    resource = _start(v100, tap, "later")
    _wait_amounts(v100, resource, 8, 8)

    tap.refuse("ListAndWatch")

    _wait_amounts(v100, resource, 8, 0)
    _wait_calls(v100, tap, "ListAndWatch", 2)
    tap.refuse()
    _wait_amounts(v100, resource, 8, 8)


def test_a_plugin_that_is_stopped_leaves_the_capacity_and_comes_back(v100: Node) -> None:
    """It "when device plugin is stopped after provisioning devices, node allocatable …"."""
    v100.agent.stop()

    _wait_amounts(v100, GPU, 8, 0)
    v100.agent.start()
    _wait_amounts(v100, GPU, 8, 8)


def _start(node: Node, tap: Tap, name: str) -> str:
    """Start the daemon behind *tap*; return its resource, which the node never had before."""
    resource = f"lab.example/{name}"
    directory = ("--device-plugin-dir", str(tap.agent_side))
    node.agent.start([*directory, "--resource-name", resource])
    return resource


def _amounts(node: Node, resource: str) -> tuple[int | None, int | None]:
    return node.capacity(resource), node.allocatable(resource)


def _wait_amounts(node: Node, resource: str, capacity: int, allocatable: int) -> None:
    wait_for(
        f"the node has {capacity} of {resource} and offers {allocatable}",
        lambda: _amounts(node, resource) == (capacity, allocatable),
        evidence=node.logs,
    )


def _wait_calls(node: Node, tap: Tap, method: str, times: int) -> None:
    wait_for(
        f"the kubelet calls {method} {times} times",
        lambda: tap.calls.count(method) >= times,
        evidence=node.logs,
    )
