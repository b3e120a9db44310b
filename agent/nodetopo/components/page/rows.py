"""The rows of the status page: one content for HTML and for JSON."""

from collections.abc import Mapping

from msgspec import Struct


class GpuRow(Struct, frozen=True, kw_only=True):
    """One GPU."""

    index: int
    name: str
    uuid: str | None
    product: str | None
    state: str  # healthy, degraded, unhealthy, or unknown
    reason: str | None  # for a person; None for a sound GPU
    # Who has it or a part of it, `pod 1` or a name; empty if free, None if unknown.
    holders: tuple[str, ...] | None
    numa_node: int | None
    pci: str | None
    # The HCAs with the least distance, and of these the fastest; empty if the node has none for
    # jobs.
    nearest_hcas: tuple[str, ...] | None
    hca_distance: str | None  # to them, as in `topo matrix`; None without them
    # Of the only pod that has it, for its colour; None for none or several.
    number: int | None = None
    held_parts: int = 0
    parts: int = 0


class FindingRow(Struct, frozen=True, kw_only=True):
    """A failed check."""

    report: str
    code: str
    verdict: str
    claim: str
    why: str
    remedy: str
    reference: str  # a web page, or another text
    page: str
    # As (subject, observed, expected); findings that name pods have empty texts if names are
    # hidden.
    findings: tuple[tuple[str, str, str], ...]
    more: int = 0  # findings beyond those listed


class ReportRow(Struct, frozen=True, kw_only=True):
    """The counts of a report, and its missing inputs: (inputs, reasons, codes of checks)."""

    report: str
    passed: int
    warned: int
    failed: int
    unknown: int
    waived: int
    skipped: int
    missing: tuple[tuple[str, str, str], ...]


class SizeRow(Struct, frozen=True, kw_only=True):
    """Sizes of one resource with the same answer: *first* to *last*."""

    resource: str
    first: int
    last: int
    admitted: bool | None
    text: str


class AllocationRow(Struct, frozen=True, kw_only=True):
    """One allocation; *by* names the chooser of the devices."""

    at: str
    resource: str
    devices: str
    by: str
    text: str


class ResourceRow(Struct, frozen=True, kw_only=True):
    """One resource; *problem* is why the kubelet does not have it, or had trouble with it."""

    name: str
    healthy: int
    unhealthy: int
    registered: bool
    socket: str | None
    problem: str | None
    placement: str
    allocations: int


class XidRow(Struct, frozen=True, kw_only=True):
    """One code of one GPU, and how often it came since the start of the daemon."""

    gpu: str
    code: int
    count: int
    meaning: str
    action: str


class Summary(Struct, frozen=True, kw_only=True):
    """The node in one line. ``None`` is unknown."""

    gpus: int | None  # None before the first scan
    # healthy, degraded, unhealthy, unknown: GPUs by state
    healthy: int
    degraded: int
    unhealthy: int
    unknown: int
    pods: int | None  # that hold GPUs
    misaligned: int | None  # pods that could be on fewer NUMA nodes
    unmeasured: int | None  # pods that cannot be measured
    # failed, warned, undecided: checks, each counted once
    failed: int | None
    warned: int | None
    undecided: int | None


class View(Struct, frozen=True, kw_only=True):
    """The content of the page, except the drawing."""

    node: str
    version: str
    simulated: str | None
    scanned_at: str | None
    pods_listed_at: str | None
    is_ready: bool
    not_ready: tuple[str, ...]
    summary: Summary
    nvml_problem: str | None
    settings: tuple[tuple[str, str], ...]
    gpus_missing: str | None
    gpus: tuple[GpuRow, ...]
    findings: tuple[FindingRow, ...]
    reports: tuple[ReportRow, ...]
    kubelet: str | None
    sizes: tuple[SizeRow, ...]
    allocations: tuple[AllocationRow, ...]
    resources: tuple[ResourceRow, ...]
    refusals: tuple[str, ...]
    xids: tuple[XidRow, ...]
    labels: Mapping[str, str] | None
    label_outputs: tuple[str, ...]
