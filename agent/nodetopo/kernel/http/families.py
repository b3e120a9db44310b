"""The metric families of every component, in the order of the page, and the kernel's own."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from prometheus_client.core import Metric

import nodetopo
from nodetopo.kernel import logs
from nodetopo.kernel.component import Kernel
from nodetopo.kernel.components import COMPONENTS, has_part, part
from nodetopo.kernel.http.family import (
    SCANNED,
    Family,
    MetricKind,
    Per,
    Samples,
    Section,
    by_name,
    single,
)
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.presence import absent_gpus, dead_gpus

KERNEL = "kernel"
"""Stands for the kernel where the others are components."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReading:
    """The state of the process, its scans and its configuration at one moment.

    Attributes:
        snapshot: ``None`` before the first scan has ended.
        not_ready: why /readyz fails, a line for each reason; ``None`` if it succeeds.
        generation: changes of the node since the start of the process.
        config: name of the config in force; ``None`` if none is selected.
        config_failures: changes of the configuration that were refused.
        events_posted: writes of Kubernetes Events.
        events_dropped: Events that were never written.
        log_lines_dropped: log lines that could not be written to standard error.
        connections: open connections to the metrics port; ``None`` without a server.
        connections_refused: reason → connections that got no answer.
    """

    snapshot: Snapshot | None
    not_ready: str | None = None
    generation: int = 0
    config: str | None = None
    config_failures: int = 0
    events_posted: int = 0
    events_dropped: int = 0
    log_lines_dropped: int = 0
    connections: int | None = None
    connections_refused: Mapping[str, int] = field(default_factory=dict)


def _missing_gpus(reading: KernelReading) -> Samples:
    """Return how many GPUs are missing, by the place where they can still be seen."""
    node = reading.snapshot
    if node is None or node.pci_gpus is None:
        return {}
    absent = absent_gpus(node)
    gone: Samples = {} if absent is None else {("none",): absent}
    return {("pci",): len(dead_gpus(node)), **gone}


KERNEL_FAMILIES: tuple[Family[KernelReading], ...] = (
    Family(
        name="build_info",
        section=Section.AGENT,
        text="Version of nodetopo",
        labels=("version",),
        samples=lambda _reading: {(nodetopo.__version__,): 1},
    ),
    Family(
        name="ready",
        section=Section.AGENT,
        text="Whether /readyz succeeds; its answer lists the reasons if not",
        is_minimal=True,
        samples=lambda reading: single(reading.not_ready is None),
    ),
    Family(
        name="snapshot_generation",
        section=Section.AGENT,
        text="Changes of the node seen since the start of the process",
        samples=lambda reading: single(reading.generation),
    ),
    Family(
        name="last_scan_timestamp_seconds",
        section=Section.AGENT,
        text="Time of the last scan of the node, Unix time",
        when=SCANNED,
        is_minimal=True,
        samples=lambda reading: single(
            reading.snapshot.captured_at.timestamp()
            if reading.snapshot and reading.snapshot.captured_at
            else None
        ),
    ),
    Family(
        name="gpus_missing",
        section=Section.AGENT,
        text="GPUs that the machine should have and the driver does not list: still on the PCI "
        "bus (`pci`), or not (`none`)",
        labels=("seen_on",),
        most=2,
        is_minimal=True,
        when="PCI was read; for `none`, also only if the expected number of GPUs is known",
        samples=_missing_gpus,
    ),
    Family(
        name="probe_issues",
        section=Section.AGENT,
        text="Facts that the last scan could not read",
        labels=("probe",),
        per=Per.PROBLEM,
        when="the scan could not read a fact",
        samples=lambda reading: dict(
            sorted(
                Counter(
                    (issue.probe,)
                    for issue in (reading.snapshot.issues if reading.snapshot else ())
                ).items()
            )
        ),
    ),
    Family(
        name="kubernetes_events",
        section=Section.PROCESS,
        text="Events about the Node: `posted`, or `dropped` without a write",
        labels=("outcome",),
        kind=MetricKind.COUNTER,
        most=2,
        samples=lambda reading: {
            ("posted",): reading.events_posted,
            ("dropped",): reading.events_dropped,
        },
    ),
    Family(
        name="config_info",
        section=Section.PROCESS,
        text="Name of the active configuration, if the Node's label or a default selects one",
        labels=("name",),
        when="a configuration was selected by name",
        samples=lambda reading: {} if reading.config is None else {(reading.config,): 1},
    ),
    Family(
        name="config_reload_failures",
        section=Section.PROCESS,
        text="Rejected changes of the configuration; the previous configuration stays active",
        kind=MetricKind.COUNTER,
        samples=lambda reading: single(reading.config_failures),
    ),
    Family(
        name="log_lines_dropped",
        section=Section.PROCESS,
        text="Log lines that were dropped because standard error accepted none",
        kind=MetricKind.COUNTER,
        samples=lambda reading: single(reading.log_lines_dropped),
    ),
    Family(
        name="http_connections",
        section=Section.PROCESS,
        text="Open connections to the metrics port, including the scraper's",
        samples=lambda reading: single(reading.connections),
    ),
    Family(
        name="http_connections_refused",
        section=Section.PROCESS,
        text="Connections to the metrics port that were closed without an answer: the oldest "
        "beyond the `limit`, connections past their `deadline`, and connections that "
        "would have used the last file `descriptors`",
        labels=("reason",),
        kind=MetricKind.COUNTER,
        most=3,
        samples=lambda reading: by_name(reading.connections_refused),
    ),
    Family(
        name="node_info",
        section=Section.NODE,
        text="Names and versions of the node; empty if unknown",
        labels=("node", "driver", "nvml", "machine"),
        when=SCANNED,
        is_minimal=True,
        samples=lambda reading: {
            (
                node.node or "",
                node.driver_version or "",
                node.nvml_version or "",
                node.product_name or "",
            ): 1
            for node in ([reading.snapshot] if reading.snapshot else [])
        },
    ),
)


