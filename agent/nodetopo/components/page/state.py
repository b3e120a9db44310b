"""The content of the status page, from the daemon's memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodetopo.checks.engine import Report
from nodetopo.deviceplugin.allocation_log import LoggedAllocation
from nodetopo.kernel.shown import ListedPods, ResourceState
from nodetopo.model.gpu_health import HealthView
from nodetopo.model.nvml_event import NvmlStatus
from nodetopo.model.snapshot import Snapshot

PATHS = ("/", "/status", "/status.json")
"""Where the page is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """The page's content at one moment. Equal states make the same page.

    Attributes:
        node: name of the Node object.
        simulated: the machine that stands in for the hardware; ``None`` on real hardware.
        settings: in force, as (name, value).
        snapshot: ``None`` before the first scan has ended; *generation* stands for it.
        generation: changes of the node since the start of the process.
        scanned_at: UTC; ``None`` before the first scan.
        not_ready: why /readyz fails, a line ``Reason: sentence`` each; ``None`` if it succeeds.
        health: of GPUs; ``None`` where it is not watched.
        xid_counts: (GPU uuid, XID) → occurrences since the start.
        refusals: why a resource is not offered, a sentence each.
        reports: ``health`` and ``audit``, if available.
        allocations: the latest, newest first.
        pods: ``None`` if no setting lets the daemon list them, or the kubelet did not answer.
        pods_measured: ``aligned``, ``misaligned`` or ``unknown`` → pods; ``None`` if unknown.
        pod_names: names and uids of the pods in *pods* and *reports*.
        shows_pods: whether to show names of pods.
        labels: to be published; ``None`` where labels are off.
        label_outputs: their destinations.
    """

    node: str
    version: str
    nvml: NvmlStatus
    simulated: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    snapshot: Snapshot | None = field(default=None, compare=False)
    generation: int = 0
    scanned_at: datetime | None = None
    not_ready: str | None = None
    health: HealthView | None = None
    xid_counts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    resources: tuple[ResourceState, ...] = ()
    refusals: tuple[str, ...] = ()
    reports: Mapping[str, Report] = field(default_factory=dict)
    allocations: tuple[LoggedAllocation, ...] = ()
    pods: ListedPods | None = None
    pods_measured: Mapping[str, int] | None = None
    pod_names: frozenset[str] = frozenset()
    shows_pods: bool = False
    labels: Mapping[str, str] | None = None
    label_outputs: tuple[str, ...] = ()
