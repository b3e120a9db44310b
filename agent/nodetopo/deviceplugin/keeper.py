"""Keeps a device plugin on the kubelet for each resource that a node offers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import structlog
from msgspec import Struct

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.errors import InputError


class Served(Protocol):
    """A resource on the kubelet, as recorded by its owner."""

    @property
    def plugin(self) -> DevicePlugin:
        """The plugin that offers the resource."""


S = TypeVar("S", bound=Served)


class Servable(Struct, Generic[S], frozen=True, kw_only=True):
    """A resource for the kubelet."""

    devices: Sequence[PluginDevice]
    identity: object  # fixed for a running plugin; a changed identity needs a new plugin
    # Returns the served resource from now on, given its previous result if that plugin keeps
    # running, else None. A new plugin is not started yet.
    serve: Callable[[S | None], S]


class PluginKeeper(Generic[S]):
    """Starts, updates, and ends plugins as resources come, change, and go.

    One thread changes it; any thread can read it.
    """

    def __init__(self) -> None:
        self._identities: Mapping[str, object] = {}
        # The served resources by name, in the requested order.
        self.served: Mapping[str, S] = MappingProxyType({})  # replaced, not changed

    def keep(self, wanted: Mapping[str, Servable[S]], directories: Collection[Path]) -> None:
        """Serve only *wanted*, by resource, with sockets in *directories*.

        Plugins that cannot keep running end before any other starts, so that we never serve a
        resource twice. A resource whose socket path is too long is not served.
        """
        fitting = {name: item for name, item in wanted.items() if _fits(name, directories)}
        going_on: dict[str, S] = {}
        for name, served in self.served.items():
            if name not in fitting:
                served.plugin.retire()
            elif fitting[name].identity != self._identities[name]:
                served.plugin.stop()
            else:
                going_on[name] = served

        now: dict[str, S] = {}
        for name, item in fitting.items():
            before = going_on.get(name)
            now[name] = item.serve(before)
            now[name].plugin.update(item.devices)
            if before is None:
                now[name].plugin.start()
        self._identities = {name: item.identity for name, item in fitting.items()}
        self.served = MappingProxyType(now)


def _fits(resource: str, directories: Collection[Path]) -> bool:
    """Return whether sockets of *resource* fit into *directories*; log if not."""
    try:
        sockets.check_path_lengths(resource, directories)
    except InputError as error:  # other resources can have shorter names
        problem = str(error)
    else:
        return True
    structlog.get_logger().error("resource not served", resource=resource, problem=problem)
    return False
