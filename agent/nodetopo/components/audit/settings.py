"""The settings of checks, measurements and explanations."""

# ruff: noqa: RUF009 - a setting is a call that returns a dataclass field

from dataclasses import dataclass
from pathlib import Path

from nodetopo.kernel.settings import values
from nodetopo.kernel.settings.groups import AUDIT
from nodetopo.kernel.settings.own import KernelSettings


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AuditSettings(KernelSettings):
    """The kernel's settings and the settings of checks, measurements and explanations."""

    checks_file: Path | None = AUDIT(
        None,
        "severities and waivers for `health`, `audit` and their metrics, YAML or JSON",
        values.path_or_none,
        "FILE",
        before="kubelet_url",
    )
    audit_node: bool = AUDIT(True, "run `audit` every ten minutes, for metrics")
    measure_pods: bool = AUDIT(
        True, "measure the alignment of pods with GPUs once a minute, for metrics"
    )
    publish_pod_events: bool = AUDIT(False, "post an Event on each misaligned pod")
    explain_rejections: bool = AUDIT(
        False, "explain the kubelet's rejections of pods, as Events and in the log"
    )
