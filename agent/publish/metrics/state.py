"""The state that the metrics and the probes of one agent report."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.health.hca import HcaHealthView
from agent.health.status import HealthView
from agent.model.snapshot import Snapshot
from agent.publish.metrics.process import ProcessSample


@dataclass(frozen=True, slots=True, kw_only=True)
class DraState:
    """What our DRA driver does.

    Attributes:
        is_registered: whether the kubelet has it.
        claims: that are prepared.
        claimed_gpus: GPUs behind them.
        writes, errors: slices written, and attempts that failed.
        shared_gpus: GPUs that another DRA driver has as well.
        dropped: fields of slices that the API server does not keep.
    """

    is_registered: bool
    claims: int
    claimed_gpus: int
    writes: int
    errors: int
    shared_gpus: int = 0
    dropped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsState:
    """Everything that is reported at one moment; counters count since the start of the process.

    Attributes:
        snapshot: ``None`` before the first scan has ended.
        not_ready: why /readyz says no, a line for each reason; ``None`` if it says yes.
        generation: changes of the node since the start of the process.
        registrations: resource → registrations that the kubelet accepted.
        is_registered: resource → whether the kubelet has it now.
        conflicts: resource → which competing plugin serves it, a sentence.
        devices: resource → ``healthy`` or ``unhealthy`` → devices that are offered to the kubelet.
        allocations: resource → containers that were given devices of it.
        unchosen: resource → preferred allocations that were any valid set.
        joint: ``right``, ``wrong`` or ``unknown`` → allocations of HCAs and GPUs that were taken
            for one container's; empty where no HCAs are offered.
        dra_gpus: driver → GPUs that it publishes; empty where no driver publishes any.
        dra: of our own DRA driver; ``None`` where it is off.
        publish_writes, publish_errors, publish_refused: of labels, over all outputs.
        zone_writes, zone_errors: of zones and of placements onto pods.
        check_counts: report (``health``, ``audit``) → verdict → number of checks.
        checks_broken: report → code of a broken check → ``fail`` or ``warn``.
        health: by GPU; empty where health is not watched.
        xid_counts: (GPU uuid, XID) → how often it was seen.
        hca_health: by key; empty while no HCAs are offered, or their health is not watched.
        hca_counters: (name of the HCA, number of the port) → counter → count.
        nvml_failures: consecutive failures to read NVML.
        is_driver_paused: whether NVML is closed because a label asks for a free driver.
        strategies: how devices are handed to containers; empty while nothing is offered.
        config: name of the configuration in force; ``None`` if nothing selects one.
        config_failures: changes of the configuration that were refused.
        events_posted: writes of Kubernetes Events.
        events_dropped: Events that were never written.
        log_lines_dropped: lines of the log that standard error did not take.
        connections: open ones to the port of the metrics; ``None`` where nothing serves it.
        connections_refused: reason → connections that got no answer.
        pods_measured: ``aligned``, ``misaligned`` or ``unknown`` → pods with GPUs; empty if they
            are not measured, or the kubelet did not answer.
        pods_misaligned: code of the first cause → misaligned pods.
        pod_errors: measurements for which the kubelet did not answer.
        rejections_explained, rejections_given_up: rejected pods.
        process: what the process used when that was last read; ``None`` if it was not.
    """

    snapshot: Snapshot | None
    not_ready: str | None = None
    generation: int = 0
    registrations: Mapping[str, int] = field(default_factory=dict)
    is_registered: Mapping[str, bool] = field(default_factory=dict)
    conflicts: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    allocations: Mapping[str, int] = field(default_factory=dict)
    unchosen: Mapping[str, int] = field(default_factory=dict)
    joint: Mapping[str, int] = field(default_factory=dict)
    dra_gpus: Mapping[str, int] = field(default_factory=dict)
    dra: DraState | None = None
    publish_writes: int = 0
    publish_errors: int = 0
    publish_refused: int = 0
    zone_writes: int = 0
    zone_errors: int = 0
    check_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    checks_broken: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    health: HealthView = field(default_factory=dict)
    xid_counts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    hca_health: HcaHealthView = field(default_factory=dict)
    hca_counters: Mapping[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)
    nvml_failures: int = 0
    is_driver_paused: bool = False
    strategies: tuple[str, ...] = ()
    config: str | None = None
    config_failures: int = 0
    events_posted: int = 0
    events_dropped: int = 0
    log_lines_dropped: int = 0
    connections: int | None = None
    connections_refused: Mapping[str, int] = field(default_factory=dict)
    pods_measured: Mapping[str, int] = field(default_factory=dict)
    pods_misaligned: Mapping[str, int] = field(default_factory=dict)
    pod_errors: int = 0
    rejections_explained: int = 0
    rejections_given_up: int = 0
    process: ProcessSample | None = None
