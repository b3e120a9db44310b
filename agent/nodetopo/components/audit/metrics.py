"""Metrics of checks, of the alignment of pods, and of rejected pods."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodetopo.kernel.http.family import Per, Reading, Section, counter, declared, metric


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReading(Reading):
    """The results of the last checks and measurements."""

    check_counts: Mapping[str, Mapping[str, int]] = metric(
        Section.CHECKS,
        "Checks by report (`health`, `audit`) and verdict: `pass`, `warn`, `fail`, "
        "`unknown`, `waived`, or `skipped` if a check does not apply to this node",
        "report verdict",
        name="checks",
        most=12,
        when="the checks of the report have run",
    )
    checks_broken: Mapping[str, Mapping[str, str]] = metric(
        Section.CHECKS,
        "1 for each check that fails or warns and is not waived; `nodetopo explain CODE` "
        "explains its code",
        "report code verdict",
        name="check_broken",
        per=Per.PROBLEM,
        when="a check fails or warns",
    )
    pods_measured: Mapping[str, int] = metric(
        Section.PODS,
        "Running pods with GPUs or HCAs, by measured alignment: `aligned`, `misaligned`, `unknown`",
        "verdict",
        most=3,
        when="`measure-pods` is on and the kubelet answered",
    )
    pods_misaligned: Mapping[str, int] = metric(
        Section.PODS,
        "Running pods whose GPUs, CPUs, memory or HCAs are on different NUMA nodes, by "
        "the first cause: a check code (`nodetopo explain CODE`), or a word from "
        "`docs/reference/alignment.md`",
        "reason",
        per=Per.PROBLEM,
        when="a measured pod is misaligned",
    )
    pod_errors: int = counter(
        Section.PODS,
        "Failed measurements of pods, because the kubelet did not answer",
        name="pod_measurement_errors",
    )
    rejections_explained: int = counter(
        Section.PODS,
        "Pods rejected by the kubelet's managers, `explained` on the pod or `given-up`",
        "outcome",
        name="rejections",
        of=lambda it: {"explained": it.rejections_explained, "given-up": it.rejections_given_up},
        default=0,
        most=2,
    )
    rejections_given_up: int = 0


FAMILIES, idle = declared(AuditReading), AuditReading
