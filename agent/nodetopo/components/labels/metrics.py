"""Metrics of the labels that are published."""

from dataclasses import dataclass

from nodetopo.kernel.http.family import Family, MetricKind, Section, single
from nodetopo.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsReading:
    """Writes, failed attempts and refused labels, over all outputs."""

    publish_writes: int = 0
    publish_errors: int = 0
    publish_refused: int = 0


FAMILIES: tuple[Family[LabelsReading], ...] = (
    Family(
        name="label_writes",
        section=Section.PUBLISHED,
        text="Writes of labels, to all outputs",
        kind=MetricKind.COUNTER,
        samples=lambda reading: single(reading.publish_writes),
    ),
    Family(
        name="label_errors",
        section=Section.PUBLISHED,
        text="Failed attempts to publish labels",
        kind=MetricKind.COUNTER,
        samples=lambda reading: single(reading.publish_errors),
    ),
    Family(
        name="labels_refused",
        section=Section.PUBLISHED,
        text="Labels that are not published because an output rejects their value",
        samples=lambda reading: single(reading.publish_refused),
    ),
)


def idle(_snapshot: Snapshot | None) -> LabelsReading:
    """Return the reading while no labels are published."""
    return LabelsReading()
