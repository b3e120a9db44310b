"""The figures of a policy's choices, and the comparison of policies over seeds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from tests.bench.traces.yardstick import Yardstick

Choice = tuple[int, int]
"""(free GPUs, chosen GPUs) at one decision, both as masks."""

STUDENT_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""0.975 quantiles of Student's t for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook of
Statistical Methods, 1.3.6.7.2)."""

NORMAL_975 = 1.96
"""The same of the normal distribution, to which t is close beyond."""

COUNTS = frozenset({"decisions", "measured", "crashes"})
"""The fields of :class:`Outcome` that add up over seeds; the others are averaged."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The figures of one policy on one schedule.

    They cover the multi-GPU jobs smaller than the machine; ``None`` without any. Shares lie between
    0 and 1. Figures relative to the best set are also ``None`` if the best is not proven
    (Yardstick.is_exact): *mean_of_best*, *harmonic_of_best*, *offline_of_best*, *reached*,
    *fragmentation*.

    Attributes:
        decisions: all placed jobs; *measured*: the jobs that the figures cover.
        mean_gb_s, harmonic_gb_s: of the modelled bandwidth. The harmonic mean assumes jobs that
            each move the same data: it follows the time spent in communication.
        mean_of_best, harmonic_of_best: the same, for the bandwidth as a share of the best set of
            the job's size on the empty machine.
        offline_of_best: the mean share of the best free set, decision by decision, in the states
            caused by this policy.
        reached: mean of bandwidth / best bandwidth among the free sets.
        numa_split, nvlink_split: share of jobs that span more than they must (Yardstick.splits).
        rejected: share of the jobs that would fit into an empty NUMA node, but found none with
            room: under the kubelet's ``single-numa-node`` these pods are not admitted.
        fragmentation: Yardstick.fragmentation, mean over time while two or more GPUs are free.
        crashes: answers that would have crashed the original program.
    """

    decisions: int
    measured: int
    mean_gb_s: float | None
    harmonic_gb_s: float | None
    mean_of_best: float | None
    harmonic_of_best: float | None
    offline_of_best: float | None
    reached: float | None
    numa_split: float | None
    nvlink_split: float | None
    rejected: float | None
    fragmentation: float | None
    crashes: int


class Difference(Struct, frozen=True, kw_only=True):
    """Mean over seeds of (policy - first policy) in ``mean_of_best``, as shares of 1.

    *ci95* is half the width of its 95 % confidence interval, from the pairs of runs with equal
    arrivals; ``None`` for one seed.
    """

    mean: float
    ci95: float | None


class Row(Struct, frozen=True, kw_only=True):
    """A policy's mean of every figure over seeds, and the sum of its counts.

    *against_first* is ``None`` for the first policy and without measurements.
    """

    policy: str
    total: Outcome
    against_first: Difference | None


def outcome(
    choices: Mapping[Choice, int],
    seconds_free: Mapping[int, float],
    crashes: int,
    yardstick: Yardstick,
) -> Outcome:
    """Return the figures of *choices*, each with its number of occurrences.

    *seconds_free* has the time for which each set of GPUs was free.
    """
    decisions = [
        (_Decision(free, chosen, yardstick), count)
        for (free, chosen), count in choices.items()
        if 2 <= chosen.bit_count() < yardstick.gpus
    ]

    def mean(of: Callable[[_Decision], float]) -> float | None:
        return _mean((of(decision), count) for decision, count in decisions)

    def of_best(of: Callable[[_Decision], float]) -> float | None:
        return mean(of) if yardstick.is_exact else None

    aligned = ((not one.is_aligned, count) for one, count in decisions if one.fits_node)
    losses = (
        (loss, seconds)
        for free, seconds in (seconds_free if yardstick.is_exact else {}).items()
        if (loss := yardstick.fragmentation(free)) is not None
    )
    return Outcome(
        decisions=sum(choices.values()),
        measured=sum(count for _, count in decisions),
        mean_gb_s=mean(lambda one: one.width / 10),
        harmonic_gb_s=_inverse(mean(lambda one: 10 / one.width)),
        mean_of_best=of_best(lambda one: one.width / one.alone),
        harmonic_of_best=_inverse(of_best(lambda one: one.alone / one.width)),
        offline_of_best=of_best(lambda one: one.offline / one.alone),
        reached=of_best(lambda one: one.width / one.offline),
        numa_split=mean(lambda one: one.is_numa_split),
        nvlink_split=mean(lambda one: one.is_nvlink_split),
        rejected=_mean(aligned),
        fragmentation=_mean(losses),
        crashes=crashes,
    )


def compare(outcomes: Mapping[str, Sequence[Outcome]]) -> tuple[Row, ...]:
    """Return a row for each policy, in the order given; each has one outcome per seed."""
    first = next(iter(outcomes.values()))
    rows = []
    for policy, runs in outcomes.items():
        totals: dict[str, Any] = {}
        for field in fields(Outcome):
            values = [value for run in runs if (value := getattr(run, field.name)) is not None]
            if field.name in COUNTS:
                totals[field.name] = sum(values)
            elif field.name.startswith("harmonic_"):
                totals[field.name] = harmonic_mean(values)
            else:
                totals[field.name] = mean(values)
        gaps = [
            run.mean_of_best - other.mean_of_best
            for other, run in zip(first, runs, strict=True)
            if run.mean_of_best is not None and other.mean_of_best is not None
        ]
        middle = None if runs is first else mean(gaps)
        difference = None if middle is None else Difference(mean=middle, ci95=half_width(gaps))
        rows.append(Row(policy=policy, total=Outcome(**totals), against_first=difference))
    return tuple(rows)


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of *values*, ``None`` of none."""
    return sum(values) / len(values) if values else None


def harmonic_mean(values: Sequence[float]) -> float | None:
    """Return the harmonic mean of *values*, ``None`` of none."""
    return len(values) / sum(1 / value for value in values) if values else None


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


class _Decision:
    """One decision; *width*, *alone* and *offline* are bandwidths in 0.1 GB/s.

    *alone* is the best set's on the empty machine, *offline* the best free set's.
    """

    __slots__ = (
        "alone", "fits_node", "is_aligned", "is_numa_split", "is_nvlink_split", "offline", "width",
    )  # fmt: skip

    def __init__(self, free: int, chosen: int, yardstick: Yardstick) -> None:
        size = chosen.bit_count()
        self.width = yardstick.bandwidth(chosen)
        self.alone = yardstick.best(yardstick.everyone, size)
        self.offline = yardstick.best(free, size)
        self.is_numa_split, self.is_nvlink_split = yardstick.splits(chosen)
        self.fits_node = yardstick.fits_node(size)
        self.is_aligned = yardstick.has_aligned(free, size)


def _mean(weighted: Iterable[tuple[float, float]]) -> float | None:
    total = weight = 0.0
    for value, share in weighted:
        total += value * share
        weight += share
    return total / weight if weight else None


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value
