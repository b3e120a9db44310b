"""Metric families and the shapes of samples that they share.

Names follow the Prometheus conventions: base units, ``_total`` for counters, ``_info`` for facts
whose value is 1. Facts come from memory; a scrape reads no hardware.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import islice
from typing import Generic, TypeAlias, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from nodetopo.formats.harmless import harmless
from nodetopo.model.limits import MAX_HCAS

PREFIX = "nodetopo_"

MOST_SERIES = MAX_HCAS
"""Of one family of one node, whatever the hardware and its drivers say; the rest is left out."""

LONGEST_LABEL = 512
"""Characters of the value of a label: drivers, kubelets and plugins wrote some."""


Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values of the labels, in the order of the family's labels → the value of the sample."""


Reading = TypeVar("Reading")
"""A component's metrics input, returned by ``observed``; all of one moment."""


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
class Family(Generic[Reading]):
    """One metric family, for scrapes and for the documentation.

    Attributes:
        section: its section of the page; sections list families in the order of components.
        name: without the prefix and a counter's ``_total``.
        text: the help text, one sentence without its full stop.
        labels: the names of the labels.
        samples: returns the samples, none while the facts are unknown.
        per: the objects that multiply the series.
        most: most series for each such object.
        when: the condition under which there are samples; empty if there always are.
        is_minimal: whether it is one of the few families that large fleets keep for every node.
    """

    name: str
    text: str
    section: Section
    samples: Callable[[Reading], Samples]
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE
    per: Per = Per.NODE
    most: int = 1
    when: str = ""
    is_minimal: bool = False

    @property
    def full_name(self) -> str:
        """The name in queries."""
        return f"{PREFIX}{self.name}{'_total' if self.kind is MetricKind.COUNTER else ''}"

    def metric(self, reading: Reading) -> Metric:
        """Return the family with the samples of *reading*."""
        make = CounterMetricFamily if self.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = make(f"{PREFIX}{self.name}", f"{self.text}.", labels=self.labels)
        for labelled, value in islice(self.samples(reading).items(), MOST_SERIES):
            family.add_metric([harmless(text, LONGEST_LABEL) for text in labelled], value)
        return family


def single(value: float | None) -> Samples:
    """Return the one sample of a family without labels; none if *value* is unknown."""
    return {} if value is None else {(): value}


def by_name(values: Mapping[str, float]) -> Samples:
    """Return a sample for each name, which is the only label."""
    return {(name,): value for name, value in values.items()}


def by_two_names(values: Mapping[str, Mapping[str, float]]) -> Samples:
    """Return a sample for each pair of names, which are the two labels."""
    return {(one, two): value for one, inner in values.items() for two, value in inner.items()}


def present(names: Iterable[str], among: Iterable[str]) -> Samples:
    """Return 1 for each of *names*, and 0 for those *among* the others that are not."""
    ones = set(names)
    return {(name,): float(name in ones) for name in sorted({*among, *ones})}


SCANNED = "the node was scanned"
"""The condition of families about the node, in several components."""
