"""Metrics of zones and placements."""

from dataclasses import dataclass

from nodetopo.kernel.http.family import Family, MetricKind, Section, single
from nodetopo.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonesReading:
    """Writes since the start of the process; the errors include silences of the kubelet."""

    zone_writes: int = 0
    zone_errors: int = 0


FAMILIES: tuple[Family[ZonesReading], ...] = (
    Family(
        name="zone_writes",
        section=Section.PUBLISHED,
        text="Writes of the NodeResourceTopology object and of placements to pods",
        kind=MetricKind.COUNTER,
        samples=lambda reading: single(reading.zone_writes),
    ),
    Family(
        name="zone_errors",
        section=Section.PUBLISHED,
        text="Failed attempts to read zones and placements from the kubelet, or to publish them",
        kind=MetricKind.COUNTER,
        samples=lambda reading: single(reading.zone_errors),
    ),
)


def idle(_snapshot: Snapshot | None) -> ZonesReading:
    """Return the reading while zones are off."""
    return ZonesReading()
