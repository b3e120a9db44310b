"""How long jobs run, in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Protocol

from agent.simulate.draws import Uniform, normal

NINETIETH = 1.2815515655446004
"""The standard normal's 0.9 quantile."""


class RunTimes(Protocol):
    """A distribution of run times."""

    def draw(self, source: Uniform) -> float:
        """Return the run time of one job, seconds, not negative."""
        ...


@dataclass(frozen=True, slots=True)
class LogNormal:
    """The log-normal distribution with a given median and mean, seconds; mean above median."""

    median_s: float
    mean_s: float

    def draw(self, source: Uniform) -> float:
        """Return one run time; the mean of a log-normal is median × exp(sigma² / 2)."""
        sigma = sqrt(2 * log(self.mean_s / self.median_s))
        return self.median_s * exp(sigma * normal(source))


@dataclass(frozen=True, slots=True)
class HeavyTailed:
    """Log-normal up to the 90th percentile, and log-normal with a wider sigma beyond.

    One log-normal cannot meet median, 90th percentile and mean at once where a few jobs run
    for weeks. *tail* is the sigma of the longest tenth, chosen so that the mean is met.
    """

    median_s: float
    ninetieth_s: float
    tail: float

    def draw(self, source: Uniform) -> float:
        """Return one run time."""
        z = normal(source)
        if z > NINETIETH:
            return self.ninetieth_s * exp(self.tail * (z - NINETIETH))
        return self.median_s * exp(log(self.ninetieth_s / self.median_s) / NINETIETH * z)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Points (share of jobs that run no longer, seconds), ascending in both, joined by lines."""

    points: Sequence[tuple[float, float]]

    def draw(self, source: Uniform) -> float:
        """Return one run time; below the first point it is that point's, above the last too."""
        share = source.random()
        before_share, before_s = self.points[0]
        for at_share, at_s in self.points:
            if share < at_share:
                width = at_share - before_share
                part = (share - before_share) / width if width > 0 else 0.0
                return before_s + (at_s - before_s) * max(part, 0.0)
            before_share, before_s = at_share, at_s
        return before_s
