"""Zones as a component: what they say for a scrape."""

from pathlib import Path
from typing import Any

from nodetopo.components.zones.component import Zones
from nodetopo.kernel.http.families import readings
from tests.kernel.running import added, component_of, kernel_of


def test_writes_are_counted(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, publish_zones=True)
    idle: Any = readings(kernel)
    added(kernel, "zones")
    assert readings(kernel) == idle
    loop = component_of(kernel, Zones).loop
    assert loop._zone_writer is not None
    assert loop._zones is not None
    loop._zones.writes, loop._zone_writer.errors = 7, 3
    counted: Any = readings(kernel)
    assert (counted["zones"].zone_writes, counted["zones"].zone_errors) == (7, 3)