@cache
def families() -> tuple[tuple[str, Family[Any]], ...]:
    """Return every family with its component, in the order of the page.

    Imports the metrics of every component, including disabled ones: their families have the same
    samples on every node.
    """
    listed: list[tuple[str, Family[Any]]] = [(KERNEL, family) for family in KERNEL_FAMILIES]
    for name in filter(_has_metrics, COMPONENTS):
        listed += [(name, family) for family in part(name, "metrics").FAMILIES]
    return tuple(sorted(listed, key=lambda item: item[1].section))


@cache
def _has_metrics(name: str) -> bool:
    return has_part(name, "metrics")


def readings(kernel: Kernel) -> dict[str, object]:
    """Return the readings of the kernel and of every component; disabled ones get an idle one."""
    current = kernel.store.current
    snapshot = None if current is None else current.snapshot
    running = {component.name: component for component in kernel.running}
    reloader = kernel.reloader
    return {
        KERNEL: KernelReading(
            snapshot=snapshot,
            not_ready=kernel.not_ready(),
            generation=0 if current is None else current.generation,
            config=kernel.config,
            config_failures=0 if reloader is None else reloader.failures,
            events_posted=sum(writer.posted for writer in kernel.writers),
            events_dropped=sum(writer.dropped for writer in kernel.writers),
            log_lines_dropped=logs.dropped(),
        ),
        **{
            name: running[name].observed()
            if name in running
            else part(name, "metrics").idle(snapshot)
            for name in filter(_has_metrics, COMPONENTS)
        },
    }


def series(*, gpus: int, resources: int = 1, hcas: int = 0, ports: int | None = None) -> int:
    """Return the most series that a node without problems has in all families.

    HCAs have one port each unless *ports* is given.
    """
    counts = {
        Per.NODE: 1,
        Per.GPU: gpus,
        Per.RESOURCE: resources,
        Per.HCA: hcas,
        Per.PORT: hcas if ports is None else ports,
        Per.PROBLEM: 0,
    }
    return sum(family.most * counts[family.per] for _, family in families())


def metrics(readings: Mapping[str, object]) -> Iterator[Metric]:
    """Yield every family with the samples of *readings*, by component.

    A family whose facts are unknown has no samples.
    """
    return (family.metric(readings[name]) for name, family in families())
