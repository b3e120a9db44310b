"""One metric family: its name, type, labels and meaning, and how its samples are found."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from agent.publish.metrics.state import MetricsState

PREFIX = "nodetopo_"

Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values of the labels, in the order of the family's → the number."""


class Kind(StrEnum):
    """Prometheus' types, as far as they are used."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family as the page and a scrape have it.

    Attributes:
        name: without the prefix and a counter's ``_total``.
        text: what the number means, one sentence without its full stop.
        labels: their names.
        samples: none where the facts are unknown.
    """

    name: str
    text: str
    samples: Callable[[MetricsState], Samples]
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE

    @property
    def full_name(self) -> str:
        """The name that queries use."""
        return f"{PREFIX}{self.name}{'_total' if self.kind is Kind.COUNTER else ''}"

    def metric(self, state: MetricsState) -> Metric:
        """Return the family with its samples of *state*."""
        make = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        family = make(f"{PREFIX}{self.name}", f"{self.text}.", labels=self.labels)
        for labelled, value in self.samples(state).items():
            family.add_metric(labelled, value)
        return family


def single(value: float | None) -> Samples:
    """Return the one sample of a family without labels; none where *value* is unknown."""
    return {} if value is None else {(): value}


def by_name(values: Mapping[str, float]) -> Samples:
    """Return a sample for each name, which is the only label."""
    return {(name,): value for name, value in values.items()}


def by_two_names(values: Mapping[str, Mapping[str, float]]) -> Samples:
    """Return a sample for each pair of names, which are the two labels."""
    return {(one, two): value for one, inner in values.items() for two, value in inner.items()}


def present(names: Iterable[str], among: Iterable[str]) -> Samples:
    """Return 1 for those of *among* and *names* that are in *names*, and 0 for the others."""
    found = set(names)
    return {(name,): float(name in found) for name in sorted({*among, *found})}
