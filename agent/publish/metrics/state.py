"""What the metrics and the probes of one agent tell, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.health.status import HealthView
from agent.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsState:
    """All that is told, at one moment; counters are since the start of the process.

    Attributes:
        snapshot: ``None`` before the first scan has ended.
        not_ready: why /readyz says no, a line for each reason; ``None`` where it says yes.
        registrations: resource → registrations that the kubelet accepted.
        is_registered: resource → whether the kubelet has it now.
        conflicts: resource → what is known of the other plugin that took it.
        devices: resource → ``healthy`` or ``unhealthy`` → devices that the kubelet was told of.
        allocations: resource → containers that got devices of it.
        check_counts: report (``health``, ``audit``) → verdict → number of checks.
        checks_broken: report → code of a check that is broken → ``fail`` or ``warn``.
        health: by GPU; empty where health is not watched.
        xid_counts: (GPU uuid, XID) → how often it was seen.
        nvml_failures: readings in a row that NVML did not give.
        config: name of the configuration in force; ``None`` where nothing chooses one.
        config_failures: changes of the configuration that were refused.
        events_posted: writes of Kubernetes Events.
        events_dropped: Events that were given up.
        pods_measured: ``aligned``, ``misaligned`` or ``unknown`` → pods with GPUs; empty where they
            are not measured, or the kubelet did not answer.
        pods_misaligned: code of the first cause → misaligned pods.
        pod_errors: looks at pods at which the kubelet did not answer.
        rejections_explained, rejections_given_up: rejected pods.
    """

    snapshot: Snapshot | None
    not_ready: str | None = None
    generation: int = 0
    registrations: Mapping[str, int] = field(default_factory=dict)
    is_registered: Mapping[str, bool] = field(default_factory=dict)
    conflicts: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    allocations: Mapping[str, int] = field(default_factory=dict)
    publish_writes: int = 0
    publish_errors: int = 0
    publish_refused: int = 0
    zone_writes: int = 0
    zone_errors: int = 0
    check_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    checks_broken: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    health: HealthView = field(default_factory=dict)
    xid_counts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    nvml_failures: int = 0
    config: str | None = None
    config_failures: int = 0
    events_posted: int = 0
    events_dropped: int = 0
    pods_measured: Mapping[str, int] = field(default_factory=dict)
    pods_misaligned: Mapping[str, int] = field(default_factory=dict)
    pod_errors: int = 0
    rejections_explained: int = 0
    rejections_given_up: int = 0
