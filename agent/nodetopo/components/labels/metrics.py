"""Metrics of the labels that are published, over all outputs."""

from dataclasses import dataclass

from nodetopo.kernel.http.family import Reading, Section, counter, declared, metric


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsReading(Reading):
    """Writes, failed attempts and refused labels."""

    publish_writes: int = counter(
        Section.PUBLISHED, "Writes of labels, to all outputs", name="label_writes"
    )
    publish_errors: int = counter(
        Section.PUBLISHED, "Failed attempts to publish labels", name="label_errors"
    )
    publish_refused: int = metric(
        Section.PUBLISHED,
        "Labels that are not published because an output rejects their value",
        name="labels_refused",
    )


FAMILIES, idle = declared(LabelsReading), LabelsReading
