"""What the metrics of the GPUs are made from; it loads no library of metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetopo.model.gpu_health import HealthView
from nodetopo.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """The devices offered to the kubelet, and the health of the GPUs.

    Attributes:
        snapshot: ``None`` before the first scan has ended.
        registrations: resource → registrations that the kubelet accepted.
        is_registered: resource → whether it is registered now.
        conflicts: resource → the competing plugin that serves it, a sentence.
        devices: resource → ``healthy`` or ``unhealthy`` → offered devices.
        allocations: resource → containers that got devices of it.
        unchosen: resource → preferred allocations that were any valid set.
        lookups: ``known``, ``ambiguous`` or ``failed`` → lookups of requesters; empty where there
            are none.
        strategies: how devices are handed to containers; empty while nothing is offered.
        health: by GPU; empty where health is not watched.
        xid_counts: (GPU uuid, XID) → occurrences.
        nvml_failures: consecutive failures to read NVML.
        is_driver_paused: whether NVML is closed because a label asks for a free driver.
    """

    snapshot: Snapshot | None
    registrations: Mapping[str, int] = field(default_factory=dict)
    is_registered: Mapping[str, bool] = field(default_factory=dict)
    conflicts: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    allocations: Mapping[str, int] = field(default_factory=dict)
    unchosen: Mapping[str, int] = field(default_factory=dict)
    lookups: Mapping[str, int] = field(default_factory=dict)
    strategies: tuple[str, ...] = ()
    health: HealthView = field(default_factory=dict)
    xid_counts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    nvml_failures: int = 0
    is_driver_paused: bool = False
