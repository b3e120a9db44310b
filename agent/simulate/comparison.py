"""Policies side by side, over seeds: means, and how sure a difference is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import sqrt
from typing import Any

from agent.simulate.outcome import Outcome

STUDENT_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""0.975 quantiles of Student's t for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook of
Statistical Methods, 1.3.6.7.2)."""

NORMAL_975 = 1.96
"""The same of the normal distribution, which t is near to beyond."""


COUNTS = frozenset({"decisions", "measured", "crashes"})
"""The fields of :class:`Outcome` that add up over seeds; the others are averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Mean over seeds of (policy - first policy) in ``mean_of_best``, as shares of 1.

    *ci95* is half the width of its 95 % confidence interval, from the pairs of runs with equal
    arrivals; ``None`` for one seed.
    """

    mean: float
    ci95: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy: the mean over seeds of every figure, the sum of its counts.

    *against_first* is ``None`` for the first policy and where nothing was measured.
    """

    policy: str
    total: Outcome
    against_first: Difference | None


def compare(outcomes: Mapping[str, Sequence[Outcome]]) -> tuple[Row, ...]:
    """Return a row for each policy, in the order given; each has one outcome per seed."""
    first = next(iter(outcomes.values()))
    return tuple(
        Row(
            policy=policy,
            total=_total(runs),
            against_first=None if runs is first else _difference(first, runs),
        )
        for policy, runs in outcomes.items()
    )


def _total(runs: Sequence[Outcome]) -> Outcome:
    totals: dict[str, Any] = {}
    for field in fields(Outcome):
        values = [value for run in runs if (value := getattr(run, field.name)) is not None]
        if field.name in COUNTS:
            totals[field.name] = sum(values)
        else:
            is_harmonic = field.name.startswith("harmonic_")
            totals[field.name] = (harmonic_mean if is_harmonic else mean)(values)
    return Outcome(**totals)


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of *values*, ``None`` of none."""
    return sum(values) / len(values) if values else None


def harmonic_mean(values: Sequence[float]) -> float | None:
    """Return the harmonic mean of *values*, ``None`` of none."""
    return len(values) / sum(1 / value for value in values) if values else None


def _difference(first: Sequence[Outcome], runs: Sequence[Outcome]) -> Difference | None:
    gaps = [
        run.mean_of_best - other.mean_of_best
        for other, run in zip(first, runs, strict=True)
        if run.mean_of_best is not None and other.mean_of_best is not None
    ]
    middle = mean(gaps)
    return None if middle is None else Difference(mean=middle, ci95=half_width(gaps))


def half_width(values: Sequence[float]) -> float | None:
    """Return half the width of the 95 % confidence interval of the mean of *values*.

    ``None`` for fewer than two.
    """
    count, middle = len(values), mean(values)
    if middle is None or count < 2:
        return None
    deviation = sqrt(sum((value - middle) ** 2 for value in values) / (count - 1))
    t = STUDENT_975[count - 2] if count - 2 < len(STUDENT_975) else NORMAL_975
    return t * deviation / sqrt(count)
