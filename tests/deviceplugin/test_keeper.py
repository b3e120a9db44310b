"""Plugins start, go on, and end as their resources come, change, and go."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.keeper import PluginKeeper, Servable
from nodetopo.deviceplugin.plugin import DevicePlugin

HERE = Path("/run")
DEVICES = (PluginDevice(id="a"), PluginDevice(id="b"))


class NotedPlugin:
    """Notes what becomes of a plugin."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self._name = name
        self._notes = notes

    def update(self, devices: Sequence[PluginDevice]) -> None:
        """Offer *devices*."""
        self._notes.append(f"{self._name}: {len(devices)} devices")

    def start(self) -> None:
        """Serve."""
        self._notes.append(f"{self._name}: start")

    def retire(self) -> None:
        """End for good."""
        self._notes.append(f"{self._name}: retire")

    def stop(self) -> None:
        """End for another plugin."""
        self._notes.append(f"{self._name}: stop")


class Noted(Struct, frozen=True):
    """A resource as it is served."""

    plugin: DevicePlugin
    times: int = 1


class Node:
    """Keeps plugins of resources without devices of their own.

    Attributes:
        notes: what became of the plugins, in order.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.keeper = PluginKeeper[Noted]()

    def keep(
        self,
        wanted: dict[str, object],
        devices: Sequence[PluginDevice] = DEVICES,
        directory: Path = HERE,
    ) -> list[str]:
        """Serve *wanted*, resource → identity; return what became of the plugins by that."""
        self.notes.clear()
        items = {
            name: Servable(devices=devices, identity=identity, serve=self.serving(name))
            for name, identity in wanted.items()
        }
        self.keeper.keep(items, [directory])
        return list(self.notes)

    def serving(self, name: str) -> Callable[[Noted | None], Noted]:
        """Return what serves the resource *name*."""

        def serve(before: Noted | None) -> Noted:
            if before is not None:
                return Noted(before.plugin, before.times + 1)
            return Noted(cast("DevicePlugin", NotedPlugin(name, self.notes)))

        return serve


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_new_resource_has_its_devices_before_its_plugin_starts(node: Node) -> None:
    assert node.keep({"x": 1}) == ["x: 2 devices", "x: start"]


def test_a_plugin_goes_on_while_its_identity_is_the_same(node: Node) -> None:
    node.keep({"x": 1})
    plugin = node.keeper.served["x"].plugin
    assert node.keep({"x": 1}, DEVICES[:1]) == ["x: 1 devices"]
    served = node.keeper.served["x"]
    assert (served.plugin, served.times) == (plugin, 2)


def test_another_identity_needs_another_plugin_after_the_first_has_ended(node: Node) -> None:
    node.keep({"x": 1})
    assert node.keep({"x": 2}) == ["x: stop", "x: 2 devices", "x: start"]
    assert node.keep({"x": 2}) == ["x: 2 devices"]


def test_a_resource_that_is_gone_is_withdrawn_before_any_other_starts(node: Node) -> None:
    node.keep({"x": 1})
    assert node.keep({"y": 1}) == ["x: retire", "y: 2 devices", "y: start"]
    assert list(node.keeper.served) == ["y"]
    assert node.keep({}) == ["y: retire"]
    assert node.keep({}) == []


def test_a_resource_that_comes_back_has_a_new_plugin(node: Node) -> None:
    node.keep({"x": 1})
    node.keep({})
    assert node.keep({"x": 1}) == ["x: 2 devices", "x: start"]


def test_resources_are_served_in_the_order_that_was_asked_for(node: Node) -> None:
    node.keep({"b": 1, "a": 1})
    node.keep({"c": 1, "a": 1, "b": 1})
    assert list(node.keeper.served) == ["c", "a", "b"]


def test_what_is_read_meanwhile_is_not_changed(node: Node) -> None:
    node.keep({"x": 1})
    before = node.keeper.served
    node.keep({"y": 1})
    assert list(before) == ["x"]


def test_a_resource_whose_socket_path_is_too_long_leaves_others_served(node: Node) -> None:
    deep = Path("/", "d" * 70)
    node.keep({"x": 1, "y": 1}, directory=deep)
    with capture_logs() as lines:
        became = node.keep({"long-name": 1, "x": 1}, directory=deep)
    assert became == ["y: retire", "x: 2 devices"]
    (line,) = lines
    assert (line["log_level"], line["event"]) == ("error", "resource not served")
    assert line["resource"] == "long-name"
    assert list(node.keeper.served) == ["x"]


def test_a_running_plugin_whose_socket_path_has_become_too_long_is_withdrawn(node: Node) -> None:
    node.keep({"x": 1})
    assert node.keep({"x": 1}, directory=Path("/", "d" * 100)) == ["x: retire"]
    assert not node.keeper.served
