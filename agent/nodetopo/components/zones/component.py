"""Publishes each NUMA node's free resources, and each pod's NUMA nodes."""

from collections.abc import Iterable

from nodetopo.components.zones.loop import configured_zones_loop
from nodetopo.components.zones.metrics import ZonesReading
from nodetopo.kernel.component import Component, Kernel
from nodetopo.kernel.loops import Loop


class Zones(Component):
    """Runs the loop of the zones."""

    def __init__(self, kernel: Kernel) -> None:
        """Publish nothing yet; zones are republished for a recreated Node."""
        super().__init__(kernel)
        self.loop = configured_zones_loop(kernel.settings, kernel.store, kernel.published)
        kernel.follow_node(self.loop.note_node)

    def loops(self) -> Iterable[tuple[str, Loop]]:
        """Return the loop of the zones."""
        return (("zones", self.loop.run),)

    def observed(self) -> ZonesReading:
        """Return the counters of the loop."""
        return ZonesReading(zone_writes=self.loop.writes, zone_errors=self.loop.errors)
