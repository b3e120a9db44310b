"""What jobs ask for: how many GPUs, and for how long. Built in, from published figures.

Only figures are used, no trace is copied. Sizes that a source gives as a range count as its
upper end. Jobs larger than a node would go to several nodes and are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

from agent.simulate.draws import Uniform, Weighted
from agent.simulate.run_times import HeavyTailed, LogNormal, RunTimes


class Workload(Protocol):
    """A source of jobs."""

    def draw(self, source: Uniform) -> tuple[int, float]:
        """Return (GPUs, run time in seconds) of the next job."""
        ...

    def fitting(self, gpus: int) -> "tuple[Workload, float] | None":
        """Return the part whose jobs ask for at most *gpus*, and the share of jobs left out.

        ``None`` where no job fits.
        """
        ...


@dataclass(frozen=True)
class Mix:
    """Sizes and run times that do not depend on each other; *shares* are (GPUs, weight)."""

    shares: Sequence[tuple[int, float]]
    run_times: RunTimes

    @cached_property
    def _sizes(self) -> Weighted:
        return Weighted(*zip(*self.shares, strict=True))

    def draw(self, source: Uniform) -> tuple[int, float]:
        """Return the next job."""
        return self._sizes.draw(source), self.run_times.draw(source)

    def fitting(self, gpus: int) -> tuple[Workload, float] | None:
        """Return the mix of the sizes that fit, and the share of the others."""
        kept = [(size, weight) for size, weight in self.shares if size <= gpus]
        total = sum(weight for _, weight in self.shares)
        left_out = 1 - sum(weight for _, weight in kept) / total
        return (Mix(kept, self.run_times), max(left_out, 0.0)) if kept else None


@dataclass(frozen=True, slots=True)
class Recorded:
    """Jobs of a trace, (GPUs, seconds), drawn one by one with replacement."""

    jobs: Sequence[tuple[int, float]]

    def draw(self, source: Uniform) -> tuple[int, float]:
        """Return the next job."""
        return self.jobs[int(source.random() * len(self.jobs))]

    def fitting(self, gpus: int) -> tuple[Workload, float] | None:
        """Return the jobs that fit, and the share of the others."""
        kept = [job for job in self.jobs if job[0] <= gpus]
        return (Recorded(kept), 1 - len(kept) / len(self.jobs)) if kept else None


PHILLY_RUN_TIMES = HeavyTailed(median_s=1_186, ninetieth_s=12_860, tail=2.627)
"""Microsoft's Philly cluster (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU
Clusters", USENIX ATC 2019): 83,154 run times that alibaba/clusterdata holds as
``philly_runtime.csv``, median 1,186 s, 90th percentile 12,860 s, mean 14,613 s."""

PHILLY = Mix(((1, 68.7), (2, 3.0), (4, 13.4), (8, 12.6), (16, 2.4)), PHILLY_RUN_TIMES)
"""Sizes of 15,264 jobs in 15 virtual clusters of Philly, counted in the traces of
stanford-futuredata/gavel (Narayanan et al., OSDI 2020); 16 stands for all above 8."""

HELIOS_VENUS_RUN_TIMES = LogNormal(median_s=204, mean_s=13_041)
HELIOS_SATURN_RUN_TIMES = LogNormal(median_s=124, mean_s=5_253)
"""Clusters of SenseTime (Hu et al., "Characterization and Prediction of Deep Learning
Workloads in Large-Scale GPU Datacenters", SC 2021): the authors' summary of run times."""

PAI_RUN_TIMES = HeavyTailed(median_s=655, ninetieth_s=7_389, tail=2.68)
"""6,203 pods that started, of the 2023 ``openb`` pod list of alibaba/clusterdata: median
655 s, 90th percentile 7,389 s, mean 5,303 s with the longest cut to 200,000 s (30,851 s
uncut, most of it from pods that ran for all of the five months)."""

WORKLOADS: Mapping[str, Mix] = MappingProxyType(
    {
        "philly": PHILLY,
        "helios-venus": Mix(
            ((1, 51.8), (2, 5.6), (4, 7.4), (8, 25.2), (16, 10.0)),
            HELIOS_VENUS_RUN_TIMES,
        ),
        "helios-earth": Mix(
            ((1, 89.2), (2, 0.8), (4, 2.1), (8, 5.4), (16, 2.5)),
            HELIOS_SATURN_RUN_TIMES,
        ),
        "helios-saturn": Mix(
            ((1, 68.3), (2, 2.7), (4, 8.4), (8, 15.5), (16, 5.1)),
            HELIOS_SATURN_RUN_TIMES,
        ),
        "helios-uranus": Mix(
            ((1, 66.3), (2, 3.1), (4, 4.3), (8, 18.6), (16, 7.7)),
            HELIOS_SATURN_RUN_TIMES,
        ),
        "pai": Mix(((1, 6_989), (2, 222), (4, 206), (8, 556)), PAI_RUN_TIMES),
        "mixed": Mix(((1, 30), (2, 40), (4, 30)), PHILLY_RUN_TIMES),
    },
)
"""The built-in workloads.

``helios-*``: sizes of SenseTime's four clusters (Hu et al., SC 2021; read off the figure in
the authors' S-Lab-System-Group/HeliosArtifact), in classes of 1, 2, up to 4, up to 8 and more.
Run times of Earth and Uranus are not published apart; Saturn's stand in for them.
``pai``: 7,973 pods of Alibaba's PAI, variant ``multigpu50`` of the 2023 ``openb`` list, whose
fractions of a GPU count as whole ones. ``mixed``: made up, for nodes shared by many small
jobs; run times of Philly."""
