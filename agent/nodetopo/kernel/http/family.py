"""Metrics, declared on the record that they are made from: one field is one metric family.

Names follow the Prometheus conventions: base units, ``_total`` for counters, ``_info`` for facts
whose value is 1. Facts come from memory; a scrape reads no hardware. This module loads no library.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, dataclass, field, fields
from enum import IntEnum, StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

from nodetopo.model.limits import MAX_HCAS
from nodetopo.model.snapshot import Snapshot

PREFIX = "nodetopo_"

MOST_SERIES = MAX_HCAS
"""Of one family of one node, whatever the hardware and its drivers say; the rest is left out."""

LONGEST_LABEL = 512
"""Characters of the value of a label: drivers, kubelets and plugins wrote some."""

SCANNED = "the node was scanned"
"""The condition of families about the node, in several components."""

Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values of the labels, in the order of the family's labels → the value of the sample."""


class MetricKind(StrEnum):
    """The types of Prometheus that are used."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Per(StrEnum):
    """The objects that multiply a family's series."""

    NODE = "node"
    GPU = "GPU"
    RESOURCE = "resource"
    HCA = "HCA"
    PORT = "port"
    """Of an HCA."""
    PROBLEM = "problem"
    """Nothing on a sound node; the page of the metrics has the limits."""


class Section(IntEnum):
    """The parts of the page of metrics, in their order; a component has families in several."""

    AGENT = 0
    """The process and its scans."""
    CHECKS = 1
    PUBLISHED = 2
    """Writes to the API server."""
    PROCESS = 3
    """Events, configuration, log and connections."""
    KUBELET = 4
    """Resources that are offered."""
    CLAIMS = 5
    """Devices that are given out by claim."""
    NODE = 6
    GPUS = 7
    HEALTH = 8
    PODS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric family, for scrapes and for the documentation."""

    name: str  # without the prefix and a counter's ``_total``
    text: str  # the help text, one sentence without its full stop
    section: Section
    # Returns the samples of a reading in any form that :func:`spread` takes.
    value: Callable[[Any], Any]
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE
    per: Per = Per.NODE
    most: int = 1  # most series for each of *per*
    when: str = ""  # the condition under which there are samples; empty if there always are
    # Whether it is one of the few families that large fleets keep for every node.
    is_minimal: bool = False

    @property
    def full_name(self) -> str:
        """The name in queries."""
        return f"{PREFIX}{self.name}{'_total' if self.kind is MetricKind.COUNTER else ''}"

    def samples(self, reading: Any) -> Samples:
        """Return the samples of *reading*, none while the facts are unknown."""
        return dict(spread(self.value(reading)))


def spread(value: Any, labels: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the samples in *value*: nested maps are labels, a text is a last one with the value 1.

    Unknown facts (None) have no sample.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            keys = key if isinstance(key, tuple) else (key,)
            yield from spread(inner, (*labels, *map(str, keys)))
    elif isinstance(value, str):
        yield (*labels, value), 1.0
    elif isinstance(value, AbstractSet):
        yield from (((*labels, name), 1.0) for name in sorted(value))
    elif value is not None:
        yield labels, float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the metrics of a component are made from, all of one moment."""

    snapshot: Snapshot | None = None  # ``None`` before the first scan has ended


def metric(
    section: Section,
    text: str,
    labels: str = "",
    *,
    of: Callable[[Any], Any] | None = None,
    default: Any = MISSING,
    **how: Any,
) -> Any:
    """Declare a field of a reading as a gauge; *of* computes its value from the reading instead.

    *how* has the rest of :class:`Family`; its ``name`` is the field's if it is left out.
    """
    family = {"text": text, "section": section, "labels": tuple(labels.split()), "value": of, **how}
    if labels and default is MISSING:
        return field(default_factory=dict, metadata={"family": family})
    return field(default=0 if default is MISSING else default, metadata={"family": family})


counter = partial(metric, kind=MetricKind.COUNTER)


def derived(
    name: str, section: Section, text: str, of: Callable[[Any], Any], labels: str = "", **how: Any
) -> Family:
    """Return the family of a fact that is no field: *of* computes it from the reading."""
    return Family(
        name=name, section=section, text=text, value=of, labels=tuple(labels.split()), **how
    )


def declared(reading: Any) -> tuple[Family, ...]:
    """Return the families that the fields of *reading* declare."""
    return tuple(
        Family(**{"name": each.name, **how, "value": how["value"] or attrgetter(each.name)})
        for each in fields(reading)
        if (how := each.metadata.get("family"))
    )


def present(names: Mapping[str, Any], among: Mapping[str, Any]) -> Mapping[str, bool]:
    """Return 1 for each of *names*, and 0 for those *among* the others that are not."""
    return {name: name in names for name in sorted({*among, *names})}
