"""Metrics of zones and placements; the errors include silences of the kubelet."""

from dataclasses import dataclass

from nodetopo.kernel.http.family import Reading, Section, counter, declared


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonesReading(Reading):
    """Writes since the start of the process."""

    zone_writes: int = counter(
        Section.PUBLISHED, "Writes of the NodeResourceTopology object and of placements to pods"
    )
    zone_errors: int = counter(
        Section.PUBLISHED,
        "Failed attempts to read zones and placements from the kubelet, or to publish them",
    )


FAMILIES, idle = declared(ZonesReading), ZonesReading
