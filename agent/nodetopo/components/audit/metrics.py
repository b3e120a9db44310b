"""Metrics of checks, of the alignment of pods, and of rejected pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetopo.kernel.http.family import (
    Family,
    MetricKind,
    Per,
    Section,
    by_name,
    by_two_names,
    single,
)
from nodetopo.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReading:
    """The results of the last checks and measurements.

    Attributes:
        check_counts: report (``health``, ``audit``) → verdict → number of checks.
        checks_broken: report → code of a broken check → ``fail`` or ``warn``.
        pods_measured: ``aligned``, ``misaligned`` or ``unknown`` → pods with GPUs; empty if they
            are not measured, or the kubelet did not answer.
        pods_misaligned: code of the first cause → misaligned pods.
        pod_errors: measurements that failed because the kubelet did not answer.
        rejections_explained, rejections_given_up: rejected pods.
    """

    check_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    checks_broken: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pods_measured: Mapping[str, int] = field(default_factory=dict)
    pods_misaligned: Mapping[str, int] = field(default_factory=dict)
    pod_errors: int = 0
    rejections_explained: int = 0
    rejections_given_up: int = 0


FAMILIES: tuple[Family[AuditReading], ...] = (
    Family(
        name="checks",
        section=Section.CHECKS,
        text="Checks by report (`health`, `audit`) and verdict: `pass`, `warn`, `fail`, "
        "`unknown`, `waived`, or `skipped` if a check does not apply to this node",
        labels=("report", "verdict"),
        most=12,
        when="the checks of the report have run",
        samples=lambda reading: by_two_names(reading.check_counts),
    ),
    Family(
        name="check_broken",
        section=Section.CHECKS,
        text="1 for each check that fails or warns and is not waived; `nodetopo explain CODE` "
        "explains its code",
        labels=("report", "code", "verdict"),
        per=Per.PROBLEM,
        when="a check fails or warns",
        samples=lambda reading: {
            (report, code, verdict): 1
            for report, checks in reading.checks_broken.items()
            for code, verdict in checks.items()
        },
    ),
    Family(
        name="pods_measured",
        section=Section.PODS,
        text="Running pods with GPUs or HCAs, by measured alignment: `aligned`, `misaligned`, "
        "`unknown`",
        labels=("verdict",),
        most=3,
        when="`measure-pods` is on and the kubelet answered",
        samples=lambda reading: by_name(reading.pods_measured),
    ),
    Family(
        name="pods_misaligned",
        section=Section.PODS,
        text="Running pods whose GPUs, CPUs, memory or HCAs are on different NUMA nodes, by "
        "the first cause: a check code (`nodetopo explain CODE`), or a word from "
        "`docs/reference/alignment.md`",
        labels=("reason",),
        per=Per.PROBLEM,
        when="a measured pod is misaligned",
        samples=lambda reading: by_name(reading.pods_misaligned),
    ),
    Family(
        name="pod_measurement_errors",
        section=Section.PODS,
        text="Failed measurements of pods, because the kubelet did not answer",
        kind=MetricKind.COUNTER,
        samples=lambda reading: single(reading.pod_errors),
    ),
    Family(
        name="rejections",
        section=Section.PODS,
        text="Pods rejected by the kubelet's managers, `explained` on the pod or `given-up`",
        labels=("outcome",),
        kind=MetricKind.COUNTER,
        most=2,
        samples=lambda reading: by_name(
            {"explained": reading.rejections_explained, "given-up": reading.rejections_given_up}
        ),
    ),
)


def idle(_snapshot: Snapshot | None) -> AuditReading:
    """Return the reading while checks and measurements are off."""
    return AuditReading()
