"""What the status page shows, as the daemon has it in memory."""

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
    """Everything at one moment. Two that are equal make the same page.

    Attributes:
        node: name of the Node object.
        simulated: the machine that stands in for the hardware; ``None`` on real hardware.
        settings: what is in force, as (name, value).
        snapshot: ``None`` before the first scan has ended; *generation* stands for it.
        generation: changes of the node since the start of the process.
        scanned_at: UTC; ``None`` before the first scan.
        not_ready: why /readyz says no, a line ``Reason: sentence`` each; ``None`` if it says yes.
        health: verdicts on GPUs; ``None`` where they are not watched.
        xid_counts: (GPU uuid, XID) → how often it was seen since the start.
        refusals: what is not offered and why, a sentence each.
        reports: ``health`` and ``audit``, as far as they were made.
        allocations: the latest, newest first.
        pods: ``None`` where no setting lets the daemon list them, or the kubelet did not answer.
        pod_names: names and uids of pods that *pods* and *reports* are about.
        shows_pods: whether names of pods may be shown.
        labels: that are to be published; ``None`` where none are.
        label_outputs: where they go.
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
    pod_names: frozenset[str] = frozenset()
    shows_pods: bool = False
    labels: Mapping[str, str] | None = None
    label_outputs: tuple[str, ...] = ()
