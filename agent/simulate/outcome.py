"""What a policy's choices were worth, in figures."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent.simulate.yardstick import Yardstick

Choice = tuple[int, int]
"""(free GPUs, chosen GPUs) at one decision, both as masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one policy did with one schedule.

    The figures are of the multi-GPU jobs smaller than the machine; ``None`` where there was
    none to measure. Shares lie between 0 and 1. Those of a best set, of which no other may be
    better, are ``None`` too where the best is not proven (Yardstick.is_exact):
    *mean_of_best*, *harmonic_of_best*, *offline_of_best*, *reached*, *fragmentation*.

    Attributes:
        decisions: all jobs that were placed; *measured* those that the figures are of.
        mean_gb_s, harmonic_gb_s: of the modelled bandwidth. The harmonic mean is that of jobs
            that each move the same data: it follows the time spent in communication.
        mean_of_best, harmonic_of_best: the same, of the bandwidth as a share of that of the
            best set of the job's size on the empty machine.
        offline_of_best: the mean share that the best free set would have had, decision by
            decision, in the states that this policy brought about.
        reached: mean of bandwidth / best bandwidth among the free sets.
        numa_split, nvlink_split: share of jobs that span more than they must (Yardstick.splits).
        rejected: share of the jobs that some NUMA node could hold whole, for which none had
            room: under the kubelet's ``single-numa-node`` these pods are not admitted.
        fragmentation: Yardstick.fragmentation, mean over time while two or more GPUs are free.
        crashes: answers that would have ended the original program.
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


def outcome(
    choices: Mapping[Choice, int],
    seconds_free: Mapping[int, float],
    crashes: int,
    yardstick: Yardstick,
) -> Outcome:
    """Return the figures of *choices*, each with how often it was made.

    *seconds_free* says for how long each set of GPUs was free.
    """
    figures = [
        (_figures(free, chosen, yardstick), count)
        for (free, chosen), count in choices.items()
        if 2 <= chosen.bit_count() < yardstick.gpus
    ]

    def mean(of: Callable[[_Figures], float]) -> float | None:
        return _mean((of(one), count) for one, count in figures)

    def of_best(of: Callable[[_Figures], float]) -> float | None:
        return mean(of) if yardstick.is_exact else None

    aligned = ((not one.is_aligned, count) for one, count in figures if one.fits_node)
    return Outcome(
        decisions=sum(choices.values()),
        measured=sum(count for _, count in figures),
        mean_gb_s=mean(lambda one: one.width / 10),
        harmonic_gb_s=_inverse(mean(lambda one: 10 / one.width)),
        mean_of_best=of_best(lambda one: one.width / one.alone),
        harmonic_of_best=_inverse(of_best(lambda one: one.alone / one.width)),
        offline_of_best=of_best(lambda one: one.offline / one.alone),
        reached=of_best(lambda one: one.width / one.offline),
        numa_split=mean(lambda one: one.is_numa_split),
        nvlink_split=mean(lambda one: one.is_nvlink_split),
        rejected=_mean(aligned),
        fragmentation=_fragmentation(seconds_free, yardstick),
        crashes=crashes,
    )


def _fragmentation(seconds_free: Mapping[int, float], yardstick: Yardstick) -> float | None:
    if not yardstick.is_exact:
        return None
    losses = ((yardstick.fragmentation(free), time) for free, time in seconds_free.items())
    return _mean((loss, time) for loss, time in losses if loss is not None)


class _Figures(NamedTuple):
    """One decision; the widths are bandwidths in 0.1 GB/s.

    *alone* is that of the best set of the empty machine, *offline* that of the best free set.
    """

    width: int
    alone: int
    offline: int
    is_numa_split: bool
    is_nvlink_split: bool
    fits_node: bool
    is_aligned: bool


def _figures(free: int, chosen: int, yardstick: Yardstick) -> _Figures:
    size = chosen.bit_count()
    is_numa_split, is_nvlink_split = yardstick.splits(chosen)
    return _Figures(
        width=yardstick.bandwidth(chosen),
        alone=yardstick.best(yardstick.everyone, size),
        offline=yardstick.best(free, size),
        is_numa_split=is_numa_split,
        is_nvlink_split=is_nvlink_split,
        fits_node=yardstick.fits_node(size),
        is_aligned=yardstick.has_aligned(free, size),
    )


def _mean(weighted: Iterable[tuple[float, float]]) -> float | None:
    total = weight = 0.0
    for value, share in weighted:
        total += value * share
        weight += share
    return total / weight if weight else None


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value
