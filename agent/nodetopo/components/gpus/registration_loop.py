"""Compare the kubelet's allocatable devices with those it accepted from our plugins.

The kubelet does not notify a replaced plugin, and keeps its stream open. Its own list (PodResources
GetAllocatableResources: the healthy devices that it knows) decides.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from nodetopo.deviceplugin.plugin import PluginState
from nodetopo.errors import UnreadableError
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.model.node import NodeOffer
from nodetopo.probes.kubelet.podresources import PodResources

ASK_S = 10.0
"""Interval between questions to the kubelet while it lists the devices: 2 ms of CPU each. The end
of another instance is noticed at once, by its socket; this finds changes without such a trace.
"""

DOUBT_S = 1.0
"""The same while devices are missing."""

UNLISTED_S = 3.0
"""Devices missing for this long are not registered. A starting kubelet, and one that switches from
our plugin to another, need less: the list arrives within milliseconds of a registration, and at
most a second after a change.
"""

AGAIN_S = (5.0, 300.0)
"""First and longest pause between two registrations of a resource that the kubelet does not list;
it doubles in between."""


class Kubelet(Protocol):
    """The kubelet's PodResources API."""

    def offer(self) -> NodeOffer:
        """Return the kubelet's allocatable devices; raises UnreadableError."""

    def close(self) -> None:
        """Close the connection."""


class Plugin(Protocol):
    """The device plugin of one resource."""

    @property
    def state(self) -> PluginState:
        """Its current state."""

    @property
    def healthy_ids(self) -> frozenset[str]:
        """The devices that the kubelet is to list."""

    def doubt(self, problem: str) -> None:
        """Register again, and count as not registered until :meth:`confirm`."""

    def confirm(self) -> None:
        """End the doubt."""


class _Missing(Struct):
    """A resource whose devices the kubelet does not list."""

    since: float  # when that was seen first
    doubted_at: float | None = None  # when it was last registered again; ``None`` before
    pause_s: float = AGAIN_S[0]  # how long it then has


@dataclass(slots=True)
class RegistrationLoop(PeriodicLoop):
    """Re-registers plugins whose devices the kubelet does not list; one thread runs it.

    Args:
        plugins: returns the plugins by resource.
        kubelet: lists its allocatable devices.
    """

    plugins: Callable[[], Mapping[str, Plugin]]
    kubelet: Kubelet
    clock: Callable[[], float] = time.monotonic
    _missing: dict[str, _Missing] = field(default_factory=dict)

    def step(self) -> float:
        """Ask the kubelet; return the seconds until the next question."""
        if plugins := self.plugins():
            self._compare(plugins, self.clock())
        return DOUBT_S if self._missing else ASK_S

    def close(self) -> None:
        """Close the connection to the kubelet."""
        self.kubelet.close()

    def _compare(self, plugins: Mapping[str, Plugin], now: float) -> None:
        """Ask the kubelet, and judge each resource by the answer."""
        try:
            offer = self.kubelet.offer()
        except UnreadableError:  # an unknown list is no reason for doubt
            self._missing.clear()
            for plugin in plugins.values():
                plugin.confirm()
            return
        listed: dict[str, set[str]] = {}
        for device in offer.devices:
            listed.setdefault(device.resource, set()).add(device.id)
        self._missing = {name: it for name, it in self._missing.items() if name in plugins}
        for resource, plugin in plugins.items():
            self._judge(resource, plugin, listed.get(resource, ()), now)

    def _judge(self, resource: str, plugin: Plugin, listed: Collection[str], now: float) -> None:
        """Doubt the registration of *plugin* if none of its devices has been *listed* recently."""
        state, ids = plugin.state, plugin.healthy_ids
        if not ids or state.conflict is not None or not ids.isdisjoint(listed):
            self._missing.pop(resource, None)
            plugin.confirm()
            return
        if not state.is_registered and state.unlisted is None:
            self._missing.pop(resource, None)  # the plugin knows that it is not registered
            return
        missing = self._missing.setdefault(resource, _Missing(since=now))
        if missing.doubted_at is None:
            if now - missing.since < UNLISTED_S:
                return
        elif now - missing.doubted_at < missing.pause_s:
            return
        else:
            missing.pause_s = min(2 * missing.pause_s, AGAIN_S[1])
        missing.doubted_at = now
        plugin.doubt(
            f"the kubelet accepted {resource} and lists none of its {len(ids)} devices as "
            "allocatable — another device plugin may have taken it: see the sockets beside ours"
        )


def loop_of(plugins: Callable[[], Mapping[str, Plugin]], socket: Path) -> RegistrationLoop:
    """Return the loop that asks the kubelet behind *socket*."""
    return RegistrationLoop(plugins, PodResources(socket))
