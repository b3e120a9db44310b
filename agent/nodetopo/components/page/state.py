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
    """The page's content at one moment. Equal states make the same page."""

    node: str
    version: str
    nvml: NvmlStatus
    simulated: str | None = None  # the machine that stands in; None on real hardware
    settings: tuple[tuple[str, str], ...] = ()  # in force, as (name, value)
    # None before the first scan has ended; `generation` stands for it.
    snapshot: Snapshot | None = field(default=None, compare=False)
    generation: int = 0  # changes of the node since the process started
    scanned_at: datetime | None = None  # UTC; None before the first scan
    # Why /readyz fails, a line `Reason: sentence` each; None if it succeeds.
    not_ready: str | None = None
    health: HealthView | None = None  # of GPUs; None where it is not watched
    # (GPU uuid, XID) → count since the start
    xid_counts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    resources: tuple[ResourceState, ...] = ()
    refusals: tuple[str, ...] = ()  # why a resource is not offered, a sentence each
    # `health` and `audit`, if available
    reports: Mapping[str, Report] = field(default_factory=dict)
    allocations: tuple[LoggedAllocation, ...] = ()  # newest first
    # None if no setting lets the daemon list them, or the kubelet did not answer.
    pods: ListedPods | None = None
    pods_measured: Mapping[str, int] | None = None  # aligned, misaligned, or unknown → pods
    pod_names: frozenset[str] = frozenset()  # names and uids of the pods in `pods` and `reports`
    shows_pods: bool = False  # their names
    labels: Mapping[str, str] | None = None  # None where labels are off
    label_outputs: tuple[str, ...] = ()  # destinations
